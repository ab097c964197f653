"""Loads a model folder into a ready engine: weights, probe, pool, tokenizer."""

import logging
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from transformers import AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase

from octavo_engine.block_manager import BlockManager
from octavo_engine.config import EngineConfig
from octavo_engine.engine import Engine
from octavo_engine.loaded import Loaded, LoadStep, ModelInfo, OnLoadStep, ignore_step
from octavo_engine.runner import routing
from octavo_engine.runner.attention import AttentionBackend
from octavo_engine.runner.block_bytes import BlockBytes
from octavo_engine.runner.chat_format import TransformersFormat
from octavo_engine.runner.choice import (
    AttentionChoice,
    pick_attention,
    pick_device,
    pick_dtype,
    pick_fast_weights,
    settle,
)
from octavo_engine.runner.fast.weights import NotFastError
from octavo_engine.runner.fingerprint import fingerprint
from octavo_engine.runner.kv_cache import KVCache, KVShape
from octavo_engine.runner.model_runner import TransformersRunner
from octavo_engine.runner.reading import load_model
from octavo_engine.runner.rehearsal import make_backend
from octavo_engine.runner.sampler import Sampler
from octavo_engine.runner.sizing import measure, pick_context, pick_num_blocks
from octavo_engine.scheduler import Scheduler

if TYPE_CHECKING:
    from octavo_engine.runner.fast.fast_runner import FastRunner
    from octavo_engine.runner.fast.weights import FastWeights

log = logging.getLogger(__name__)


def load_engine(folder: Path, config: EngineConfig | None = None, tell: OnLoadStep = ignore_step) -> Loaded:
    """Load a folder of safetensors, config and tokenizer; `tell` hears what is being done, in this thread.

    Raises ModelError with the reason and the folder.
    """
    config = config or EngineConfig()
    device = pick_device()
    model = load_model(folder, pick_dtype(config.dtype, device), device, tell)
    tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
    return build_engine(model, tokenizer, config, name=fingerprint(folder), tell=tell)


def build_engine(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    config: EngineConfig,
    *,
    name: str,
    tell: OnLoadStep = ignore_step,
) -> Loaded:
    """An engine around a model in memory; `name` stands for its weights in the fingerprint of its blocks.

    Raises ModelError for a model that would be silently wrong, or whose KV does not fit the memory.
    """
    tell(LoadStep("checking the attention"))
    with torch.inference_mode():
        probe = routing.probe(model)
    shape, max_model_len = probe.shape, pick_context(model, config)
    attention = pick_attention(config, shape, model.device)
    config, is_flash = settle(config, attention, model.device), attention.name == "flash"
    assert config.block_size is not None
    assert config.max_num_batched_tokens is not None
    weights = find_fast_weights(model, probe, max_model_len, attention)
    if model.device.type == "cuda":
        tell(LoadStep("measuring the largest step"))
    memory = measure(model, config, shape, max_model_len, is_flash=is_flash)
    num_blocks = pick_num_blocks(memory, shape, config, max_model_len)
    cache = KVCache(shape, num_blocks, config.block_size, model.device)
    backend = make_backend(cache, is_flash)
    routing.set_backend(model, backend)
    sampler = Sampler(tokenizer, model.config.get_text_config().vocab_size, model.device)
    runner = make_runner(model, cache, backend, sampler, weights, max_model_len, config.max_num_batched_tokens, tell)
    manager = BlockManager(
        num_blocks,
        config.block_size,
        fingerprint=f"{name} {shape} {config.block_size}",
        enable_prefix_caching=config.enable_prefix_caching,
        max_pinned_share=config.max_pinned_share,
    )
    steps = min(config.num_decode_steps or runner.num_decode_steps, runner.max_decode_steps)
    scheduler = Scheduler(manager, replace(config, num_decode_steps=steps), max_model_len)
    chat_format = TransformersFormat(tokenizer)
    engine = Engine(scheduler, runner, chat_format.decode, stop_ids(model, tokenizer))
    info = describe(model, shape, backend.name, config.block_size, max_model_len, steps)
    return Loaded(engine, chat_format, info, BlockBytes(cache))


def describe(
    model: PreTrainedModel, shape: KVShape, attention: str, block_size: int, max_model_len: int, num_decode_steps: int
) -> ModelInfo:
    """What a loaded model runs with."""
    return ModelInfo(
        device=model.device.type,
        attention=attention,
        dtype=str(shape.dtype).removeprefix("torch."),
        block_size=block_size,
        max_model_len=max_model_len,
        kv_bytes_per_token=shape.bytes_per_token,
        weight_bytes=weight_bytes(model),
        num_decode_steps=num_decode_steps,
    )


def find_fast_weights(
    model: PreTrainedModel, probe: routing.Probe, max_model_len: int, attention: AttentionChoice
) -> "FastWeights | None":
    """The merged weights of a model of Llama's structure; None, with the reason in the log, for any other."""
    try:
        return pick_fast_weights(model, probe, max_model_len, attention)
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
    tell: OnLoadStep,
) -> "TransformersRunner | FastRunner":
    """The fast path where it gives what the general one gives, else the general one."""
    general = TransformersRunner(model, cache, backend, sampler)
    if weights is None:
        return general
    from octavo_engine.runner.fast.agreement import check_agreement
    from octavo_engine.runner.fast.fast_runner import FastRunner

    tell(LoadStep("checking the fast path"))
    if not check_agreement(model, cache, backend, weights):
        return general
    runner = FastRunner(weights, cache, sampler, max_model_len)
    tell(LoadStep("capturing CUDA graphs"))
    runner.warm_up(max_num_batched_tokens)
    return runner


def weight_bytes(model: PreTrainedModel) -> int:
    """Bytes of the weights that every step reads: not those of embeddings that are no head as well."""
    readers = [module for module in model.modules() if not isinstance(module, torch.nn.Embedding)]
    return sum(
        weight.nbytes for weight in {weight for module in readers for weight in module.parameters(recurse=False)}
    )


def stop_ids(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> list[int]:
    """The end-of-turn tokens: what the generation config lists, and the tokenizer's own."""
    listed = model.generation_config.eos_token_id if model.generation_config else None
    ids = listed if isinstance(listed, list) else [listed]
    return [i for i in {*ids, tokenizer.eos_token_id} if i is not None]
