"""What loading a model would choose on this machine, found from its config alone: no weight is read."""

from dataclasses import dataclass
from pathlib import Path

import psutil
import torch
from transformers import AutoConfig, AutoModelForCausalLM, PretrainedConfig, PreTrainedModel

from octavo_engine.config import EngineConfig
from octavo_engine.errors import ModelError
from octavo_engine.runner import routing
from octavo_engine.runner.choice import AttentionChoice, pick_attention, pick_dtype, pick_fast_weights
from octavo_engine.runner.fast.weights import NotFastError
from octavo_engine.runner.kv_cache import KVShape
from octavo_engine.runner.reading import reason_of
from octavo_engine.runner.sizing import pick_context


@dataclass(frozen=True, slots=True)
class Device:
    """Where a model would run, and its memory in bytes."""

    kind: str
    name: str
    total_bytes: int
    free_bytes: int


@dataclass(frozen=True, slots=True)
class Forecast:
    """`general_path` says why the fast path is not taken; "" where it will be tried, and checked by its numbers."""

    architecture: str
    attention: AttentionChoice
    general_path: str
    weight_bytes: int
    max_model_len: int
    context_bytes: int


class UnknownError(Exception):
    """Only loading the model can tell; nothing need be wrong with it."""


def look_at(device: torch.device) -> Device:
    """The device as it is now."""
    if device.type == "cuda":
        free, total = torch.cuda.mem_get_info(device)
        return Device("cuda", torch.cuda.get_device_name(device), total, free)
    memory = psutil.virtual_memory()
    return Device(device.type, f"{psutil.cpu_count()} cores", memory.total, memory.available)


def attention_of_most(config: EngineConfig, device: torch.device) -> AttentionChoice:
    """What a model with the usual heads would get, where none is here to look at. Raises ModelError."""
    shape = KVShape(num_layers=1, num_kv_heads=1, head_dim=64, dtype=pick_dtype(config.dtype, device))
    return pick_attention(config, shape, device)


def forecast(folder: Path, config: EngineConfig, device: torch.device) -> Forecast:
    """Look at a model's folder. Raises ModelError for a model that will be refused, UnknownError."""
    try:
        model_config = AutoConfig.from_pretrained(folder, trust_remote_code=False)
    except (OSError, ValueError, KeyError) as error:
        raise ModelError(f"{folder}/config.json cannot be used: {reason_of(error)}") from error
    return forecast_config(model_config, config, device)


def forecast_config(model_config: PretrainedConfig, config: EngineConfig, device: torch.device) -> Forecast:
    """See `forecast`. The model is made and probed without memory, on torch's meta device."""
    model = _without_weights(model_config, pick_dtype(config.dtype, device))
    found, context = _probe(model), pick_context(model, config)
    attention = pick_attention(config, found.shape, device)
    return Forecast(
        architecture=type(model).__name__,
        attention=attention,
        general_path=_why_general(model, found, context, attention),
        weight_bytes=sum(parameter.nbytes for parameter in model.parameters()),
        max_model_len=context,
        context_bytes=context * found.shape.bytes_per_token,
    )


def _without_weights(model_config: PretrainedConfig, dtype: torch.dtype) -> PreTrainedModel:
    routing.register()
    try:
        with torch.device("meta"):
            model = AutoModelForCausalLM.from_config(  # type: ignore[no-untyped-call]
                model_config, dtype=dtype, attn_implementation=routing.ATTENTION_NAME
            )
    except (ValueError, KeyError) as error:
        raise ModelError(reason_of(error)) from error
    except Exception as error:  # a border: an architecture that cannot be made without memory
        raise UnknownError(str(error)) from error
    assert isinstance(model, PreTrainedModel)
    model.train(False)
    return model


def _probe(model: PreTrainedModel) -> routing.Probe:
    try:
        with torch.inference_mode():
            return routing.probe(model)
    except ModelError as error:
        if error.__cause__ is None or isinstance(error.__cause__, ModelError):
            raise
        raise UnknownError(str(error)) from error  # perhaps it only needs values, which are not here


def _why_general(model: PreTrainedModel, found: routing.Probe, context: int, attention: AttentionChoice) -> str:
    try:
        pick_fast_weights(model, found, context, attention)
    except NotFastError as error:
        return str(error)
    return ""
