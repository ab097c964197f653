"""Launches the decode step in one CUDA kernel: its constants, its buffers, and where everything lies."""

import struct
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from octavo_engine.runner.fast.cuda_module import CudaModule, CudaModuleError, tensor_map
from octavo_engine.runner.fast.own_kernels import why_not_own
from octavo_engine.runner.fast.step_layout import (
    BOX_TOKENS,
    COSTS,
    FEEDERS,
    MAX_ROWS,
    MIN_DEPTH,
    STAGE_BYTES,
    STATIC_BYTES,
    WARPS,
    StepLayout,
)
from octavo_engine.runner.fast.weights import FastWeights
from octavo_engine.runner.kv_cache import KVCache

FOLDER = Path(__file__).parent / "cuda"
NAMES = (
    "ptx.cuh", "numbers.cuh", "common.cuh", "clocks.cuh", "exchange.cuh", "weights.cuh", "products.cuh", "project.cuh",
    "places.cuh", "cached.cuh", "heads.cuh", "sums.cuh", "columns.cuh", "lead.cuh", "attention.cuh", "step.cu",
)  # fmt: skip
FILES = [FOLDER / name for name in NAMES]
NUM_ROWS = (1, 2, 4, MAX_ROWS)
NUM_THREADS = 32 * (WARPS + FEEDERS)
MAX_GROUP = 16
"""Query heads of a KV head, for which shared memory has room."""


def why_not_fused(w: FastWeights) -> str:
    """Why the kernel cannot serve these weights where they are; empty when it can."""
    if w.qkv.dtype != torch.bfloat16:
        return "it keeps sums in bfloat16 that may be too large for float16"
    if any(size % 8 for size in (w.hidden, w.intermediate)):
        return "the width of its layers is no multiple of 8"
    return why_not_own(w, MAX_GROUP)


class StepKernels:
    """The kernels for one model on its device, for each of `counts` of rows; with `profile` they fill FusedStep.clocks.

    Raises CudaModuleError where they cannot be compiled or have too little room.
    """

    def __init__(
        self, w: FastWeights, block_size: int, counts: Sequence[int] = NUM_ROWS, *, profile: bool = False
    ) -> None:
        device: Any = torch.cuda.get_device_properties(w.qkv.device)
        self.num_programs: int = device.multi_processor_count
        room: int = device.shared_memory_per_block_optin
        layouts = {rows: StepLayout.of(w, rows, self.num_programs) for rows in counts}
        depths = {rows: layout.depth(room) for rows, layout in layouts.items()}
        if min(depths.values()) < MIN_DEPTH:
            raise CudaModuleError(f"{room} bytes of shared memory are too few")
        defines = {
            "PROGRAMS": self.num_programs, "HIDDEN": w.hidden, "INTER": w.intermediate, "VOCAB": len(w.head),
            "LAYERS": w.num_layers, "HEADS": w.num_heads, "KV_HEADS": w.num_kv_heads, "DIM": w.head_dim,
            "PAGE": block_size, "HAS_HEAD_NORM": int(w.q_norm is not None), "HAS_BIAS": int(w.qkv_bias is not None),
            "STATIC_BYTES": STATIC_BYTES, "BOX": BOX_TOKENS, "PROFILE": int(profile),
        }  # fmt: skip

        def compiled(rows: int) -> CudaModule:
            torch.cuda.set_device(w.qkv.device)  # each thread has its own
            of_rows = {"ROWS": rows, "DEPTH": depths[rows]}
            return CudaModule(FILES, defines | of_rows | {"SUMS_BYTES": layouts[rows].sums_bytes})

        with ThreadPoolExecutor() as pool:
            modules = dict(zip(counts, pool.map(compiled, counts), strict=True))
        self.begin = {rows: module.kernel("begin_step") for rows, module in modules.items()}
        self.step = {
            rows: module.kernel("step", depths[rows] * STAGE_BYTES + layouts[rows].sums_bytes)
            for rows, module in modules.items()
        }


