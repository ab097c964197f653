"""What `octavo bench step` promises: real steps of the runner, the bytes that they read, and what takes their time."""

import json
from collections.abc import Iterable
from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from click.testing import CliRunner
from tests.engine import architectures
from torch.profiler import DeviceType

from octavo.bench import device, steps
from octavo.bench.results import Figures, Result, to_lines
from octavo.bench.workloads import SHAPES
from octavo.cli.bench import command
from octavo.paths import Paths
from octavo_engine.batch import Batch, PendingStep, StepOutput
from octavo_engine.echo import EchoRunner, load_echo
from octavo_engine.loaded import Loaded

TINY = architectures.TINY | {"max_position_embeddings": 256, "tie_word_embeddings": False}
LAYER_WEIGHTS = 2 * 64 + 64 * 64 + 2 * 32 * 64 + 64 * 64 + 3 * 64 * 96
"""Two norms, then q, k and v, o, and the MLP's three."""
WEIGHT_BYTES = 4 * (3 * LAYER_WEIGHTS + 64 + 128 * 64)
"""With the last norm and the head; not the embeddings, which here are a table of their own."""
TOKEN_BYTES = 4 * 3 * 2 * 2 * 16
NUM_BLOCKS = 20


class Steps(EchoRunner):
    """Takes no time, and remembers how often it was launched and with which copies."""

    def __init__(self) -> None:
        super().__init__()
        self.copies: list[list[tuple[int, int]]] = []

    def launch(self, batch: Batch) -> PendingStep:
        self.copies.append(list(batch.copies))
        return PendingStep(lambda: StepOutput([7] * sum(batch.samples) * batch.num_steps))


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch, paths: Paths) -> None:
    """A shape "tiny" in a pool of 20 blocks, measured in no time."""
    monkeypatch.setitem(SHAPES, "tiny", ("LlamaConfig", TINY))
    monkeypatch.setattr(steps, "SECONDS", 0.0)
    monkeypatch.setattr(device, "COPIED_BYTES", 1 << 20)
    monkeypatch.setattr("octavo.paths.Paths.from_env", lambda: paths)
    paths.config_file.parent.mkdir(parents=True)
    paths.config_file.write_text(f"kv_cache_memory_bytes = {NUM_BLOCKS * 16 * TOKEN_BYTES}\n")


def bench(*options: str) -> list[dict[str, Any]]:
    done = CliRunner().invoke(command, ["step", "-m", "tiny", "--json", *options], catch_exceptions=False)
    results: list[dict[str, Any]] = json.loads(done.stdout)
    return results


def stepping(num_decode_steps: int) -> tuple[Loaded, Steps]:
    """An engine with room for 4,096 blocks of 16 tokens, whose runner decodes so many steps a look."""
    loaded, runner = load_echo(), Steps()
    loaded.engine._runner = runner
    return replace(loaded, info=replace(loaded.info, num_decode_steps=num_decode_steps)), runner


@pytest.mark.usefixtures("tiny")
def test_a_step_reads_the_weights_once_and_the_tokens_of_all_rows() -> None:
    _, copy, *found = bench("--rows", "1", "--rows", "3", "--context", "16", "--context", "80")
    assert [(step["rows"], step["context"]) for step in found] == [(1, 16), (3, 16), (1, 80), (3, 80)]
    for step in found:
        assert step["GB read"] * 1e9 == WEIGHT_BYTES + step["rows"] * step["context"] * TOKEN_BYTES
        assert step["GB/s"] == pytest.approx(step["GB read"] / step["us a step"] * 1e6)
        assert step["of copy %"] == pytest.approx(100 * step["GB/s"] / copy["GB/s"])
        assert 0 < step["us at best"] <= step["us a step"]


@pytest.mark.usefixtures("tiny")
def test_what_has_no_room_is_named_behind_the_rest() -> None:
    _, _, step, *left_out = bench("--rows", "4", "--rows", "1", "--context", "257", "--context", "80")
    assert (step["rows"], step["context"]) == (1, 80)
    assert [(case["rows"], case["context"], case["left out"]) for case in left_out] == [
        (4, 257, "the context ends at 256 tokens"),
        (1, 257, "the context ends at 256 tokens"),
        (4, 80, "21 blocks are needed, 20 there"),
    ]


@pytest.mark.usefixtures("tiny")
def test_a_profile_tells_what_takes_the_time_of_one_step() -> None:
    step = bench("--rows", "2", "--context", "40", "--profile")[-1]
    calls = {part["what"]: part["calls a step"] for part in step["parts"]}
    assert calls["aten::mm"] == 3 * 7 + 1  # the matrices of three layers, and the head
    assert list(calls)[-1] == "(between them)"
    assert list(calls)[-2].endswith("others)")
    assert len(calls) == 14
    assert all(part["us a step"] < 10 * step["us a step"] for part in step["parts"])  # of one step, not of all


def test_steps_are_launched_as_by_the_engine_and_rows_grow_meanwhile() -> None:
    loaded, _ = stepping(num_decode_steps=32)
    few, many = (steps.decode_batch(loaded, rows, 100) for rows in (4, 5))
    assert (few.num_steps, many.num_steps) == (32, 16)
    assert few.context_lens == [100] * 4
    of_a_token = replace(loaded, info=replace(loaded.info, kv_bytes_per_token=1, weight_bytes=1000))
    assert steps.bytes_read(of_a_token, few) == 1000 + sum(range(100, 132)) / 32 * 4
    assert all(len(sequence.block_table) == 9 for sequence in few.sequences)  # 131 tokens


