"""How torch's lack of memory is told to the planning half."""

import weakref

import pytest
import torch

from octavo_engine.errors import DeviceLostError, DeviceMemoryError
from octavo_engine.runner.device_memory import tells_when_full

TORCHS_WORDS = (
    "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 139.72 GiB of which 1.20 GiB is "
    "free. Including non-PyTorch memory, this process has 138.51 GiB memory in use. See documentation."
)


def test_the_amounts_are_told_and_not_the_advice() -> None:
    @tells_when_full
    def compute() -> None:
        raise torch.OutOfMemoryError(TORCHS_WORDS)

    with pytest.raises(DeviceMemoryError) as raised:
        compute()
    assert str(raised.value) == TORCHS_WORDS[: TORCHS_WORDS.index(". Including")]


def test_the_tensors_of_the_step_are_free_when_it_is_told() -> None:
    held: list[weakref.ref[torch.Tensor]] = []

    @tells_when_full
    def compute() -> None:
        activations = torch.zeros(8)
        held.append(weakref.ref(activations))
        raise torch.OutOfMemoryError(TORCHS_WORDS)

    with pytest.raises(DeviceMemoryError) as raised:
        compute()
    assert held[0]() is None
    assert raised.value.__context__ is None


def test_other_errors_and_answers_pass() -> None:
    @tells_when_full
    def halve(number: int) -> float:
        return 1 / number

    assert halve(2) == 0.5
    with pytest.raises(ZeroDivisionError):
        halve(0)


@pytest.mark.parametrize("is_lost", [False, True])
def test_an_error_tells_whether_the_device_outlives_it(monkeypatch: pytest.MonkeyPatch, is_lost: bool) -> None:
    def synchronize() -> None:
        if is_lost:
            raise RuntimeError("CUDA error: an illegal memory access was encountered")

    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "synchronize", synchronize)

    @tells_when_full
    def compute() -> None:
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    with pytest.raises(DeviceLostError if is_lost else RuntimeError) as raised:
        compute()
    assert isinstance(raised.value, DeviceLostError) == is_lost
