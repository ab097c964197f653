"""The checks that ask the engine: device, dtype, attention, the fast path, and whether the model fits."""

import shutil
from dataclasses import dataclass
from pathlib import Path

import torch

from octavo.doctor.findings import Finding, State
from octavo_engine.config import EngineConfig
from octavo_engine.errors import EngineError, ModelError
from octavo_engine.runner.choice import AttentionChoice, pick_device, pick_dtype
from octavo_engine.runner.forecast import Device, Forecast, UnknownError, attention_of_most, forecast, look_at


@dataclass(frozen=True, slots=True)
class Outlook:
    """What the engine would do here; without `forecast`, `problem` says why nothing is known of the model."""

    device: Device
    dtype: str
    is_dtype_set: bool
    attention: AttentionChoice | None
    forecast: Forecast | None
    problem: str = ""
    is_refused: bool = False


def look_ahead(folder: Path | None, config: EngineConfig) -> Outlook:
    """Ask the engine what it would choose for the model in `folder`, or for most models where there is none."""
    device, found, problem, is_refused = pick_device(), None, "", False
    try:
        found = forecast(folder, config, device) if folder else None
    except UnknownError:
        problem = "only loading the model can tell"
    except ModelError as error:
        problem, is_refused = str(error), True
    try:
        attention = found.attention if found else attention_of_most(config, device)
    except EngineError as error:
        attention, problem, is_refused = None, str(error), True
    dtype = str(pick_dtype(config.dtype, device)).removeprefix("torch.")
    return Outlook(look_at(device), dtype, config.dtype != "auto", attention, found, problem, is_refused)


def check_device(outlook: Outlook) -> Finding:
    """Where models run, and its memory."""
    device = outlook.device
    text = f"{device.kind}: {device.name}, {_gb(device.total_bytes)} of memory, {_gb(device.free_bytes)} free"
    if device.kind == "cpu" and (Path("/proc/driver/nvidia").exists() or shutil.which("nvidia-smi")):
        text += f"; there is an NVIDIA GPU, which torch {torch.__version__} does not see"
        return Finding(
            "device", State.HINT, text, "Install the torch for CUDA: https://pytorch.org/get-started/locally"
        )
    if device.kind == "mps":
        return Finding("device", State.HINT, f"{text}; Octavo was never tried on it")
    return Finding("device", State.OK, text)


def check_dtype(outlook: Outlook) -> Finding:
    """What models are computed in."""
    why = "as the setting dtype says" if outlook.is_dtype_set else f"the best that {outlook.device.kind} has"
    return Finding("dtype", State.OK, f"{outlook.dtype} for weights, KV and products, {why}")


def check_attention(outlook: Outlook) -> Finding:
    """The engine's own choice and reason."""
    choice = outlook.attention
    if choice is None:
        return Finding("attention", State.WRONG, outlook.problem)
    state = State.HINT if choice.is_slow else State.OK
    return Finding("attention", state, f"{choice.name}, because {choice.reason}", choice.remedy)


def check_path(outlook: Outlook) -> Finding:
    """Whether the model takes the fast path."""
    found = outlook.forecast
    if outlook.is_refused:
        return Finding("path", State.WRONG, outlook.problem)
    if found is None:
        return Finding("path", State.OK, f"general or fast: {outlook.problem or 'there is no model to look at'}")
    if found.general_path:
        return Finding("path", State.OK, f"general for {found.architecture}: {found.general_path}")
    return Finding("path", State.OK, f"fast for {found.architecture}, if its numbers agree when it is loaded")


def check_memory(outlook: Outlook) -> Finding:
    """Whether the weights and one full context fit what is free now."""
    found = outlook.forecast
    if found is None:
        return Finding("memory", State.OK, f"not known: {outlook.problem or 'there is no model to look at'}")
    text = (
        f"weights take {_gb(found.weight_bytes)}, one context of {found.max_model_len:,} tokens "
        f"{_gb(found.context_bytes)}; {_gb(outlook.device.free_bytes)} are free"
    )
    if found.weight_bytes + found.context_bytes <= outlook.device.free_bytes:
        return Finding("memory", State.OK, text)
    return Finding(
        "memory", State.HINT, text, "Set a smaller max_model_len, free some memory, or take a smaller model."
    )


def _gb(num_bytes: int) -> str:
    return f"{num_bytes / 1e9:.1f} GB"
