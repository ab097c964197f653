"""Launches the decode step in one CUDA kernel: its constants, its buffers, and where everything lies."""

import struct
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from octavo_engine.runner.fast.cuda_module import CudaModule, CudaModuleError
from octavo_engine.runner.fast.weights import FastWeights
from octavo_engine.runner.kv_cache import KVCache

FOLDER = Path(__file__).parent / "cuda"
FILES = [FOLDER / name for name in ("common.cuh", "weights.cuh", "heads.cuh", "attention.cuh", "step.cu")]
MAX_ROWS, MAX_SPLITS, NUM_WARPS, ROUND = 8, 16, 16, 6
"""As in the sources."""
NUM_THREADS = 32 * (NUM_WARPS + 1)
STAGE_BYTES = 8 * (2 * 64 * NUM_WARPS + 64)
MIN_DEPTH, MAX_DEPTH = 2, 12
"""Stages of the queue of weights; a warp takes two before it gives one back."""
MAX_GROUP = NUM_WARPS - 2
"""Query heads of a KV head; two more warps turn the key and the value."""
OLDEST_CAPABILITY = (9, 0)
"""Of Hopper, the first with bulk copies into shared memory."""
STATIC_BYTES = 8 << 10
"""More than the kernel declares of static shared memory."""


def why_not_fused(w: FastWeights) -> str:
    """Why the kernel cannot serve these weights where they are; empty when it can."""
    capability = torch.cuda.get_device_capability(w.qkv.device)
    if capability < OLDEST_CAPABILITY:
        return f"the GPU's compute capability is {'.'.join(map(str, capability))}, not 9.0 (Hopper) or newer"
    if w.qkv.dtype != torch.bfloat16:
        return "it keeps sums in bfloat16 that may be too large for float16"
    if w.head_dim not in (64, 128, 256):
        return f"its heads have {w.head_dim} dimensions, not 64, 128 or 256"
    if w.num_heads > MAX_GROUP * w.num_kv_heads:
        return f"more than {MAX_GROUP} of its heads share a KV head"
    if any(size % 8 for size in (w.hidden, w.intermediate)):
        return "the width of its layers is no multiple of 8"
    return ""


class StepKernels:
    """The kernels for one model on the current device, shared by all numbers of rows.

    Raises CudaModuleError where they cannot be compiled or have too little room.
    """

    def __init__(self, w: FastWeights, block_size: int) -> None:
        device: Any = torch.cuda.get_device_properties(w.qkv.device)
        self.num_programs: int = device.multi_processor_count
        group = w.num_heads // w.num_kv_heads
        sums_bytes = max(ROUND * NUM_WARPS * 8 * MAX_ROWS, NUM_WARPS * min(group, 4) * w.head_dim) * 4
        room = device.shared_memory_per_block_optin - sums_bytes - STATIC_BYTES - group * w.head_dim * 4
        depth = min(MAX_DEPTH, room // STAGE_BYTES)
        if depth < MIN_DEPTH:
            raise CudaModuleError(f"{device.shared_memory_per_block_optin} bytes of shared memory are too few")
        defines = {
            "PROGRAMS": self.num_programs, "DEPTH": depth, "HIDDEN": w.hidden, "INTER": w.intermediate,
            "VOCAB": len(w.head), "LAYERS": w.num_layers, "HEADS": w.num_heads, "KV_HEADS": w.num_kv_heads,
            "DIM": w.head_dim, "PAGE": block_size, "HAS_HEAD_NORM": int(w.q_norm is not None),
            "HAS_BIAS": int(w.qkv_bias is not None),
        }  # fmt: skip
        module = CudaModule(FILES, defines)
        self.begin = module.kernel("begin_step")
        self.step = module.kernel("step", depth * STAGE_BYTES + sums_bytes)


class FusedStep:
    """One decode step of `num_rows` sequences, from ids to logits, into buffers that stay where they are."""

    def __init__(self, weights: FastWeights, cache: KVCache, kernels: StepKernels, num_rows: int) -> None:
        w, device = weights, weights.qkv.device
        self._weights, self._cache, self._kernels, self.num_rows = weights, cache, kernels, num_rows

        def buffer(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
            return torch.zeros(shape, dtype=dtype, device=device)

        dtype, group = w.qkv.dtype, w.num_heads // w.num_kv_heads
        self.logits = buffer(num_rows, len(w.head))
        self._buffers = [
            buffer(num_rows, w.hidden),  # in the order of Params in common.cuh
            buffer(num_rows, w.hidden, dtype=dtype),
            buffer(num_rows, w.qkv.shape[1]),
            buffer(num_rows, w.num_heads * w.head_dim, dtype=dtype),
            buffer(num_rows, w.intermediate, dtype=dtype),
            buffer(num_rows * w.num_kv_heads, MAX_SPLITS, group, w.head_dim + 2),
            self.logits,
            buffer(2, kernels.num_programs, MAX_ROWS),
            buffer(1 + w.num_layers * num_rows * w.num_kv_heads, dtype=torch.int32),
        ]

    def __call__(self, ids: torch.Tensor, positions: torch.Tensor, tables: torch.Tensor) -> torch.Tensor:
        """Logits, (rows, vocabulary), of ids at positions, (rows,) each, over block tables, (rows, width); all int32.

        The KV of the ids is written to the slots that tables and positions name.
        """
        params = self._params(ids, positions, tables)
        self._kernels.begin.launch(self.num_rows, 256, params)
        self._kernels.step.launch(self._kernels.num_programs, NUM_THREADS, params, must_meet=True)
        return self.logits

    def _params(self, ids: torch.Tensor, positions: torch.Tensor, tables: torch.Tensor) -> bytes:
        pages = self._cache.data
        tensors = [ids, positions, tables, *self._weight_tensors, pages, *self._buffers]
        sizes = [self.num_rows, tables.stride(0), pages.stride(0), pages.stride(1), pages.stride(2)]
        numbers = [tensor.data_ptr() for tensor in tensors] + sizes
        return struct.pack(f"<{len(numbers)}Q2d", *numbers, self._weights.eps, self._weights.scale)

    @cached_property
    def _weight_tensors(self) -> list[torch.Tensor]:
        """In the order of Params; what a model has not got is never read."""
        w = self._weights
        given = [w.embed, w.qkv, w.qkv_bias, w.o, w.gate_up, w.down, w.head, w.norms, w.q_norm, w.k_norm, w.cos, w.sin]
        return [w.norms if tensor is None else tensor for tensor in given]
