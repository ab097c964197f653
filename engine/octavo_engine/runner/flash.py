"""Attention by flash-attn over the paged cache: decoding rows and chunks of prompts each with their own kernel."""

import importlib
import importlib.util
from dataclasses import dataclass
from typing import Any

import torch

from octavo_engine.batch import Batch
from octavo_engine.runner.attention import AttentionSpec
from octavo_engine.runner.kv_cache import KVCache, KVShape
from octavo_engine.runner.transfer import upload

FLASH_BLOCK_SIZE = 256
"""flash-attn 2 reads pages of a multiple of 256 tokens."""
OLDEST_CAPABILITY = (8, 0)


@dataclass(frozen=True, slots=True)
class Obstacle:
    """Why something cannot be used here, and what would change that ("" when nothing does)."""

    reason: str
    remedy: str = ""


def why_not_flash(shape: KVShape, device: torch.device, block_size: int) -> Obstacle | None:
    """What keeps flash-attn from serving this cache, if anything does."""
    if device.type != "cuda":
        return Obstacle(f"flash-attn runs on CUDA, not on {device.type}")
    capability = torch.cuda.get_device_capability(device)
    if capability < OLDEST_CAPABILITY:
        found = ".".join(map(str, capability))
        return Obstacle(f"flash-attn needs a GPU of compute capability 8.0 (Ampere) or newer, not {found}")
    if shape.dtype not in (torch.float16, torch.bfloat16):
        name = str(shape.dtype).removeprefix("torch.")
        return Obstacle(f"flash-attn computes in float16 or bfloat16, not {name}", 'set dtype = "auto"')
    if shape.head_dim > 256 or shape.head_dim % 8:
        return Obstacle(f"flash-attn takes heads of up to 256 in steps of 8, not {shape.head_dim}")
    if block_size % FLASH_BLOCK_SIZE:
        reason = f"flash-attn reads blocks of a multiple of {FLASH_BLOCK_SIZE} tokens, not {block_size}"
        return Obstacle(reason, "leave block_size out of config.toml")
    return _why_no_import()


def _why_no_import() -> Obstacle | None:
    """What keeps this Python and torch from using flash-attn, if anything does."""
    if importlib.util.find_spec("flash_attn") is None:
        return Obstacle("flash-attn is not installed", "pip install --no-build-isolation 'octavo[flash]'")
    try:
        importlib.import_module("flash_attn")
    except (ImportError, OSError) as error:
        reason = str(error).split("\n")[0]
        remedy = f"install it again, built for torch {torch.__version__}"
        return Obstacle(f"flash-attn does not import ({reason})", remedy)
    return None


@dataclass(slots=True)
class Rows:
    """What flash-attn needs to know of a batch: int32 tensors on the device.

    Decoding rows first: `lengths`, (decodes,), with the new token. Then prompts: cumulative query and key counts,
    (prompts + 1,), and their largest. `tables`, (rows, width). A cold batch is all prompts from their first token.
    """

    num_decodes: int
    lengths: torch.Tensor
    tables: torch.Tensor
    cu_queries: torch.Tensor
    cu_keys: torch.Tensor
    max_queries: int
    max_keys: int
    is_cold: bool = False


def attend_paged(
    q: torch.Tensor,
    fresh: tuple[torch.Tensor, torch.Tensor],
    pages: tuple[torch.Tensor, torch.Tensor],
    rows: Rows,
    **options: Any,
) -> torch.Tensor:
    """Attention of q, (T, heads, dim), whose keys and values are in the cache already; (T, heads, dim).

    `fresh` are the keys and values of these same tokens, (T, kv heads, dim): a cold batch reads nothing else. The
    causal mask of all kernels is aligned at the end of the keys, so a chunk after a cached prefix needs nothing.
    """
    from flash_attn import flash_attn_varlen_func, flash_attn_with_kvcache

    if rows.is_cold:
        cold: torch.Tensor = flash_attn_varlen_func(
            q, *fresh, rows.cu_queries, rows.cu_queries, rows.max_queries, rows.max_queries, causal=True, **options
        )
        return cold
    keys, values = pages
    n, parts = rows.num_decodes, []
    if n:
        parts.append(
            flash_attn_with_kvcache(
                q[:n, None],
                keys,
                values,
                cache_seqlens=rows.lengths,
                block_table=rows.tables[:n],
                causal=True,
                **options,
            )[:, 0]
        )
    if n < len(q):
        parts.append(
            flash_attn_varlen_func(
                q[n:], keys, values, rows.cu_queries, rows.cu_keys, rows.max_queries, rows.max_keys,
                block_table=rows.tables[n:], causal=True, **options,
            )
        )  # fmt: skip
    return parts[0] if len(parts) == 1 else torch.cat(parts)


def rows_of(batch: Batch, block_size: int, device: torch.device) -> Rows:
    """Copy a batch's tables and lengths to the device, in one transfer."""
    n, contexts, queries = batch.num_decodes, batch.context_lens, batch.query_lens
    width = -(-max(contexts) // block_size)
    tables = [table for s in batch.sequences for table in padded(s.block_table, width)]
    cu_queries, cu_keys = cumulative(queries[n:]), cumulative(contexts[n:])
    parts = contexts[:n], cu_queries, cu_keys, tables
    lengths, on_device_queries, on_device_keys, on_device_tables = upload(parts, device)
    return Rows(
        n, lengths, on_device_tables.view(-1, width), on_device_queries, on_device_keys,
        max(queries[n:], default=0), max(contexts[n:], default=0), n == 0 and contexts == queries,
    )  # fmt: skip


def padded(table: list[int], width: int) -> list[int]:
    """The first `width` blocks of a table, filled up with block 0, which no length reaches."""
    return table[:width] + [0] * (width - len(table))


def cumulative(counts: list[int]) -> list[int]:
    """Running sums, with the leading zero that flash-attn wants."""
    sums = [0]
    for count in counts:
        sums.append(sums[-1] + count)
    return sums


class FlashBackend:
    """The general path's attention on CUDA, for any architecture that transformers routes to us."""

    name = "flash"

    def __init__(self, cache: KVCache) -> None:
        self._cache = cache
        self._device = cache.data.device

    def begin(self, batch: Batch) -> None:
        """See AttentionBackend."""
        slots = torch.tensor(batch.slots(self._cache.block_size), device=self._device)
        self._blocks, self._offsets = slots // self._cache.block_size, slots % self._cache.block_size
        self._rows = rows_of(batch, self._cache.block_size, self._device)

    def attend(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, spec: AttentionSpec) -> torch.Tensor:
        """See AttentionBackend."""
        keys, values = self._cache.layer(spec.layer)
        keys[self._blocks, self._offsets] = k
        values[self._blocks, self._offsets] = v
        window = (-1, -1) if spec.sliding_window is None else (spec.sliding_window - 1, 0)
        return attend_paged(
            q,
            (k, v),
            (keys, values),
            self._rows,
            softmax_scale=spec.scale,
            window_size=window,
            softcap=spec.softcap or 0.0,
        )
