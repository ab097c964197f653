"""The fast path on CUDA against transformers, and its loops of several steps against single ones."""

import pytest
import torch
from tests.gpu.stage import KINDS, TOLERANCE, assert_same, build, drain, make_engine, on_hopper, prompt, run

from octavo_engine.engine import Engine
from octavo_engine.events import Delta
from octavo_engine.params import SamplingParams
from octavo_engine.runner.fast import fast_runner
from octavo_engine.runner.fast.fast_runner import FastRunner
from octavo_engine.runner.fast.step import FusedStep


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
            assert logprob == pytest.approx(float(theirs[top_id]), abs=TOLERANCE)
        ids = [*ids, token]


@pytest.mark.parametrize("kind", KINDS)
def test_several_steps_a_look_give_the_ids_of_one(kind: str) -> None:
    params = SamplingParams(temperature=0.0, max_tokens=40, ignore_eos=True)

    def ids(steps: int) -> list[int]:
        engine = make_engine(kind, num_decode_steps=steps)
        engine.add("only", prompt(100), params)
        return [i for event in drain(engine) if isinstance(event, Delta) for i in event.token_ids]

    assert ids(16) == ids(1)


def test_a_seeded_reply_is_drawn_inside_the_graph_as_outside_it() -> None:
    engine = make_engine("LlamaConfig")
    params = SamplingParams(temperature=1.0, top_p=0.9, seed=3, max_tokens=16, ignore_eos=True)
    outside = SamplingParams(temperature=1.0, top_p=0.9, seed=3, max_tokens=16, ignore_eos=True, logprobs=0)

    def ids(name: str, params: SamplingParams) -> list[int]:
        engine.clear_cache()
        engine.add(name, prompt(50), params)
        return [i for event in drain(engine) if isinstance(event, Delta) for i in event.token_ids]

    inside, again = ids("inside", params), ids("again", params)
    assert inside == again
    same = [a == b for a, b in zip(inside, ids("outside", outside), strict=True)]
    assert same[0]  # the same logits; later ones may differ by a rounding


def fused_rows(engine: Engine) -> list[int]:
    """The numbers of rows that the fused step serves."""
    assert isinstance(engine._runner, FastRunner)
    return sorted(engine._runner._fused)


@on_hopper
@pytest.mark.parametrize("kind", KINDS)
def test_the_fused_step_agrees_with_the_forward_pass_and_is_taken(kind: str) -> None:
    assert fused_rows(make_engine(kind)) == [1, 2, 4, 8]


def test_a_fused_step_that_lies_is_not_taken_and_nobody_sees_it(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = make_engine("Qwen3Config")
    call = FusedStep.__call__
    monkeypatch.setattr(FusedStep, "__call__", lambda self, *inputs: call(self, *inputs) * 1.5)
    other = make_engine("Qwen3Config")
    assert fused_rows(other) == []
    monkeypatch.undo()
    assert_same(run(other, only=prompt(300))["only"], run(honest, only=prompt(300))["only"])


@on_hopper
def test_the_fused_step_tells_where_its_time_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    runner = make_engine("Qwen3Config")._runner
    assert isinstance(runner, FastRunner)
    assert runner.profile([[0, 1, 2]] * 3, context=600) is None
    monkeypatch.setattr(fast_runner, "FUSED_WORTH_BYTES", 1)
    costs = runner.profile([[0, 1, 2 + row] for row in range(4)], context=600)
    assert costs is not None
    workers = sum(microseconds for cost, microseconds in costs.items() if cost != "step" and "feed" not in cost)
    assert workers == pytest.approx(costs["step"])
    assert all(microseconds > 0 for microseconds in costs.values()), costs
