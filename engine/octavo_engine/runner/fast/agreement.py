"""Compares the fast path with the general one on the model at hand: structure does not prove a formula."""

import logging

import torch
from transformers import PreTrainedModel

from octavo_engine.batch import Batch
from octavo_engine.params import SamplingParams
from octavo_engine.runner.attention import AttentionBackend
from octavo_engine.runner.fast.forward import forward_rows
from octavo_engine.runner.fast.fused import LARGEST_ERROR
from octavo_engine.runner.fast.weights import FastWeights
from octavo_engine.runner.flash import attend_paged, rows_of
from octavo_engine.runner.kv_cache import KVCache
from octavo_engine.runner.model_runner import forward
from octavo_engine.sequence import Sequence

log = logging.getLogger(__name__)
NUM_TOKENS = 48


@torch.inference_mode()
def check_agreement(model: PreTrainedModel, cache: KVCache, backend: AttentionBackend, w: FastWeights) -> bool:
    """Whether both paths give the same logits for a prompt; it is written to the scratch block."""
    sequence = Sequence("agreement", [i * 37 % len(w.embed) for i in range(NUM_TOKENS)], SamplingParams())
    sequence.block_table = [cache.scratch_block]
    batch = Batch()
    batch.add(sequence, NUM_TOKENS)
    general = forward(model, cache, backend, batch).float()
    rows, device = rows_of(batch, cache.block_size, cache.data.device), cache.data.device
    ids, positions, slots = (
        torch.tensor(values, device=device)
        for values in (batch.token_ids, batch.positions, batch.slots(cache.block_size))
    )
    last = torch.tensor([NUM_TOKENS - 1], device=device)
    fast = forward_rows(
        w,
        cache,
        ids,
        positions,
        slots,
        last,
        lambda q, fresh, pages: attend_paged(q, fresh, pages, rows, softmax_scale=w.scale),
    )
    error = float((fast.float() - general).norm() / general.norm())
    log.info("fast path: relative error %.4f against the general path", error)
    if not error < LARGEST_ERROR:
        log.warning("the fast path is not taken: its logits differ from the general path's by %.3f", error)
    return error < LARGEST_ERROR
