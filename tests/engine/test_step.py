"""Where the fused step can serve, and what Python must know of its sources; no GPU is asked."""

import re
from types import SimpleNamespace

import pytest
import torch

from octavo_engine.runner.fast import ragged, step, step_layout
from octavo_engine.runner.fast.cuda_module import CudaModuleError
from octavo_engine.runner.fast.weights import FastWeights


def weights(num_heads: int = 2, head_dim: int = 64, dtype: torch.dtype = torch.bfloat16) -> FastWeights:
    """One layer with one KV head."""
    hidden, width = 16, num_heads * head_dim
    return FastWeights(
        embed=torch.zeros(8, hidden),
        head=torch.zeros(8, hidden),
        norms=torch.zeros(3, hidden),
        qkv=torch.zeros(1, width + 2 * head_dim, hidden, dtype=dtype),
        qkv_bias=None,
        q_norm=None,
        k_norm=None,
        o=torch.zeros(1, hidden, width),
        gate_up=torch.zeros(1, 2 * hidden, hidden),
        down=torch.zeros(1, hidden, hidden),
        cos=torch.zeros(4, head_dim),
        sin=torch.zeros(4, head_dim),
        eps=1e-6,
        scale=1.0,
        num_heads=num_heads,
        num_kv_heads=1,
        head_dim=head_dim,
    )


@pytest.mark.parametrize(
    ("capability", "num_heads", "head_dim", "reason"),
    [
        ((9, 0), 16, 64, ""),
        ((12, 0), 2, 256, ""),
        ((8, 9), 2, 64, "the GPU's compute capability is 8.9, not 9.0 (Hopper) or newer"),
        ((9, 0), 2, 96, "its heads have 96 dimensions, not 64, 128 or 256"),
        ((9, 0), 17, 64, "more than 16 of its heads share a KV head"),
    ],
)
def test_why_a_model_is_not_fused(
    monkeypatch: pytest.MonkeyPatch, capability: tuple[int, int], num_heads: int, head_dim: int, reason: str
) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda *_: capability)
    assert step.why_not_fused(weights(num_heads, head_dim)) == reason


def test_float16_is_not_fused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda *_: (9, 0))
    assert "too large for float16" in step.why_not_fused(weights(dtype=torch.float16))


def test_a_queue_of_less_than_two_stages_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A warp takes a second stage before it gives the first back: with one it would wait for ever."""
    device = SimpleNamespace(multi_processor_count=170, shared_memory_per_block_optin=64 << 10)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda *_: device)
    with pytest.raises(CudaModuleError, match="65536 bytes of shared memory are too few"):
        step.StepKernels(weights(num_heads=14, head_dim=256), 256)


def test_python_and_the_sources_agree_on_their_constants() -> None:
    text = "\n".join(file.read_text() for file in step.FILES)
    constants = dict(re.findall(r"\b([A-Z_]+) = (\d+)[,;]", text))
    names = "MAX_ROWS", "MAX_SPLITS", "MAX_LEAD_SPLITS", "LEAD_QUERIES", "WARPS", "SPILLED", "SEGMENT"
    ours = {name: getattr(step_layout, name) for name in names}
    assert {name: int(constants[name]) for name in ours} == ours


def test_every_source_is_used() -> None:
    assert {*step.FILES, *ragged.FILES} == {*step.FOLDER.iterdir()}


def test_one_source_holds_all_assembly() -> None:
    """The others are compiled for the CPU as they are, see test_decode_kernel.py and test_ragged_kernel.py."""
    files = {*step.FILES, *ragged.FILES}
    assert [file.name for file in files if "asm" in file.read_text().replace("assembly", "")] == ["ptx.cuh"]


@pytest.mark.parametrize(
    ("num_rows", "first"),
    [(1, [0, 1, 8, 9, 32, 33, 40, 41]), (2, [0, 1, 8, 9]), (4, [0, 1]), (8, [0, 1])],
)
def test_a_line_of_vectors_is_of_all_rows_and_begins_with_one_threads_columns(num_rows: int, first: list[int]) -> None:
    """All that a line has of a thread's columns, which are 0, 1, 8, 9 and 32 or 16 more; then those of the next."""
    places = step.places(torch.arange(128), num_rows)
    assert sorted(places.flatten().tolist()) == list(range(128 * num_rows))
    lines = places // 64
    assert torch.equal(lines, lines[:1].expand_as(lines))
    columns = places[0].argsort().tolist()
    assert columns[: len(first)] == first
    assert columns[len(first)] == (2 if num_rows == 8 else 16)


@pytest.mark.parametrize(("num_rows", "one"), [(1, ([-1] * 4 + [0] * 12) * 4), (8, [-1] * 128 + [0] * 128)])
def test_places_of_vectors_are_empty_but_for_what_lies_past_the_end(num_rows: int, one: list[int]) -> None:
    """Of 16 columns in 64 or 32. Of one row each thread has all its columns side by side, of eight two and two."""
    vectors = step.empty_vectors(weights(num_heads=1, head_dim=64), num_rows).view(2, -1)
    assert vectors[0].tolist() == (one + [-1] * 64 * num_rows + one + one) + one
    assert torch.equal(vectors[0], vectors[1])


@pytest.mark.parametrize("num_rows", step.NUM_ROWS)
def test_vectors_have_room_for_columns_that_are_looked_up_together(num_rows: int) -> None:
    padded = 64 if num_rows <= 4 else 32
    assert len(step.empty_vectors(weights(num_heads=1, head_dim=64), num_rows)) == 2 * num_rows * (64 + 4 * padded)
