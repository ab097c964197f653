"""Loads a model folder into a ready engine: weights, probe, pool, tokenizer."""

import logging
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase

from octavo_engine.block_manager import BlockManager
from octavo_engine.config import DEFAULT_BLOCK_SIZE, EngineConfig
from octavo_engine.engine import Engine
from octavo_engine.errors import ModelError
from octavo_engine.loaded import Loaded, ModelInfo
from octavo_engine.runner import flash, routing
from octavo_engine.runner.attention import AttentionBackend, SDPABackend
from octavo_engine.runner.chat_format import TransformersFormat
from octavo_engine.runner.fingerprint import fingerprint
from octavo_engine.runner.kv_cache import KVCache, KVShape
from octavo_engine.runner.model_runner import TransformersRunner
from octavo_engine.runner.sampler import Sampler
from octavo_engine.scheduler import Scheduler

if TYPE_CHECKING:
    from octavo_engine.runner.fast.fast_runner import FastRunner
    from octavo_engine.runner.fast.weights import FastWeights

log = logging.getLogger(__name__)
DEFAULT_CONTEXT = 2048
CPU_POOL_BYTES = 2 << 30
GRAPH_BYTES = 2 << 30
BATCHED_TOKENS = {"cuda": 8192, "cpu": 256}


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
        probe = routing.probe(model)
    shape, max_model_len = probe.shape, pick_context(model, config)
    config, is_flash = settle(config, shape, model.device)
    assert config.block_size is not None
    assert config.max_num_batched_tokens is not None
    weights = find_fast_weights(model, probe, max_model_len) if is_flash else None
    num_blocks = pick_num_blocks(model, shape, config, max_model_len)
    cache = KVCache(shape, num_blocks, config.block_size, model.device)
    backend = make_backend(cache, is_flash)
    routing.set_backend(model, backend)
    sampler = Sampler(tokenizer, model.config.get_text_config().vocab_size, model.device)
    runner = make_runner(model, cache, backend, sampler, weights, max_model_len, config.max_num_batched_tokens)
    manager = BlockManager(
        num_blocks,
        config.block_size,
        fingerprint=f"{name} {shape} {config.block_size}",
        enable_prefix_caching=config.enable_prefix_caching,
        max_pinned_share=config.max_pinned_share,
    )
    steps = config.num_decode_steps or runner.num_decode_steps
    scheduler = Scheduler(manager, replace(config, num_decode_steps=steps), max_model_len)
    chat_format = TransformersFormat(tokenizer)
    engine = Engine(scheduler, runner, chat_format.decode, stop_ids(model, tokenizer))
    dtype = str(shape.dtype).removeprefix("torch.")
    info = ModelInfo(model.device.type, backend.name, dtype, config.block_size, max_model_len, shape.bytes_per_token)
    return Loaded(engine, chat_format, info)


def settle(config: EngineConfig, shape: KVShape, device: torch.device) -> tuple[EngineConfig, bool]:
    """Fill in what depends on the device, and whether flash-attn serves. Raises ModelError when it must but cannot."""
    reason = flash.why_not_flash(shape, device, config.block_size or flash.FLASH_BLOCK_SIZE)
    if config.attention == "flash" and reason:
        raise ModelError(f"attention is set to flash, but {reason}")
    is_flash = config.attention != "sdpa" and not reason
    if reason and device.type == "cuda":
        log.warning("attention: sdpa, because %s", reason)
    block_size = config.block_size or (flash.FLASH_BLOCK_SIZE if is_flash else DEFAULT_BLOCK_SIZE)
    tokens = config.max_num_batched_tokens or max(BATCHED_TOKENS.get(device.type, 256), config.max_num_seqs)
    return replace(config, block_size=block_size, max_num_batched_tokens=tokens), is_flash


def make_backend(cache: KVCache, is_flash: bool) -> AttentionBackend:
    """The attention of the general path."""
    return flash.FlashBackend(cache) if is_flash else SDPABackend(cache)


