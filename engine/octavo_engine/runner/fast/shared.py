"""Attention of decoding rows that begin with the same blocks: what they share is read once, not once a row.

The queries of a group of rows meet the blocks that the group shares as one short prompt without a causal mask would;
each row's own blocks follow as ever, and the two parts are merged by their weights. A cascade of two levels, as
FlashInfer (Ye et al., 2024) describes it.
"""

from dataclasses import dataclass

import torch

from octavo_engine.runner.fast.decode_attention import DecodeAttention
from octavo_engine.runner.fast.kernels import merge_parts


@dataclass(slots=True)
class SharedRows:
    """Of decoding rows, int32 on the device: shared tokens, (rows,); cumulative rows and tokens of groups, (rows + 1,);
    the groups' tables, (rows, width)."""

    lengths: torch.Tensor
    cu_rows: torch.Tensor
    cu_tokens: torch.Tensor
    tables: torch.Tensor


def attend_shared(
    q: torch.Tensor,
    pages: tuple[torch.Tensor, torch.Tensor],
    shared: SharedRows,
    own_lengths: torch.Tensor,
    own_tables: torch.Tensor,
    scale: float,
    attend_own: DecodeAttention,
) -> torch.Tensor:
    """Attention of one token a row, q (rows, heads, dim), over the shared blocks and then each row's own."""
    from flash_attn import flash_attn_varlen_func

    keys, values = pages
    most_tokens = shared.tables.shape[1] * keys.shape[1]
    common, common_weights, _ = flash_attn_varlen_func(
        q, keys, values, shared.cu_rows, shared.cu_tokens, len(q), most_tokens,
        block_table=shared.tables, softmax_scale=scale, causal=False, return_attn_probs=True,
    )  # fmt: skip
    own, own_weights = attend_own(q, pages, own_lengths, own_tables)
    return merge_parts(common, common_weights, own, own_weights, shared.lengths)
