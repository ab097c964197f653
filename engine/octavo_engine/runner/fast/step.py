"""Launches the persistent decode kernel: its buffers, its tiles, and the begin of each step."""

import torch
import triton

from octavo_engine.runner.fast.kernels import begin_step
from octavo_engine.runner.fast.step_kernel import PHASES, step_kernel
from octavo_engine.runner.fast.weights import FastWeights
from octavo_engine.runner.kv_cache import KVCache

MAX_ROWS = 4
MAX_SPLITS = 16
SPLIT_TOKENS = 32
NUM_WARPS = 8


def pick_tile(num_rows: int, num_columns: int, num_programs: int, limit: int = 32) -> tuple[int, int]:
    """Rows and columns of the pieces of a matrix: the busiest program's share as small as possible, then tall tiles.

    A piece has at least 2,048 elements, eight for each of 256 threads, which is one 16-byte load; with eight rows or
    more a row belongs to one warp, whose sums need no shared memory.
    """
    sizes = [size for size in (4, 8, 16, 32) if size <= limit]

    def share(size: int) -> int:
        tiles = -(-num_rows // size)
        return -(-tiles // num_programs) * size

    least = min(map(share, sizes))
    rows = max(size for size in sizes if share(size) <= least * 1.04)
    return rows, min(max(256, 2048 // rows), triton.next_power_of_2(num_columns))


class FusedStep:
    """One decode step of `num_rows` sequences, from ids to logits, into buffers that stay where they are."""

    def __init__(self, weights: FastWeights, cache: KVCache, num_rows: int, num_programs: int) -> None:
        w, device = weights, weights.qkv.device
        self._weights, self._cache = weights, cache
        self.num_rows, self.num_programs = num_rows, num_programs
        qkv_width = w.qkv.shape[1]

        def buffer(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
            return torch.empty(shape, dtype=dtype, device=device)

        self.x = buffer(num_rows, w.hidden)
        self.scaled = buffer(num_rows, w.hidden, dtype=w.qkv.dtype)
        self.qkv = buffer(num_rows, qkv_width)
        self.attended = buffer(num_rows, w.num_heads * w.head_dim, dtype=w.qkv.dtype)
        self.active = buffer(num_rows, w.intermediate, dtype=w.qkv.dtype)
        self.partial = buffer(num_rows, w.num_heads, MAX_SPLITS, w.head_dim + 2)
        self.logits = buffer(num_rows, w.head.shape[0])
        self.marks = torch.zeros(
            1 + w.num_layers * num_rows * w.num_kv_heads, dtype=torch.int32, device=device
        )  # the barrier's counter, then a ticket for each layer, row and KV head
        shapes = {
            "QKV": (qkv_width, w.hidden),
            "OUT": (w.hidden, w.num_heads * w.head_dim),
            "GATE": (w.intermediate, w.hidden),
            "DOWN": (w.hidden, w.intermediate),
            "HEAD": (w.head.shape[0], w.hidden),
        }
        self._tiles = {}
        for name, (rows, columns) in shapes.items():
            limit = 16 if name == "GATE" else 32  # two matrices share the registers
            self._tiles[f"T_{name}"], self._tiles[f"C_{name}"] = pick_tile(rows, columns, num_programs, limit)

    def __call__(self, ids: torch.Tensor, positions: torch.Tensor, tables: torch.Tensor) -> torch.Tensor:
        """Logits, (rows, vocabulary), of ids at positions, (rows,) each, over block tables, (rows, width).

        The KV of the ids is written to the slots that tables and positions name.
        """
        self._begin(ids)
        self._launch(positions, tables, 0, self._weights.num_layers, -1)
        return self.logits

    def run_phase_by_phase(self, ids: torch.Tensor, positions: torch.Tensor, tables: torch.Tensor) -> torch.Tensor:
        """The same without a barrier, one launch a phase: for devices on which the grid cannot meet, and tests."""
        self._begin(ids)
        for layer in range(self._weights.num_layers):
            for phase in range(len(PHASES) - 1):
                self._launch(positions, tables, layer, layer + 1, phase)
        self._launch(positions, tables, 0, 0, len(PHASES) - 1)
        return self.logits

    def _begin(self, ids: torch.Tensor) -> None:
        begin_step(ids, self._weights.embed, self._weights.norms[0], self.x, self.scaled, self.marks)

    def _launch(self, positions: torch.Tensor, tables: torch.Tensor, first: int, last: int, phase: int) -> None:
        w, pages = self._weights, self._cache.data
        none = w.norms
        step_kernel[(self.num_programs,)](
            self.x, self.scaled, self.qkv, self.attended, self.active, self.partial, self.logits, self.marks,
            self.marks[1:], w.qkv, none if w.qkv_bias is None else w.qkv_bias, w.o, w.gate_up, w.down, w.head, w.norms,
            none if w.q_norm is None else w.q_norm, none if w.k_norm is None else w.k_norm, w.cos, w.sin,
            positions, tables, tables.stride(0), pages, pages.stride(0), pages.stride(1), pages.stride(2),
            w.eps, w.scale, first, last,
            ROWS=self.num_rows, HIDDEN=w.hidden, HIDDEN_BLOCK=triton.next_power_of_2(w.hidden), INTER=w.intermediate,
            VOCAB=w.head.shape[0], HEADS=w.num_heads, KV_HEADS=w.num_kv_heads, DIM=w.head_dim,
            PAGE=self._cache.block_size, NORM=w.q_norm is not None, BIAS=w.qkv_bias is not None,
            PROGRAMS=self.num_programs, MAX_SPLITS=MAX_SPLITS, BLOCK=SPLIT_TOKENS, PHASE=phase,
            **self._tiles, num_warps=NUM_WARPS, launch_cooperative_grid=phase == -1,
        )  # fmt: skip
