"""How torch's lack of memory is told to the planning half."""

import re
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


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (
            "CUDA error: out of memory\nSearch for `cudaErrorMemoryAllocation' in its manual.",
            "CUDA error: out of memory",
        ),
        ("Triton Error [CUDA]: out of memory", "Triton Error [CUDA]: out of memory"),
        (
            "CUDA answered <CUresult.CUDA_ERROR_OUT_OF_MEMORY: 2>",
            "CUDA answered <CUresult.CUDA_ERROR_OUT_OF_MEMORY: 2>",
        ),
        ("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`", "CUBLAS_STATUS_ALLOC_FAILED"),
        ("CUDA error: operation not permitted when stream is capturing", "operation not permitted"),
        ("CUDA error: operation failed due to a previous error during capture\nSearch", "during capture"),
    ],
)
def test_a_lack_of_memory_is_known_by_all_its_names(words: str, reason: str) -> None:
    @tells_when_full
    def compute() -> None:
        raise RuntimeError(words)

    with pytest.raises(DeviceMemoryError, match=re.escape(reason)) as raised:
        compute()
    assert "Search" not in str(raised.value)


def test_a_lack_of_memory_is_told_though_the_end_of_a_capture_failed_over_it() -> None:
    @tells_when_full
    def compute() -> None:
        try:
            raise torch.OutOfMemoryError(TORCHS_WORDS)
        finally:
            raise RuntimeError("Invalid capture.")

    with pytest.raises(DeviceMemoryError, match=r"^CUDA out of memory\. Tried to allocate 2\.00 GiB\."):
        compute()


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
