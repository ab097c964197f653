"""The fast path on CUDA: graphs against eager, sharing against cold runs, the whole against transformers."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import transformers
from tokenizers import Tokenizer, models
from transformers import AutoModelForCausalLM, PreTrainedModel, PreTrainedTokenizerFast

from octavo_engine.batch import Batch
from octavo_engine.config import EngineConfig
from octavo_engine.engine import Engine
from octavo_engine.events import Delta, Preempted, TokenLogprobs
from octavo_engine.params import SamplingParams
from octavo_engine.runner import load, routing
from octavo_engine.sequence import Sequence

pytest.importorskip("triton", reason="the fast path needs Triton")
from octavo_engine.runner.fast.fast_runner import ROW_BUCKETS, FastRunner, bucket

TINY = {
    "vocab_size": 512,
    "hidden_size": 256,
    "intermediate_size": 512,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 4096,
    "head_dim": 64,
    "eos_token_id": None,
}
KINDS = ["LlamaConfig", "Qwen2Config", "Qwen3Config", "MistralConfig"]
TOLERANCE = 0.03
"""Relative error of bfloat16 logits between two orders of the same sums."""


def build(kind: str, dtype: torch.dtype, attention: str) -> PreTrainedModel:
    torch.manual_seed(0)
    settings = TINY | ({"sliding_window": None} if kind == "MistralConfig" else {})
    config = getattr(transformers, kind)(**settings)
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32, attn_implementation=attention)  # type: ignore[no-untyped-call]
    assert isinstance(model, PreTrainedModel)
    model.train(False)
    torch.nn.Module.to(model, device="cuda", dtype=torch.bfloat16)
    torch.nn.Module.to(model, dtype=dtype)
    return model


def make_engine(kind: str, **settings: object) -> Engine:
    """An engine of a tiny model that took the fast path."""
    routing.register()
    words = {f"w{number}": number for number in range(512)}
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.WordLevel(words, unk_token="w0")))  # type: ignore[no-untyped-call]
    model = build(kind, torch.bfloat16, routing.ATTENTION_NAME)
    config = EngineConfig(**({"kv_cache_memory_bytes": 64 << 20} | settings))  # type: ignore[arg-type]
    engine = load.build_engine(model, tokenizer, config, name=kind).engine
    assert isinstance(engine._runner, FastRunner)
    return engine


def prompt(length: int, seed: int = 0) -> list[int]:
    return torch.randint(3, 512, (length,), generator=torch.Generator().manual_seed(seed)).tolist()


def run(engine: Engine, **requests: list[int]) -> dict[str, list[tuple[int, TokenLogprobs]]]:
    """Greedy ids with their log-probabilities, 24 of each request."""
    params = SamplingParams(temperature=0.0, max_tokens=24, ignore_eos=True, logprobs=5)
    for name, ids in requests.items():
        engine.add(name, ids, params)
    found: dict[str, list[tuple[int, TokenLogprobs]]] = {}
    while engine.has_work:
        for event in engine.step():
            if isinstance(event, Delta) and event.token_ids:
                found.setdefault(event.request_id, []).extend(zip(event.token_ids, event.logprobs, strict=True))
    engine.check_integrity()
    return found


def assert_close(ours: list[tuple[int, TokenLogprobs]], theirs: list[tuple[int, TokenLogprobs]]) -> None:
    """Log-probabilities agree until two likeliest ids nearly tie and the replies part."""
    for (our_id, our), (their_id, their) in zip(ours, theirs, strict=True):
        assert our.top[0][1] == pytest.approx(their.top[0][1], abs=0.1)
        if our_id != their_id:
            assert their.top[0][1] - their.top[1][1] < 0.1
            return


@pytest.mark.parametrize("kind", KINDS)
def test_log_probabilities_are_within_bfloat16s_reach_of_transformers_in_float32(kind: str) -> None:
    """Prefill and then decode by the fast path, against the same weights in float32 and transformers' own attention."""
    reference = build(kind, torch.float32, "eager")
    ids = prompt(300)
    replies = run(make_engine(kind), only=ids)["only"]
    for token, entry in replies:
        with torch.inference_mode():
            theirs = reference(torch.tensor([ids], device="cuda"), use_cache=False).logits[0, -1].log_softmax(-1)
        for top_id, logprob in entry.top:
            assert logprob == pytest.approx(float(theirs[top_id]), abs=0.1)
        ids = [*ids, token]


