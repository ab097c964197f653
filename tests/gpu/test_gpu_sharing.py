"""Prefix hits, forks, preemption and aborts on CUDA: the replies are those of a run that shares nothing."""

import pytest
from tests.gpu.stage import BLOCK_BYTES, GREEDY, Reply, assert_same, drain, make_engine, prompt, reply_of, run

from octavo_engine.events import Event, Finished, Preempted, StopReason
from octavo_engine.runner.fast.fast_runner import FastRunner

KINDS = ["Qwen2Config", "Qwen3Config"]


@pytest.fixture(autouse=True)
def graphs_on_demand(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that a test needs are captured when it needs them; the others would cost seconds for each engine."""
    monkeypatch.setattr(FastRunner, "warm_up", lambda *_: None)


def cold_replies(kind: str, **prompts: list[int]) -> dict[str, Reply]:
    """Each prompt alone, in an engine that keeps nothing."""
    engine = make_engine(kind, enable_prefix_caching=False)
    return {name: run(engine, **{name: ids})[name] for name, ids in prompts.items()}


def prompt_tokens(name: str, events: list[Event]) -> int:
    return next(e.usage.prompt_tokens for e in events if isinstance(e, Finished) and e.request_id == name)


@pytest.mark.parametrize("kind", KINDS)
def test_a_full_and_a_partial_prefix_hit_change_nothing(kind: str) -> None:
    whole = prompt(600)
    parted = whole[:400] + prompt(300, 1)
    cold = cold_replies(kind, whole=whole, parted=parted)
    engine = make_engine(kind)
    run(engine, whole=whole)
    for name, ids in {"whole": whole, "parted": parted}.items():
        engine.add(name, ids, GREEDY)
    events = drain(engine)
    cached = {e.request_id: e.usage.cached_tokens for e in events if isinstance(e, Finished)}
    assert cached == {"whole": 599, "parted": 400}
    for name in cold:
        assert_same(reply_of(name, events), cold[name])


@pytest.mark.parametrize("kind", KINDS)
def test_a_fork_goes_on_like_its_parent(kind: str) -> None:
    cold = cold_replies(kind, parent=prompt(600))["parent"]
    engine = make_engine(kind)
    engine.add("parent", prompt(600), GREEDY)
    events: list[Event] = []
    while len(reply_of("parent", events)) < 3:
        events += engine.step()
    engine.fork("parent", "child")
    events += drain(engine)
    parent, child = reply_of("parent", events), reply_of("child", events)
    assert_same(parent, cold)
    forked_at = prompt_tokens("child", events) - 600
    assert 3 <= forked_at < len(parent)
    assert_same(child[: len(parent) - forked_at], parent[forked_at:])


@pytest.mark.parametrize("kind", KINDS)
def test_preempted_rows_say_what_they_say_undisturbed(kind: str) -> None:
    """Four replies that each grow into a second block, in a pool of six blocks."""
    prompts = {f"r{n}": prompt(250, n) for n in range(4)}
    cold = cold_replies(kind, **prompts)
    small = make_engine(kind, kv_cache_memory_bytes=6 * BLOCK_BYTES, max_model_len=1024)
    for name, ids in prompts.items():
        small.add(name, ids, GREEDY)
    events = drain(small)
    assert any(isinstance(event, Preempted) for event in events)
    for name in prompts:
        assert_same(reply_of(name, events), cold[name])


@pytest.mark.parametrize("kind", KINDS)
def test_an_abort_disturbs_neither_those_beside_it_nor_those_who_get_its_blocks(kind: str) -> None:
    """A pool of six blocks: two for each reply, so the last ones need what the aborted one gave back."""
    prompts = {name: prompt(250, number) for number, name in enumerate(["stays", "goes", "next", "later"])}
    cold = cold_replies(kind, **prompts)
    engine = make_engine(kind, kv_cache_memory_bytes=6 * BLOCK_BYTES, max_model_len=1024)
    for name in ("stays", "goes"):
        engine.add(name, prompts[name], GREEDY)
    events: list[Event] = []
    while len(reply_of("goes", events)) < 3:
        events += engine.step()
    engine.abort("goes")
    for name in ("next", "later"):
        engine.add(name, prompts[name], GREEDY)
    events += drain(engine)
    ends = {event.request_id: event.stop_reason for event in events if isinstance(event, Finished)}
    assert ends == {name: StopReason.ABORTED if name == "goes" else StopReason.LENGTH for name in prompts}
    partial = reply_of("goes", events)
    assert_same(partial, cold["goes"][: len(partial)])
    for name in ("stays", "next", "later"):
        assert_same(reply_of(name, events), cold[name])
    assert_same(run(engine, goes=prompts["goes"])["goes"], cold["goes"])
