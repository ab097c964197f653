"""`octavo bench step` on CUDA: steps of graphs, several a look, and the kernels inside of them."""

import pytest
from tests.gpu.stage import make_loaded

from octavo.bench import steps
from octavo.bench.device import NOTHING_SEEN
from octavo_engine.runner.fast.fast_runner import FastRunner


def test_the_kernels_of_a_graph_are_seen_and_take_no_longer_than_its_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steps, "SECONDS", 0.1)
    cases = steps.Cases(rows=(1, 16), contexts=(256,), is_profiled=True)
    loaded = make_loaded("LlamaConfig")
    assert isinstance(loaded.engine.runner, FastRunner)
    is_fused = bool(loaded.engine.runner._fused)  # whose kernel tells more
    copy, *found = steps.bench_step(cases, "tiny", loaded)
    timed, (one, many) = ([result for result in found if result.work == work] for work in ("step", "step/parts"))
    assert float(copy.more["GB/s"]) > 10
    assert loaded.info.num_decode_steps >= 16
    for step in (one, many):
        kernels = [part for part in step.parts if str(part["what"])[0] != "("]
        assert kernels, NOTHING_SEEN
        assert 0 < sum(float(part["us a step"]) for part in kernels) < 1.5 * float(step.more["us a step"])
    assert [step.more for step in timed] == [one.more, many.more]
    assert len(found) == 4 + is_fused
    assert len(many.parts) > 5  # a forward pass in parts