@pytest.mark.parametrize("kind", KINDS)
@torch.inference_mode()
def test_graphs_equal_eager_on_batches_that_grow_past_every_bucket(kind: str) -> None:
    engine = make_engine(kind)
    runner = engine._runner
    assert isinstance(runner, FastRunner)
    sequences: list[Sequence] = []
    for number, length in enumerate([5, 255, 256, 257, 700, 30, 1024, 64, 900, 3, 511, 512, 1023, 17, 8, 90, 100]):
        sequence = Sequence(str(number), prompt(length, number), SamplingParams(temperature=0.0))
        sequence.block_table = list(range(number * 5, number * 5 + 5))
        sequences.append(sequence)
        for chunk in (length // 2, length - length // 2):
            if chunk:
                batch = Batch()
                batch.add(sequence, chunk, 256)
                assert_graph_equals_eager(runner, batch)
                sequence.num_computed += chunk
        for _ in range(2):
            decode = Batch()
            for row in sequences:
                row.token_ids.append(7)
                row.num_computed = len(row.token_ids) - 1
                decode.add(row, 1, 256)
            assert_graph_equals_eager(runner, decode)


def assert_graph_equals_eager(runner: FastRunner, batch: Batch) -> None:
    eager = runner._prompt_eager(batch).float()
    if batch.is_decode:
        runner.run(batch)
        num_rows = bucket(ROW_BUCKETS, len(batch.sequences))
        assert num_rows is not None
        logits = runner._graph_for(batch, num_rows).logits
    else:
        logits = runner._prompt(batch)
    ours = logits[: len(eager)].float()
    assert float((ours - eager).norm() / eager.norm()) < TOLERANCE


@pytest.mark.parametrize("kind", KINDS)
def test_several_steps_a_look_give_the_ids_of_one(kind: str) -> None:
    params = SamplingParams(temperature=0.0, max_tokens=40, ignore_eos=True)

    def ids(steps: int) -> list[int]:
        engine, found = make_engine(kind, num_decode_steps=steps), []
        engine.add("only", prompt(100), params)
        while engine.has_work:
            found += [i for event in engine.step() if isinstance(event, Delta) for i in event.token_ids]
        return found

    assert ids(16) == ids(1)


@pytest.mark.parametrize("kind", KINDS)
def test_sharing_changes_nothing(kind: str) -> None:
    """After a full hit, a partial hit, a fork and a preemption the log-probabilities are those of a cold run."""
    ids, longer = prompt(600), prompt(300)
    cold = run(make_engine(kind, enable_prefix_caching=False), a=ids, b=ids[:400] + longer)
    engine = make_engine(kind)
    run(engine, a=ids)
    warm = run(engine, a=ids, b=ids[:400] + longer)
    assert_close(warm["a"], cold["a"])
    assert_close(warm["b"], cold["b"])
    params = SamplingParams(temperature=0.0, max_tokens=24, ignore_eos=True, logprobs=5)
    engine.add("parent", ids, params)
    engine.step()
    engine.fork("parent", "child")
    found: dict[str, list[tuple[int, TokenLogprobs]]] = {}
    while engine.has_work:
        for event in engine.step():
            if isinstance(event, Delta) and event.token_ids:
                found.setdefault(event.request_id, []).extend(zip(event.token_ids, event.logprobs, strict=True))
    assert_close(found["child"][: len(cold["a"]) - 1], cold["a"][1:])


def test_preempted_rows_come_to_their_end() -> None:
    """That their ids are those of an undisturbed run is tested without a GPU, where sums have one order."""
    prompts = {str(n): prompt(250, n) for n in range(4)}
    block_bytes = 3 * 2 * 2 * 64 * 2 * 256
    small = make_engine("Qwen3Config", kv_cache_memory_bytes=6 * block_bytes, max_model_len=1024)
    params = SamplingParams(temperature=0.0, max_tokens=24, ignore_eos=True)
    for name, ids in prompts.items():
        small.add(name, ids, params)
    events = []
    while small.has_work:
        events += small.step()
    assert any(isinstance(event, Preempted) for event in events)
    large = run(make_engine("Qwen3Config"), **prompts)
    for name in prompts:
        ours = [i for e in events if isinstance(e, Delta) and e.request_id == name for i in e.token_ids]
        assert len(ours) == len(large[name])


def test_a_seeded_reply_is_drawn_inside_the_graph_as_outside_it() -> None:
    engine = make_engine("LlamaConfig")
    params = SamplingParams(temperature=1.0, top_p=0.9, seed=3, max_tokens=16, ignore_eos=True)
    outside = SamplingParams(temperature=1.0, top_p=0.9, seed=3, max_tokens=16, ignore_eos=True, logprobs=0)

    def ids(name: str, params: SamplingParams) -> list[int]:
        engine.clear_cache()
        engine.add(name, prompt(50), params)
        events = []
        while engine.has_work:
            events += engine.step()
        return [i for event in events if isinstance(event, Delta) for i in event.token_ids]

    inside, again = ids("inside", params), ids("again", params)
    assert inside == again
    same = [a == b for a, b in zip(inside, ids("outside", outside), strict=True)]
    assert same[0]  # the same logits; later ones may differ by a rounding


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("compute-sanitizer") is None, reason="compute-sanitizer is not installed")
def test_the_kernels_touch_no_memory_that_is_not_theirs() -> None:
    checker = ["compute-sanitizer", "--tool", "memcheck", "--error-exitcode", "9"]
    done = subprocess.run(
        [*checker, sys.executable, "-m", "tests.gpu.sanitized"],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-2000:]
