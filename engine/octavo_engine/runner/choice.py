"""Which device, dtype and attention serve a model, and why; `octavo doctor` tells the same reasons as the log."""

import logging
from dataclasses import dataclass, replace

import torch
from transformers import PreTrainedModel

from octavo_engine.config import DEFAULT_BLOCK_SIZE, EngineConfig
from octavo_engine.errors import ModelError
from octavo_engine.runner.fast.weights import FastWeights, NotFastError, merge_weights
from octavo_engine.runner.flash import FLASH_BLOCK_SIZE, why_not_flash
from octavo_engine.runner.kv_cache import KVShape
from octavo_engine.runner.routing import Probe

log = logging.getLogger(__name__)
BATCHED_TOKENS = {"cuda": 8192, "cpu": 256}


@dataclass(frozen=True, slots=True)
class AttentionChoice:
    """`name` is "flash" or "sdpa"; `is_slow` says that this device has a faster one, whose lack `remedy` ends."""

    name: str
    reason: str
    is_slow: bool = False
    remedy: str = ""


def pick_device() -> torch.device:
    """CUDA, then MPS (untried), then the CPU."""
    if torch.cuda.is_available():
        return torch.device("cuda")
    return torch.device("mps" if torch.backends.mps.is_available() else "cpu")


def pick_dtype(name: str, device: torch.device) -> torch.dtype:
    """The dtype of a name; "auto" is float32 on the CPU, else bfloat16 where the device has it, else float16."""
    if name != "auto":
        dtype: torch.dtype = getattr(torch, name)
        return dtype
    if device.type == "cpu":
        return torch.float32
    # torch would emulate it on an older GPU, at a fraction of the speed
    has_bfloat16 = device.type != "cuda" or torch.cuda.is_bf16_supported(including_emulation=False)
    return torch.bfloat16 if has_bfloat16 else torch.float16


def pick_attention(config: EngineConfig, shape: KVShape, device: torch.device) -> AttentionChoice:
    """The attention of the setting, or the fastest that fits. Raises ModelError when the setting asks for too much."""
    if config.attention == "sdpa":
        return AttentionChoice("sdpa", "the setting attention says so")
    obstacle = why_not_flash(shape, device, config.block_size or FLASH_BLOCK_SIZE)
    if obstacle is None:
        return AttentionChoice("flash", "flash-attn takes this device, dtype and head size")
    if config.attention == "flash":
        remedy = 'with attention = "auto" the engine takes what fits'
        remedy = f"{obstacle.remedy}; or {remedy}" if obstacle.remedy else remedy
        raise ModelError(f"attention is set to flash, but {obstacle.reason}: {remedy}")
    return AttentionChoice("sdpa", obstacle.reason, is_slow=device.type == "cuda", remedy=obstacle.remedy)


def pick_fast_weights(
    model: PreTrainedModel, probe: Probe, max_model_len: int, attention: AttentionChoice
) -> FastWeights:
    """The merged weights of the fast path. Raises NotFastError with the reason why the model takes the general one."""
    if attention.name != "flash":
        raise NotFastError(f"the fast path is built on flash-attn, and attention is {attention.name}")
    return merge_weights(model, probe.specs, max_model_len)


def settle(config: EngineConfig, attention: AttentionChoice, device: torch.device) -> EngineConfig:
    """Fill in what depends on the device and its attention, and log why it is this attention."""
    level = logging.WARNING if attention.is_slow else logging.INFO
    remedy = f" ({attention.remedy})" if attention.remedy else ""
    log.log(level, "attention: %s, because %s%s", attention.name, attention.reason, remedy)
    block_size = config.block_size or (FLASH_BLOCK_SIZE if attention.name == "flash" else DEFAULT_BLOCK_SIZE)
    tokens = config.max_num_batched_tokens or max(BATCHED_TOKENS.get(device.type, 256), config.max_num_seqs)
    return replace(config, block_size=block_size, max_num_batched_tokens=tokens)
