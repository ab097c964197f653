"""Tells the planning half when the device has no memory left for a step, or is of no use any more."""

import re
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

import torch

from octavo_engine.errors import DeviceLostError, DeviceMemoryError

P = ParamSpec("P")
T = TypeVar("T")
_FULL = re.compile("out.of.memory|alloc_failed|stream is capturing|error during capture", re.IGNORECASE)
"""How CUDA, its libraries and Triton say it, and what a capture says in which torch freed memory to make room: as a
step has run once before it is captured, nothing else is wrong with it."""


def tells_when_full(function: Callable[P, T]) -> Callable[P, T]:
    """Let a function raise DeviceMemoryError, with torch's reason, instead of all that a lack of memory may raise.

    After another error of a device that is lost with it, it raises DeviceLostError.
    """

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return function(*args, **kwargs)
        except Exception as error:
            reason = why_full(error)
            if not reason:
                raise_if_lost(error)
                raise
        # only here are the tensors of the step free, which the traceback held
        torch.cuda.empty_cache()
        raise DeviceMemoryError(reason)

    return call


def why_full(error: BaseException | None) -> str:
    """What an error says of memory, if that, or one that it came on top of, is a lack of it; else nothing.

    A capture that is broken off may fail once more when it is ended, which hides the first error.
    """
    while error is not None:
        if isinstance(error, torch.OutOfMemoryError) or _FULL.search(str(error)):
            return first_sentences(str(error))
        error = error.__cause__ or error.__context__
    return ""


def raise_if_lost(error: Exception) -> None:
    """An illegal access, say, fails every later call of the process: then the device cannot even be waited for."""
    if not isinstance(error, RuntimeError) or not torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        return
    try:
        torch.cuda.synchronize()
    except RuntimeError:
        raise DeviceLostError(f"the GPU is lost to this process: {first_sentences(str(error))}") from error


def first_sentences(message: str) -> str:
    """What torch says of the memory that was asked for and of what is free, without its advice."""
    return ". ".join(message.partition("\n")[0].split(". ")[:3]).strip().rstrip(".")
