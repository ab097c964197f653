"""Reads a model folder into a transformers model, straight to its device, and tells how far it is."""

import contextlib
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any, TypeVar

import torch
from safetensors import SafetensorError
from transformers import AutoModelForCausalLM, PreTrainedModel
from transformers.utils.logging import set_tqdm_hook

from octavo_engine.errors import ModelError
from octavo_engine.loaded import LoadStep, OnLoadStep, ignore_step
from octavo_engine.runner import routing

T = TypeVar("T")
READING = "reading the weights"
_BAR = "Loading weights"
"""What transformers calls the bar that advances with each tensor it has put in its place."""


def load_model(
    folder: Path, dtype: torch.dtype, device: torch.device, tell: OnLoadStep = ignore_step
) -> PreTrainedModel:
    """The model with its attention routed to this engine, in evaluation mode on the device.

    Weights for a GPU go there one by one as they are read; main memory never holds them all. Raises ModelError.
    """
    routing.register()
    try:
        with _told(tell):
            model = AutoModelForCausalLM.from_pretrained(
                folder,
                dtype=dtype,
                attn_implementation=routing.ATTENTION_NAME,
                device_map=None if device.type == "cpu" else {"": device},
                trust_remote_code=False,
            )
    except torch.OutOfMemoryError:
        raise  # a RuntimeError too, but nothing is wrong with the folder
    except (OSError, ValueError, KeyError, RuntimeError, SafetensorError) as error:
        raise ModelError(f"the model in {folder} cannot run here: {reason_of(error)}") from error
    assert isinstance(model, PreTrainedModel)
    model.train(False)
    return model


def reason_of(error: Exception) -> str:
    """Why transformers does not make a model, in our words where its own would lead astray."""
    if isinstance(error, KeyError) and routing.ATTENTION_NAME in error.args:
        return routing.NOT_ROUTED
    if "trust_remote_code" in str(error):
        return "it brings program code of its own, which is not run"
    return str(error)


@contextlib.contextmanager
def _told(tell: OnLoadStep) -> Iterator[None]:
    """Count the tensors that transformers places; its own bar, which would end up in a log, is not drawn."""

    def hook(make_bar: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return _counted(args[0], tell) if kwargs.get("desc") == _BAR else make_bar(*args, **kwargs)

    tell(LoadStep(READING))
    before = set_tqdm_hook(hook)
    try:
        yield
    finally:
        set_tqdm_hook(before)


def _counted(tensors: Collection[T], tell: OnLoadStep) -> Iterator[T]:
    for number, tensor in enumerate(tensors):
        tell(LoadStep(READING, 100 * number // len(tensors)))
        yield tensor
