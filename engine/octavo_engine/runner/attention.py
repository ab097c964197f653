"""Attention over the paged cache: the protocol of a backend, and the reference in plain torch (SDPA)."""

from dataclasses import dataclass
from typing import Protocol

import torch
import torch.nn.functional as functional

from octavo_engine.batch import Batch
from octavo_engine.runner.kv_cache import KVCache


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionSpec:
    """What a model's layer asks of attention, as transformers hands it over.

    scale: factor on the scores. softcap: scores become softcap * tanh(scores / softcap). sliding_window: a token sees
    itself and the `sliding_window - 1` before it.
    """

    layer: int
    scale: float
    softcap: float | None = None
    sliding_window: int | None = None


class AttentionBackend(Protocol):
    """Reads and writes the KV blocks of one batch."""

    name: str

    def begin(self, batch: Batch) -> None:
        """Prepare what all layers of this batch need: block tables, slots, masks."""
        ...

    def attend(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, spec: AttentionSpec) -> torch.Tensor:
        """Write k and v, (T, kv heads, dim), into the batch's slots and attend q, (T, heads, dim), over the tables.

        Returns (T, heads, dim).
        """
        ...


@dataclass(slots=True)
class RowGroup:
    """Rows that run in one call: they compute equally many tokens, over tables padded to one length.

    rows of q: `tokens`, (rows * query length,) flat indices. `blocks`, (rows, table width). `distance`, (rows, query
    length, context): how far each key lies behind each query, negative in the future and in the padding. `stale`,
    (rows, positions): slots past the end of their row, which may hold anything.
    """

    num_rows: int
    tokens: slice
    blocks: torch.Tensor
    distance: torch.Tensor
    stale: tuple[torch.Tensor, ...]


class SDPABackend:
    """Gathered reads and slot-mapped writes with torch alone: the reference for every device."""

    name = "sdpa"

    def __init__(self, cache: KVCache) -> None:
        self._cache = cache
        self._device = cache.data.device
        self._groups: list[RowGroup] = []
        self._masks: dict[tuple[int, int | None], torch.Tensor] = {}

    def begin(self, batch: Batch) -> None:
        slots = torch.tensor(batch.slots(self._cache.block_size), device=self._device)  # (T,)
        self._blocks, self._offsets = slots // self._cache.block_size, slots % self._cache.block_size
        self._masks = {}
        self._groups = []
        num_decodes = batch.num_decodes
        if num_decodes:
            self._groups.append(self._group(batch, 0, num_decodes, 0))
        start = num_decodes
        for row in range(num_decodes, len(batch.sequences)):
            self._groups.append(self._group(batch, row, row + 1, start))
            start += batch.query_lens[row]

    def attend(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, spec: AttentionSpec) -> torch.Tensor:
        keys, values = self._cache.layer(spec.layer)
        keys[self._blocks, self._offsets] = k
        values[self._blocks, self._offsets] = v
        out = torch.empty_like(q)
        for number, group in enumerate(self._groups):
            rows = q[group.tokens].view(group.num_rows, -1, *q.shape[1:]).transpose(1, 2)  # (rows, heads, n, dim)
            gathered_k, gathered_v = _gather(keys, group), _gather(values, group)
            mask = self._mask(number, spec.sliding_window)
            out[group.tokens] = (
                scores_times_values(rows, gathered_k, gathered_v, mask, spec).transpose(1, 2).flatten(0, 1)
            )
        return out

    def _group(self, batch: Batch, first: int, last: int, start: int) -> RowGroup:
        size, length = self._cache.block_size, batch.query_lens[first]
        contexts = batch.context_lens[first:last]
        width = -(-max(contexts) // size)
        tables = [s.block_table[:width] for s in batch.sequences[first:last]]
        blocks = torch.tensor([table + [0] * (width - len(table)) for table in tables], device=self._device)
        ends = torch.tensor(contexts, device=self._device)  # (rows,)
        queries = ends[:, None] - length + torch.arange(length, device=self._device)  # (rows, n) positions
        distance = queries[:, :, None] - torch.arange(width * size, device=self._device)  # (rows, n, context)
        stale = (distance[:, -1] < 0).nonzero(as_tuple=True)
        return RowGroup(last - first, slice(start, start + (last - first) * length), blocks, distance, stale)

    def _mask(self, number: int, sliding_window: int | None) -> torch.Tensor:
        """(rows, 1, n, context), true where a query sees a key; made once a batch for each kind of layer."""
        key = (number, sliding_window)
        if key not in self._masks:
            distance = self._groups[number].distance
            mask = distance >= 0
            self._masks[key] = (mask if sliding_window is None else mask & (distance < sliding_window))[:, None]
        return self._masks[key]


def _gather(pages: torch.Tensor, group: RowGroup) -> torch.Tensor:
    """One layer's keys or values of each row, (rows, kv heads, context, dim).

    Stale slots are zeroed: a mask alone would let a NaN that some other sequence left there through (0 * NaN).
    """
    gathered = pages[group.blocks].flatten(1, 2)  # (rows, context, kv heads, dim)
    gathered[group.stale] = 0
    return gathered.transpose(1, 2)


def scores_times_values(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor, spec: AttentionSpec
) -> torch.Tensor:
    """Attention of q, (rows, heads, n, dim), over k and v, (rows, kv heads, context, dim); mask true is visible."""
    if spec.softcap is None:
        return functional.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=spec.scale, enable_gqa=True)
    repeats = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(repeats, dim=1), v.repeat_interleave(repeats, dim=1)
    scores = q @ k.transpose(-1, -2) * spec.scale
    scores = spec.softcap * torch.tanh(scores / spec.softcap)
    weights = scores.masked_fill(~mask, float("-inf")).softmax(-1, dtype=torch.float32)
    return weights.to(v.dtype) @ v