def test_every_block_that_a_row_reads_is_its_own_and_was_written_once() -> None:
    loaded, runner = stepping(num_decode_steps=32)
    batch = steps.decode_batch(loaded, 3, 100)
    blocks = [block for sequence in batch.sequences for block in sequence.block_table]
    assert len(set(blocks)) == len(blocks) == 3 * 9
    assert runner.copies == [[], [(0, block) for block in blocks]]  # the prompt of block 0, then the first look
    assert batch.copies == []


def test_blocks_that_rows_share_are_read_once() -> None:
    loaded, _ = stepping(num_decode_steps=32)
    batch = steps.decode_batch(loaded, 3, 100, shared=40)
    first, *others = (sequence.block_table for sequence in batch.sequences)
    assert all(table[:2] == first[:2] for table in others)
    assert len({*first, *others[0], *others[1]}) == 2 + 3 * 7
    of_a_token = replace(loaded, info=replace(loaded.info, kv_bytes_per_token=1, weight_bytes=1000))
    assert steps.bytes_read(of_a_token, batch) == 1000 + 32 + sum(range(100 - 32, 132 - 32)) / 32 * 3


def test_a_step_that_is_one_kernel_tells_where_its_time_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded, runner = stepping(num_decode_steps=32)
    loaded = replace(loaded, info=replace(loaded.info, device="cpu"))
    asked: list[tuple[int, int]] = []

    def profile(tables: list[list[int]], context: int) -> dict[str, float] | None:
        asked.append((len(tables), context))
        return {"step": 50.0, "QKV: products": 40.0, "feed waits: memory": 5.0} if len(tables) == 1 else None

    monkeypatch.setattr(runner, "profile", profile, raising=False)
    monkeypatch.setattr(steps, "SECONDS", 0.0)
    monkeypatch.setattr(device, "COPIED_BYTES", 1 << 20)
    cases = steps.Cases(rows=(1, 3), contexts=(100,), shared=200, is_profiled=True)
    *_, inside, one, many = steps.bench_step(cases, "tiny", loaded)
    assert asked == [(1, 100), (3, 100)]
    assert [result.work for result in (inside, one, many)] == ["step/inside", "step/parts", "step/parts"]
    assert [part["share %"] for part in inside.parts] == [80.0, 10.0]


def test_a_line_fits_a_terminal_of_100_columns() -> None:
    case: Figures = {"rows": 256, "context": 131_072, "us a step": 1234567.8, "us at best": 1234567.8}
    figures: Figures = {**case, "GB read": 1234.5, "GB/s": 12345.6, "of copy %": 100.0}
    part = device._figures(device._Ran("x" * 300, 1234, 1234567.8), 1, 1234567.8)
    lines = list(to_lines([Result(work="step/copy", model="smollm2-135m", more=figures, parts=[part])]))
    assert max(map(len, lines)) <= 100


def test_on_cuda_only_what_ran_there_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    def event(name: str, kind: DeviceType, count: int, us: float) -> SimpleNamespace:
        times = {"self_cpu_time_total": 5.0, "self_device_time_total": us}
        return SimpleNamespace(key=name, device_type=kind, count=count, **times)

    asked: list[object] = []

    def profile(activities: Iterable[object], **_: object) -> nullcontext[SimpleNamespace]:
        asked.extend(activities)
        events = [
            event("cudaGraphLaunch", DeviceType.CPU, 8, 800.0),
            event("begin_step", DeviceType.CUDA, 8, 16.0),
            event("void flash::split<cutlass::bfloat16_t>(int)", DeviceType.CUDA, 16, 640.0),
        ]
        return nullcontext(SimpleNamespace(key_averages=lambda: events))

    monkeypatch.setattr(device, "profile", profile)
    parts = device.parts_of(lambda: None, 8, 100.0, torch.device("cuda"))
    assert asked == [torch.profiler.ProfilerActivity.CUDA]
    assert [tuple(part.values()) for part in parts] == [
        (2.0, 80.0, 80.0, "flash::split<bfloat16_t>(int)"),
        (1.0, 2.0, 2.0, "begin_step"),
        (0.0, 18.0, 18.0, "(between them)"),
    ]


def test_a_profile_of_nothing_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    nothing = nullcontext(SimpleNamespace(key_averages=list))
    monkeypatch.setattr(device, "profile", lambda **_: nothing)
    (part,) = device.parts_of(lambda: None, 8, 100.0, torch.device("cuda"))
    assert part["what"] == device.NOTHING_SEEN


def test_a_name_is_told_from_others_by_what_is_kept_of_it() -> None:
    name = "void at::native::(anonymous namespace)::fill_kernel<4, at::native::FillFunctor<int> >(int)"
    assert device.short(name) == "fill_kernel<4, FillFunctor<int> >(int)"
    assert device.short("k" * 61) == "k" * 59 + "…"


@pytest.mark.parametrize("option", [("--rows", "1"), ("--context", "1"), ("--shared", "1"), ("--profile",)])
def test_options_of_step_are_for_step(option: tuple[str, ...]) -> None:
    done = CliRunner().invoke(command, ["waste", *option])
    assert done.exit_code == 2
    assert "are for step" in done.output
