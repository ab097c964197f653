"""What is left of a CUDA graph whose capture failed: nothing, and the next one is captured as if it had not been."""

import gc
from collections.abc import Callable

import pytest
import torch

from octavo_engine.errors import DeviceMemoryError
from octavo_engine.runner.device_memory import tells_when_full
from octavo_engine.runner.fast.graph_memory import GraphMemory


def allocate_too_much() -> None:
    torch.empty(1 << 50, dtype=torch.uint8, device="cuda")


FAILURES = [allocate_too_much, torch.cuda.synchronize]
"""The first one raises while CUDA goes on capturing; the second one breaks the capture, so that its end fails, too."""


def make_memory() -> GraphMemory:
    return GraphMemory(torch.zeros(8, 4, device="cuda"), 2)


def filling(memory: GraphMemory, value: float) -> Callable[[], None]:
    """Set all logits, by way of memory that is alive within a replay only."""

    def run() -> None:
        memory.logits.copy_(torch.full_like(memory.logits, value))

    return run


def fail_when_captured(memory: GraphMemory, fail: Callable[[], None]) -> None:
    """Ask for a graph of what runs well once and then fails."""

    def run() -> None:
        memory.logits.add_(torch.ones_like(memory.logits))
        if torch.cuda.is_current_stream_capturing():
            fail()

    memory.capture(run)


@pytest.mark.parametrize("fail", FAILURES)
def test_a_capture_that_fails_is_a_lack_of_memory(fail: Callable[[], None]) -> None:
    with pytest.raises(DeviceMemoryError):
        tells_when_full(fail_when_captured)(make_memory(), fail)


@pytest.mark.parametrize("fail", FAILURES)
def test_after_a_capture_that_failed_torch_works_as_before(fail: Callable[[], None]) -> None:
    memory, stream = make_memory(), torch.cuda.current_stream()
    first = memory.capture(filling(memory, 1.0))
    for _ in range(2):
        with pytest.raises(DeviceMemoryError):
            tells_when_full(fail_when_captured)(memory, fail)
        assert torch.cuda.current_stream() == stream
        assert not torch.cuda.is_current_stream_capturing()
    assert_memory_comes_back()
    second = memory.capture(filling(memory, 2.0))
    for graph, value in ((first, 1.0), (second, 2.0), (first, 1.0)):
        graph.replay()
        assert memory.logits.tolist() == [[value] * 8] * 2


def assert_memory_comes_back() -> None:
    """What is allocated now does not go to the memory of graphs, where it would stay."""
    before = torch.cuda.memory_reserved()
    torch.empty(64 << 20, dtype=torch.uint8, device="cuda")
    torch.cuda.empty_cache()
    assert torch.cuda.memory_reserved() <= before


def test_no_garbage_is_collected_while_a_graph_is_captured() -> None:
    """An older graph among it would break the capture."""
    was_enabled: list[bool] = []
    make_memory().capture(lambda: was_enabled.append(gc.isenabled()))
    assert was_enabled == [True, False]
    assert gc.isenabled()