class FusedStep:
    """One decode step of `num_rows` sequences (a power of two), from ids to logits, into buffers that stay."""

    def __init__(self, weights: FastWeights, cache: KVCache, kernels: StepKernels, num_rows: int) -> None:
        w, device = weights, weights.qkv.device
        self._weights, self._cache, self._kernels, self.num_rows = weights, cache, kernels, num_rows

        def buffer(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
            return torch.zeros(shape, dtype=dtype, device=device)

        layout = StepLayout.of(w, num_rows, kernels.num_programs)
        self.has_leads = layout.has_leads
        self._num_begin_threads = min(-(-w.hidden // 64) * 32, 1024)  # two numbers each
        self.logits = buffer(num_rows, len(w.head))
        self.clocks = buffer(kernels.num_programs, len(COSTS), dtype=torch.int64)
        self._buffers = [
            buffer(num_rows, w.hidden),  # in the order of Params in common.cuh
            empty_vectors(w, num_rows),
            buffer(num_rows, w.qkv.shape[1], dtype=torch.int64),
            buffer(num_rows * w.num_kv_heads, layout.num_parts, layout.group, w.head_dim + 2, dtype=torch.int64),
            buffer(2, num_rows, kernels.num_programs, dtype=torch.int64),
            self.logits,
            self.clocks,
            buffer(num_rows, dtype=torch.int32),
        ]

    def __call__(
        self, ids: torch.Tensor, positions: torch.Tensor, tables: torch.Tensor, leads: torch.Tensor
    ) -> torch.Tensor:
        """Logits, (rows, vocabulary), of ids at positions, (rows,) each, over block tables, (rows, width); all int32.

        `leads`, (2, rows): tokens, of whole blocks before its position, that a row shares with its neighbours, and the
        first of those rows; zero for a row that shares none. The KV of the ids is written to the slots that tables and
        positions name.
        """
        params = self._params(ids, positions, tables, leads)
        self._kernels.begin[self.num_rows].launch(self.num_rows, self._num_begin_threads, params)
        self._kernels.step[self.num_rows].launch(self._kernels.num_programs, NUM_THREADS, params, must_meet=True)
        return self.logits

    def _params(self, ids: torch.Tensor, positions: torch.Tensor, tables: torch.Tensor, leads: torch.Tensor) -> bytes:
        pages = self._cache.data
        tensors = [ids, positions, tables, leads, *self._weight_tensors, pages, *self._buffers]
        sizes = [0, tables.stride(0), pages.stride(0), pages.stride(1), pages.stride(2)]
        numbers = [tensor.data_ptr() for tensor in tensors] + sizes
        packed = struct.pack(f"<{len(numbers)}Q2d", *numbers, self._weights.eps, self._weights.scale)
        return packed.ljust(-(-len(packed) // 64) * 64, b"\0") + self._cached_boxes  # where a map may lie

    @cached_property
    def _cached_boxes(self) -> bytes:
        """Of the cache, BOX_TOKENS of one head each."""
        pages = self._cache.data.flatten(1, 2)
        return tensor_map(pages, [1, 1, BOX_TOKENS, 1, pages.shape[-1]])

    @cached_property
    def _weight_tensors(self) -> list[torch.Tensor]:
        """In the order of Params; what a model has not got is never read."""
        w = self._weights
        given = [w.embed, w.qkv, w.qkv_bias, w.o, w.gate_up, w.down, w.head, w.norms, w.q_norm, w.k_norm, w.cos, w.sin]
        return [w.norms if tensor is None else tensor for tensor in given]


def empty_vectors(w: FastWeights, num_rows: int) -> torch.Tensor:
    """Where blocks hand each other the inputs of products, int16: two sets, see exchange.cuh.

    Places that are to be written hold -1; those of columns past a vector's end, which are looked up too, hold zero.
    """

    def vector(size: int) -> torch.Tensor:
        run = 8 * num_sharers(num_rows)
        empty = torch.zeros(-(-size // run) * run * num_rows, dtype=torch.int16)
        empty[places(torch.arange(size), num_rows).flatten()] = -1
        return empty.to(w.qkv.device)

    stream, attended = vector(w.hidden), vector(w.num_heads * w.head_dim)
    layer = torch.cat([stream, attended, stream, vector(w.intermediate)])
    return torch.cat([layer.repeat(w.num_layers), stream]).repeat(2)


def places(columns: torch.Tensor, num_rows: int) -> torch.Tensor:
    """Of columns, (columns,), in a vector: (rows, columns); as place_of in exchange.cuh."""
    sharers = num_sharers(num_rows)
    numbers = 64 // (num_rows * sharers)  # of a look
    pair, half = columns % 8 // 2, columns % 32 // 16
    sharer, high = (2 * pair + half, columns % 64 // 32) if sharers == 8 else (pair, half)
    number = columns % 2 + columns % 16 // 8 * 2 + high * 4
    look = columns // (8 * sharers) * (8 // numbers) + number // numbers
    rows = torch.arange(num_rows)[:, None]
    return ((look * num_rows + rows) * sharers + sharer) * numbers + number % numbers


def num_sharers(num_rows: int) -> int:
    """Threads of a warp that share a row's columns, eight each."""
    return 8 if num_rows <= 4 else 4
