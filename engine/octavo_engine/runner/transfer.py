"""Moves ints to the device and ids back without stopping for either."""

from array import array
from collections.abc import Iterable, Sequence

import torch

from octavo_engine.batch import PendingStep, StepOutput
from octavo_engine.runner.device_memory import tells_when_full

ALIGNED = 4
"""int32 in 16 bytes."""


def pinned(values: Sequence[int], device: torch.device) -> torch.Tensor:
    """An int32 tensor of its own, (values,), in memory that a transfer to `device` may read while Python goes on.

    Nobody writes it again, and torch gives its memory to another pinned tensor only when the transfer is over. Values
    are 0 or more.
    """
    if not values:
        return torch.empty(0, dtype=torch.int32)
    # ten times as fast for the ids of a long prompt, and an array three times as fast without signs as with them
    packed = torch.frombuffer(array("I", values), dtype=torch.int32)
    return packed.pin_memory() if device.type == "cuda" else packed


def upload(parts: Iterable[Sequence[int]], device: torch.device) -> list[torch.Tensor]:
    """Lists of values from 0 on as int32 on the device, by one transfer, there before whatever comes next in its queue.

    Each begins at a multiple of 16 bytes: for a pointer that does not, Triton compiles a kernel once more.
    """
    values: list[int] = []
    bounds = []
    for part in parts:
        begin = len(values)
        values += part
        bounds.append((begin, len(values)))
        values += [0] * (-len(values) % ALIGNED)
    packed = pinned(values, device).to(device, non_blocking=True)
    return [packed[begin:end] for begin, end in bounds]


def upload_as(dtype: torch.dtype, values: Sequence[float], device: torch.device) -> torch.Tensor:
    """The same for a few values of another type."""
    return torch.tensor(values, dtype=dtype, pin_memory=device.type == "cuda").to(device, non_blocking=True)


def download(ids: torch.Tensor, order: Sequence[int]) -> PendingStep:
    """The first columns of ids on CUDA, (steps, rows), once what is in the queue so far has run.

    Column n goes to place order[n] of its step.
    """
    host = torch.empty(ids.shape, dtype=ids.dtype, pin_memory=True)
    host.copy_(ids, non_blocking=True)
    copied = mark()
    columns = torch.tensor(order).argsort()  # of each place; made now, while nobody waits for it

    @tells_when_full
    def wait() -> StepOutput:
        copied.synchronize()
        return StepOutput(host.index_select(1, columns).flatten().tolist())

    return PendingStep(wait)


def mark() -> torch.cuda.Event:
    """An event behind all that is in the queue of the CUDA device so far."""
    event = torch.cuda.Event()  # type: ignore[no-untyped-call]
    event.record()
    return event
