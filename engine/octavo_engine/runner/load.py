"""Loads a model folder into a ready engine: weights, probe, pool, tokenizer."""

import logging
from pathlib import Path

import psutil
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase

from octavo_engine.block_manager import BlockManager
from octavo_engine.config import EngineConfig
from octavo_engine.engine import Engine
from octavo_engine.errors import ModelError
from octavo_engine.loaded import Loaded, ModelInfo
from octavo_engine.runner import routing
from octavo_engine.runner.attention import SDPABackend
from octavo_engine.runner.chat_format import TransformersFormat
from octavo_engine.runner.fingerprint import fingerprint
from octavo_engine.runner.kv_cache import KVCache, KVShape
from octavo_engine.runner.model_runner import TransformersRunner
from octavo_engine.runner.sampler import Sampler
from octavo_engine.scheduler import Scheduler

log = logging.getLogger(__name__)
DEFAULT_CONTEXT = 2048
CPU_POOL_BYTES = 2 << 30


def load_engine(folder: Path, config: EngineConfig | None = None) -> Loaded:
    """Load a folder of safetensors, config and tokenizer. Raises ModelError with the reason and the folder."""
    config = config or EngineConfig()
    device = pick_device()
    model = load_model(folder, pick_dtype(config.dtype, device), device)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    return build_engine(model, tokenizer, config, name=fingerprint(folder))


def build_engine(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, config: EngineConfig, *, name: str
) -> Loaded:
    """An engine around a model in memory; `name` stands for its weights in the fingerprint of its blocks.

    Raises ModelError for a model that would be silently wrong, or whose KV does not fit the memory.
    """
    with torch.inference_mode():
        shape = routing.probe(model)
    max_model_len = pick_context(model, config)
    num_blocks = pick_num_blocks(shape, config, max_model_len, model.device)
    cache = KVCache(shape, num_blocks, config.block_size, model.device)
    backend = SDPABackend(cache)
    routing.set_backend(model, backend)
    chat_format = TransformersFormat(tokenizer)
    sampler = Sampler(tokenizer, model.config.get_text_config().vocab_size, model.device)
    runner = TransformersRunner(model, cache, backend, sampler)
    manager = BlockManager(
        num_blocks,
        config.block_size,
        fingerprint=f"{name} {shape} {config.block_size}",
        enable_prefix_caching=config.enable_prefix_caching,
        max_pinned_share=config.max_pinned_share,
    )
    scheduler = Scheduler(manager, config, max_model_len)
    engine = Engine(scheduler, runner, chat_format.decode, stop_ids(model, tokenizer))
    dtype = str(shape.dtype).removeprefix("torch.")
    info = ModelInfo(model.device.type, backend.name, dtype, config.block_size, max_model_len, shape.bytes_per_token)
    return Loaded(engine, chat_format, info)


def load_model(folder: Path, dtype: torch.dtype, device: torch.device) -> PreTrainedModel:
    """The model with its attention routed to this engine, in evaluation mode on the device."""
    routing.register()
    try:
        model = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, attn_implementation=routing.ATTENTION_NAME)
    except (OSError, ValueError, KeyError, RuntimeError) as error:
        is_unrouted = isinstance(error, KeyError) and routing.ATTENTION_NAME in error.args
        reason = routing.NOT_ROUTED if is_unrouted else str(error)
        raise ModelError(f"the model in {folder} cannot run here: {reason}") from error
    assert isinstance(model, PreTrainedModel)
    torch.nn.Module.to(model, device)
    model.train(False)
    return model


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
    return torch.bfloat16 if device.type != "cuda" or torch.cuda.is_bf16_supported() else torch.float16


def pick_context(model: PreTrainedModel, config: EngineConfig) -> int:
    """The context in tokens: the model's own, or the smaller one that the config asks for."""
    own = getattr(model.config.get_text_config(), "max_position_embeddings", None) or DEFAULT_CONTEXT
    if config.max_model_len and config.max_model_len > own:
        raise ModelError(f"max_model_len is {config.max_model_len}, but the model's context ends at {own} tokens")
    return config.max_model_len or int(own)


def pick_num_blocks(shape: KVShape, config: EngineConfig, max_model_len: int, device: torch.device) -> int:
    """Blocks of the pool: the setting's bytes, or one full context at least and more where memory allows it."""
    block_bytes = shape.bytes_per_token * config.block_size
    wanted = config.kv_cache_memory_bytes or _default_pool_bytes(config, device)
    context_bytes = -(-max_model_len // config.block_size) * block_bytes
    if config.kv_cache_memory_bytes is None:
        wanted = max(wanted, context_bytes)
    if wanted < block_bytes or wanted > _free_bytes(device):
        raise ModelError(
            f"the KV pool would take {wanted} bytes, a block takes {block_bytes} and {_free_bytes(device)} bytes are "
            "free; set kv_cache_memory_bytes or a smaller max_model_len"
        )
    log.info("KV pool: %d bytes, %d blocks of %d tokens", wanted, wanted // block_bytes, config.block_size)
    return wanted // block_bytes


def _default_pool_bytes(config: EngineConfig, device: torch.device) -> int:
    free = _free_bytes(device)
    return int(free * config.gpu_memory_utilization) if device.type == "cuda" else min(CPU_POOL_BYTES, free // 4)


def _free_bytes(device: torch.device) -> int:
    return torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else psutil.virtual_memory().available


def stop_ids(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> list[int]:
    """The end-of-turn tokens: what the generation config lists, and the tokenizer's own."""
    listed = model.generation_config.eos_token_id if model.generation_config else None
    ids = listed if isinstance(listed, list) else [listed]
    return [i for i in {*ids, tokenizer.eos_token_id} if i is not None]
