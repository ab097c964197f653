"""Attention of many decoding rows of any lengths in one CUDA kernel: its constants, its buffers, its launch."""

import struct
from pathlib import Path
from typing import Any

import torch

from octavo_engine.runner.fast.cuda_module import CudaModule
from octavo_engine.runner.fast.own_kernels import why_not_own
from octavo_engine.runner.fast.weights import FastWeights

FOLDER = Path(__file__).parent / "cuda"
FILES = [FOLDER / name for name in ("ptx.cuh", "numbers.cuh", "rows.cuh", "ring.cuh", "columns.cuh", "ragged.cu")]
MAX_ROWS, MAX_GROUP, TILE = 256, 8, 16
"""As in the sources."""
NUM_WARPS = 8
"""Of a multiprocessor; each has 16 KiB under way, which is four times what hides the latency of memory."""
RESERVED_BYTES = 1 << 10
"""Of shared memory, that CUDA takes for itself in each block."""


def why_not_ragged(w: FastWeights, block_size: int) -> str:
    """Why the kernel cannot serve these weights where they are; empty when it can."""
    if w.qkv.dtype != torch.bfloat16:
        return "it computes in bfloat16"
    if block_size % TILE:
        return f"blocks of {block_size} tokens are not a multiple of {TILE}"
    return why_not_own(w, MAX_GROUP)


def bytes_of_warp(dim: int) -> int:
    """Of its ring in shared memory, as in ring.cuh: tiles of keys and values ahead, and the one that is read."""
    num_ahead = 256 // dim
    return (2 * num_ahead + 1) * TILE * dim * 2


def fitting_team(num_kv_heads: int, num_warps: int) -> int:
    """Warps of a block, of which `num_warps` fit: one for each of as many KV heads as divide them all."""
    return max(count for count in range(1, min(num_warps, NUM_WARPS) + 1) if num_kv_heads % count == 0)


class RaggedAttention:
    """See DecodeAttention; for up to MAX_ROWS rows of one model on its device, one call at a time.

    Raises CudaModuleError where the kernel cannot be compiled or launched.
    """

    def __init__(self, w: FastWeights, block_size: int) -> None:
        device, heads, kv_heads, dim = w.qkv.device, w.num_heads, w.num_kv_heads, w.head_dim
        torch.cuda.set_device(device)  # each thread has its own
        found: Any = torch.cuda.get_device_properties(device)
        team = fitting_team(kv_heads, found.shared_memory_per_block_optin // bytes_of_warp(dim))
        shared_bytes = team * bytes_of_warp(dim)
        num_fitting = found.shared_memory_per_multiprocessor // (shared_bytes + RESERVED_BYTES)
        self._num_blocks: int = found.multi_processor_count * max(1, min(NUM_WARPS // team, num_fitting))
        self._num_threads, self._scale = 32 * team, w.scale
        defines = {"HEADS": heads, "KV_HEADS": kv_heads, "DIM": dim, "PAGE": block_size, "TEAM": team}
        self._kernel = CudaModule(FILES, defines).kernel("attend", shared_bytes)
        num_pairs = (heads // kv_heads + 1) // 2
        self._parts = torch.zeros(self._num_blocks, 2, team, dim // 16 + 1, 8, num_pairs, 4, device=device)
        self._arrivals = torch.zeros(MAX_ROWS, kv_heads, dtype=torch.int32, device=device)

    def __call__(
        self, q: torch.Tensor, pages: tuple[torch.Tensor, torch.Tensor], lengths: torch.Tensor, tables: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """See DecodeAttention; lengths and tables are int32."""
        assert len(q) <= MAX_ROWS
        keys, values = pages
        out, log_weights = q.new_empty(q.shape), q.new_empty(q.shape[:2], dtype=torch.float32)
        tensors = [q, lengths, tables, keys, values, out, log_weights, self._parts, self._arrivals]
        self._launch(tensors, [len(q), q.stride(0), keys.stride(0), tables.stride(0)])
        return out, log_weights

    def _launch(self, tensors: list[torch.Tensor], sizes: list[int]) -> None:
        """Both in the order of Params in rows.cuh."""
        numbers = [tensor.data_ptr() for tensor in tensors] + sizes
        params = struct.pack(f"<{len(numbers)}Qd", *numbers, self._scale)
        self._kernel.launch(self._num_blocks, self._num_threads, params)
