"""Tells the planning half when the device has no memory left for a step, or is of no use any more."""

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

import torch

from octavo_engine.errors import DeviceLostError, DeviceMemoryError

P = ParamSpec("P")
T = TypeVar("T")


def tells_when_full(function: Callable[P, T]) -> Callable[P, T]:
    """Let a function raise DeviceMemoryError, with torch's reason, instead of torch.OutOfMemoryError.

    After another error of a device that is lost with it, it raises DeviceLostError.
    """

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return function(*args, **kwargs)
        except torch.OutOfMemoryError as error:
            reason = first_sentences(str(error))
        except RuntimeError as error:
            raise_if_lost(error)
            raise
        # only here are the tensors of the step free, which the traceback held
        torch.cuda.empty_cache()
        raise DeviceMemoryError(reason)

    return call


def raise_if_lost(error: RuntimeError) -> None:
    """An illegal access, say, fails every later call of the process: then the device cannot even be waited for."""
    if not torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        return
    try:
        torch.cuda.synchronize()
    except RuntimeError:
        raise DeviceLostError(f"the GPU is lost to this process: {first_sentences(str(error))}") from error


def first_sentences(message: str) -> str:
    """What torch says of the memory that was asked for and of what is free, without its advice."""
    return ". ".join(message.split(". ")[:3]).strip().rstrip(".")
