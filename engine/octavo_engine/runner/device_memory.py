"""Tells the planning half when the device has no memory left for a step."""

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

import torch

from octavo_engine.errors import DeviceMemoryError

P = ParamSpec("P")
T = TypeVar("T")


def tells_when_full(function: Callable[P, T]) -> Callable[P, T]:
    """Let a function raise DeviceMemoryError, with torch's reason, instead of torch.OutOfMemoryError."""

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return function(*args, **kwargs)
        except torch.OutOfMemoryError as error:
            reason = first_sentences(str(error))
        # only here are the tensors of the step free, which the traceback held
        torch.cuda.empty_cache()
        raise DeviceMemoryError(reason)

    return call


def first_sentences(message: str) -> str:
    """What torch says of the memory that was asked for and of what is free, without its advice."""
    return ". ".join(message.split(". ")[:3]).strip().rstrip(".")
