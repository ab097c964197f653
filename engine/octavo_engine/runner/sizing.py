"""How many tokens a model's context has and how many blocks the KV pool: from the settings and the free memory."""

import logging
from dataclasses import dataclass

import psutil
import torch
from transformers import PreTrainedModel

from octavo_engine.config import EngineConfig
from octavo_engine.errors import MemoryShortError, ModelError
from octavo_engine.runner.kv_cache import KVShape
from octavo_engine.runner.rehearsal import rehearse

log = logging.getLogger(__name__)
DEFAULT_CONTEXT = 2048
CPU_POOL_BYTES = 2 << 30
GRAPH_BYTES = 2 << 30
SAMPLING_BYTES = 16
"""Of one logit: as float32, sorted, with its index."""


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes of a device with the weights on it: all, free, and `room`, what of these the pool may take at most."""

    device: str
    total: int
    free: int
    room: int

    def __str__(self) -> str:
        return f"{self.device} has {size(self.total)}, {size(self.free)} of it free, {size(self.room)} for KV at most"


def pick_context(model: PreTrainedModel, config: EngineConfig) -> int:
    """The context in tokens: the model's own, or the smaller one that the config asks for."""
    own = getattr(model.config.get_text_config(), "max_position_embeddings", None) or DEFAULT_CONTEXT
    if config.max_model_len and config.max_model_len > own:
        raise ModelError(f"max_model_len is {config.max_model_len}, but the model's context ends at {own} tokens")
    return config.max_model_len or int(own)


def measure(
    model: PreTrainedModel, config: EngineConfig, shape: KVShape, max_model_len: int, *, is_flash: bool
) -> Memory:
    """The memory of the model's device now; on a GPU without what runs there and what a step needs besides KV."""
    if model.device.type != "cuda":
        memory = psutil.virtual_memory()
        return Memory(model.device.type, memory.total, memory.available, memory.available)
    assert config.block_size is not None
    assert config.max_num_batched_tokens is not None
    step = rehearse(
        model, shape, config.block_size,
        num_tokens=config.max_num_batched_tokens, max_model_len=max_model_len, is_flash=is_flash,
    )  # fmt: skip
    return gpu_memory(model, config, step)


def gpu_memory(model: PreTrainedModel, config: EngineConfig, step_bytes: int | None) -> Memory:
    """What a GPU has left for KV; `step_bytes` were measured, or are reckoned where that is None."""
    torch.cuda.empty_cache()
    free, total = torch.cuda.mem_get_info(model.device)
    allowed = int(total * config.gpu_memory_utilization) - (total - free)
    step = reckon_step_bytes(model, config) if step_bytes is None else step_bytes
    sampling = config.max_num_seqs * model.config.get_text_config().vocab_size * SAMPLING_BYTES
    how = "reckoned" if step_bytes is None else "measured"
    log.info("a step takes %s (%s), sampling %s, graphs %s", size(step), how, size(sampling), size(GRAPH_BYTES))
    return Memory("cuda", total, free, max(0, allowed - step - sampling - GRAPH_BYTES))


def pick_num_blocks(memory: Memory, shape: KVShape, config: EngineConfig, max_model_len: int) -> int:
    """Blocks of the pool: the setting's bytes, or what the device has left; one full context at least.

    Raises MemoryShortError with the numbers, and the settings that would fit.
    """
    assert config.block_size is not None
    block_bytes = shape.bytes_per_token * config.block_size
    context_bytes = -(-max_model_len // config.block_size) * block_bytes
    wanted = config.kv_cache_memory_bytes or _default_bytes(memory, context_bytes)
    problem = ""
    if wanted > memory.room:
        problem = f"the KV pool needs {size(wanted)}"
    elif wanted < context_bytes:
        problem = f"one context of {max_model_len} tokens needs {size(context_bytes)}, the KV pool has {size(wanted)}"
    if problem:
        fitting = min(wanted, memory.room) // block_bytes * config.block_size
        raise MemoryShortError(f"{problem}; {memory}. {_remedy(config, fitting)}")
    num_blocks = wanted // block_bytes
    log.info(
        "KV pool: %s in %d blocks of %d tokens, room for %.1f contexts of %d tokens; %s",
        size(wanted), num_blocks, config.block_size, wanted / context_bytes, max_model_len, memory,
    )  # fmt: skip
    return num_blocks


def reckon_step_bytes(model: PreTrainedModel, config: EngineConfig) -> int:
    """Memory of the largest step's activations, where it could not be measured."""
    text = model.config.get_text_config()
    assert config.max_num_batched_tokens is not None
    wide = 2 * (getattr(text, "intermediate_size", None) or 4 * text.hidden_size) + 8 * text.hidden_size
    return int(config.max_num_batched_tokens * wide * model.dtype.itemsize * 2)


def size(num_bytes: int) -> str:
    """Bytes for people."""
    return f"{num_bytes / 1e9:.2f} GB" if num_bytes >= 1e9 else f"{num_bytes / 1e6:.2f} MB"


def _default_bytes(memory: Memory, context_bytes: int) -> int:
    """All that a GPU has left; on the CPU, which has other uses, two GiB, a quarter, or one context."""
    return memory.room if memory.device == "cuda" else max(min(CPU_POOL_BYTES, memory.room // 4), context_bytes)


def _remedy(config: EngineConfig, fitting: int) -> str:
    asked = "raise kv_cache_memory_bytes" if config.kv_cache_memory_bytes else "free some memory"
    if fitting < 1:
        return f"Not one block fits: {asked}, or take a smaller model"
    return f"Set max_model_len to {fitting} or less, or {asked}"
