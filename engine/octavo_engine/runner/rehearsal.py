"""Runs the largest step once before the KV pool is made, to learn what a step takes of a GPU besides KV."""

import logging

import torch
from transformers import PreTrainedModel

from octavo_engine.batch import Batch
from octavo_engine.params import SamplingParams
from octavo_engine.runner import routing
from octavo_engine.runner.attention import AttentionBackend, SDPABackend
from octavo_engine.runner.flash import FlashBackend
from octavo_engine.runner.kv_cache import KVCache, KVShape
from octavo_engine.runner.model_runner import forward
from octavo_engine.sequence import Sequence

log = logging.getLogger(__name__)


def make_backend(cache: KVCache, is_flash: bool) -> AttentionBackend:
    """The attention of the general path."""
    return FlashBackend(cache) if is_flash else SDPABackend(cache)


def rehearse(
    model: PreTrainedModel, shape: KVShape, block_size: int, *, num_tokens: int, max_model_len: int, is_flash: bool
) -> int | None:
    """Bytes that a step of `num_tokens` of prompts takes at its peak, beyond weights and KV; None where it is too much.

    It runs on the general path, which takes at least what the fast one takes, over a cache that is dropped again.
    """
    try:
        return _peak_bytes(model, shape, block_size, num_tokens, max_model_len, is_flash)
    except torch.OutOfMemoryError as error:
        log.warning("a step of %d tokens does not fit beside a cache for it: %s", num_tokens, error)
        return None
    finally:
        routing.set_backend(model, routing.ProbeBackend())  # or the model would keep the cache in memory


@torch.inference_mode()
def _peak_bytes(
    model: PreTrainedModel, shape: KVShape, block_size: int, num_tokens: int, max_model_len: int, is_flash: bool
) -> int:
    batch, num_blocks = largest_batch(num_tokens, max_model_len, block_size)
    cache = KVCache(shape, num_blocks, block_size, model.device)
    backend = make_backend(cache, is_flash)
    routing.set_backend(model, backend)
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats(model.device)
    before = torch.cuda.memory_reserved(model.device)
    forward(model, cache, backend, batch)
    torch.cuda.synchronize(model.device)
    return torch.cuda.max_memory_reserved(model.device) - before


def largest_batch(num_tokens: int, max_model_len: int, block_size: int) -> tuple[Batch, int]:
    """As few new prompts as hold `num_tokens` together, and the blocks that they take."""
    batch, num_blocks, left = Batch(), 0, num_tokens
    while left:
        length = min(left, max_model_len)
        sequence = Sequence("rehearsal", [0] * length, SamplingParams())
        sequence.block_table = list(range(num_blocks, num_blocks + -(-length // block_size)))
        batch.add(sequence, length)
        num_blocks += len(sequence.block_table)
        left -= length
    return batch, num_blocks