def find_fast_weights(model: PreTrainedModel, probe: routing.Probe, max_model_len: int) -> "FastWeights | None":
    """The merged weights of a model of Llama's structure; None, with the reason in the log, for any other."""
    from octavo_engine.runner.fast.weights import NotFastError, merge_weights

    try:
        return merge_weights(model, probe.specs, max_model_len)
    except NotFastError as error:
        log.info("%s takes the general path: %s", type(model).__name__, error)
        return None


def make_runner(
    model: PreTrainedModel,
    cache: KVCache,
    backend: AttentionBackend,
    sampler: Sampler,
    weights: "FastWeights | None",
    max_model_len: int,
    max_num_batched_tokens: int,
) -> "TransformersRunner | FastRunner":
    """The fast path where it gives what the general one gives, else the general one."""
    general = TransformersRunner(model, cache, backend, sampler)
    if weights is None:
        return general
    from octavo_engine.runner.fast.agreement import check_agreement
    from octavo_engine.runner.fast.fast_runner import FastRunner

    if not check_agreement(model, cache, backend, weights):
        return general
    runner = FastRunner(weights, cache, sampler, max_model_len)
    runner.warm_up(max_num_batched_tokens)
    return runner


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


def pick_num_blocks(model: PreTrainedModel, shape: KVShape, config: EngineConfig, max_model_len: int) -> int:
    """Blocks of the pool: the setting's bytes, or what the device has left, one full context at least.

    Raises ModelError with the numbers in bytes.
    """
    assert config.block_size is not None
    block_bytes = shape.bytes_per_token * config.block_size
    free = _free_bytes(model, config)
    context_bytes = -(-max_model_len // config.block_size) * block_bytes
    wanted = config.kv_cache_memory_bytes
    if wanted is None:
        wanted = free if model.device.type == "cuda" else max(min(CPU_POOL_BYTES, free // 4), context_bytes)
        if wanted < context_bytes:
            wanted = free + 1  # refused below, with the numbers
    if wanted < block_bytes or wanted > free:
        raise ModelError(
            f"the KV pool does not fit: one context of {max_model_len} tokens takes {context_bytes} bytes, a block "
            f"{block_bytes}, and {free} bytes are free; set kv_cache_memory_bytes or a smaller max_model_len"
        )
    log.info("KV pool: %d bytes, %d blocks of %d tokens", wanted, wanted // block_bytes, config.block_size)
    return wanted // block_bytes


def _free_bytes(model: PreTrainedModel, config: EngineConfig) -> int:
    """What the pool may take: on a GPU the share that is allowed, less what runs there and what a step needs."""
    if model.device.type != "cuda":
        return psutil.virtual_memory().available
    torch.cuda.empty_cache()
    free, total = torch.cuda.mem_get_info(model.device)
    allowed = int(total * config.gpu_memory_utilization) - (total - free)
    return allowed - _step_bytes(model, config)


def _step_bytes(model: PreTrainedModel, config: EngineConfig) -> int:
    """Memory of the largest step's activations, of sampling the largest batch, and of CUDA graphs."""
    text = model.config.get_text_config()
    assert config.max_num_batched_tokens is not None
    wide = 2 * (getattr(text, "intermediate_size", None) or 4 * text.hidden_size) + 8 * text.hidden_size
    activations = config.max_num_batched_tokens * wide * model.dtype.itemsize * 2
    return int(activations + config.max_num_seqs * text.vocab_size * 16 + GRAPH_BYTES)


def stop_ids(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> list[int]:
    """The end-of-turn tokens: what the generation config lists, and the tokenizer's own."""
    listed = model.generation_config.eos_token_id if model.generation_config else None
    ids = listed if isinstance(listed, list) else [listed]
    return [i for i in {*ids, tokenizer.eos_token_id} if i is not None]
