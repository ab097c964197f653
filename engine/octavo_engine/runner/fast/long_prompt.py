"""Prompts of thousands of tokens of which nothing is cached: attention by cuDNN, in half of flash-attn 2's time.

cuDNN plans for each length anew, some 70 ms, so lengths go up in steps that are planned at the start; the tokens that
fill a step up come last, where a causal mask hides them from all others.
"""

import logging

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import pad, scaled_dot_product_attention

from octavo_engine.batch import Batch
from octavo_engine.runner.fast.forward import Pair, forward_rows
from octavo_engine.runner.fast.weights import FastWeights
from octavo_engine.runner.kv_cache import KVCache
from octavo_engine.runner.model_runner import sampling_rows
from octavo_engine.runner.transfer import upload

log = logging.getLogger(__name__)
STEP = 1024
LEAST = 2 * STEP
"""So many tokens and less have a graph."""


class LongPrompt:
    """Runs one cold row of more than LEAST tokens, up to the length that was planned for."""

    def __init__(self, weights: FastWeights, cache: KVCache) -> None:
        self._weights, self._cache = weights, cache
        self._most_tokens = 0
        self._positions = torch.arange(len(weights.cos), dtype=torch.int32, device=cache.data.device)

    @torch.inference_mode()
    @sdpa_kernel(SDPBackend.CUDNN_ATTENTION)
    def warm_up(self, most_tokens: int) -> None:
        """Plan for lengths up to `most_tokens`; where cuDNN cannot, prompts take the common way."""
        w = self._weights
        try:
            for size in range(LEAST + STEP, most_tokens + 1, STEP):
                heads = w.num_heads + 2 * w.num_kv_heads
                qkv = torch.zeros(size, heads, w.head_dim, dtype=w.qkv.dtype, device=w.qkv.device)
                q, k, v = torch.split(qkv, [w.num_heads, w.num_kv_heads, w.num_kv_heads], 1)
                self._attend(q, (k, v), (k, v))
                self._most_tokens = size
        except RuntimeError as error:
            log.info("long prompts go without cuDNN: %s", str(error).partition("\n")[0])

    def can_take(self, batch: Batch) -> bool:
        """Whether the batch is one cold row of a length that this is for."""
        is_cold = len(batch.sequences) == 1 and batch.context_lens == batch.query_lens
        return is_cold and LEAST < batch.num_tokens <= self._most_tokens

    @sdpa_kernel(SDPBackend.CUDNN_ATTENTION)
    def __call__(self, batch: Batch) -> torch.Tensor:
        """The logits of the row's last token, (1, vocabulary)."""
        cache, num_tokens, fill = self._cache, batch.num_tokens, -batch.num_tokens % STEP
        table = batch.sequences[0].block_table[: -(-num_tokens // cache.block_size)]
        parts = [*batch.token_ids, *[0] * fill], sampling_rows(batch) or [0], table
        ids, last, blocks = upload(parts, cache.data.device)
        slots = self._slots(blocks, num_tokens, fill)
        return forward_rows(self._weights, cache, ids, self._positions[: len(ids)], slots, last, self._attend)

    def _slots(self, blocks: torch.Tensor, num_tokens: int, fill: int) -> torch.Tensor:
        """Where the KV of each token goes, (tokens + fill,); reckoned on the device, sooner than sent there."""
        page = self._cache.block_size
        slots = torch.add(self._positions[:page], blocks[:, None], alpha=page).view(-1)[:num_tokens]
        return pad(slots, (0, fill), value=self._cache.scratch_block * page) if fill else slots

    def _attend(self, q: torch.Tensor, fresh: Pair, pages: Pair) -> torch.Tensor:
        query, key, value = (tensor.transpose(0, 1)[None] for tensor in (q, *fresh))
        out = scaled_dot_product_attention(
            query, key, value, is_causal=True, scale=self._weights.scale,
            enable_gqa=self._weights.num_heads != self._weights.num_kv_heads,
        )  # fmt: skip
        return out[0].transpose(0, 1)
