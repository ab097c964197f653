"""Our CUDA kernels on the CPU: their own sources over tests/engine/emulated, compiled by g++."""

import os
import platform
import shutil
import struct
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from octavo_engine.runner.fast import ragged, step
from octavo_engine.runner.fast.ragged import RaggedAttention
from octavo_engine.runner.fast.step import FusedStep, StepKernels
from octavo_engine.runner.fast.step_layout import BOX_TOKENS, STAGE_BYTES, STATIC_BYTES, StepLayout
from octavo_engine.runner.fast.weights import FastWeights
from octavo_engine.runner.kv_cache import KVCache

SOURCES = Path(__file__).parent / "emulated"
OPTIONS = [
    "-std=c++17", "-O1", "-g1", "-w", "-pthread", "-fno-strict-aliasing",
    "-fsanitize=address,bounds,alignment", "-fno-sanitize-recover=all",
]  # fmt: skip
NUM_POINTERS = {"decode_step": 25, "ragged": 9}
"""Of each program's Params, which begin with them."""
SETTINGS = {"ASAN_OPTIONS": "detect_leaks=0:detect_stack_use_after_return=0"}
"""The first asks for rights that containers have not, the second takes its time."""
CAN_EMULATE = platform.system() == "Linux" and platform.machine() == "x86_64" and shutil.which("g++") is not None


class EmulatedModule:
    """Stands for CudaModule: `memory` are the tensors that a kernel may reach, at their exact sizes.

    It runs a `program` of tests/engine/emulated.
    """

    def __init__(self, program: str, folder: Path, defines: Mapping[str, int | str], files: Sequence[Path]) -> None:
        self.name, self.file = program, folder / program
        self.memory: list[torch.Tensor] = []
        self.seed = 0
        given = [f"-D{name}={value}" for name, value in defines.items()] + [f"-I{files[0].parent}"]
        subprocess.run(["g++", *OPTIONS, *given, SOURCES / f"{program}.cpp", "-o", self.file], check=True)

    def kernel(self, name: str, shared_bytes: int = 0) -> "EmulatedKernel":
        return EmulatedKernel(self, name, shared_bytes)


class EmulatedKernel:
    """Stands for cuda_module.Kernel; a launch is over when it returns."""

    def __init__(self, module: EmulatedModule, name: str, shared_bytes: int) -> None:
        self._module, self._name, self._shared_bytes = module, name, shared_bytes

    def launch(self, num_blocks: int, num_threads: int, params: bytes, *, must_meet: bool = False) -> None:
        pointers = struct.unpack_from(f"<{NUM_POINTERS[self._module.name]}Q", params)
        arrays = [t for t in self._module.memory if any(0 <= p - t.data_ptr() < t.nbytes for p in pointers)]
        sent = [struct.pack("<Q", len(arrays))]
        for array in arrays:
            sent += [struct.pack("<QQ", array.data_ptr(), array.nbytes), bytes_of(array)]
        numbers = [num_blocks, num_threads, self._shared_bytes, self._module.seed]
        command = [str(self._module.file), self._name, *map(str, numbers)]
        environment = os.environ | SETTINGS
        ended = subprocess.run(
            command, input=b"".join([*sent, params]), capture_output=True, timeout=120, check=False, env=environment
        )
        assert ended.returncode == 0, ended.stderr.decode(errors="replace")[:5000]
        left = memoryview(bytearray(ended.stdout))
        for array in arrays:
            content, left = left[: array.nbytes], left[array.nbytes :]
            array.copy_(torch.frombuffer(content, dtype=array.dtype).view(array.shape))


def bytes_of(tensor: torch.Tensor) -> bytes:
    assert tensor.is_contiguous()
    return tensor.reshape(-1).view(torch.uint8).numpy().tobytes()


def emulated_map(tensor: torch.Tensor, num_runs: int) -> bytes:
    """Stands for tensor_map: TensorMap of tests/engine/emulated, for boxes of so many runs of the third dimension."""
    strides = [stride * tensor.itemsize for stride in reversed(tensor.stride()[:-1])]
    return struct.pack("<16Q", tensor.shape[-1] * tensor.itemsize, *strides, num_runs, *[0] * 10)


class EmulatedStep:
    """FusedStep and StepKernels over the emulator: a device of `num_programs` multiprocessors.

    Shared memory has room for `depth` stages of weights. What `must` says of the sources' constants is asserted.
    """

    def __init__(
        self, w: FastWeights, cache: KVCache, num_rows: int, num_programs: int, depth: int, folder: Path, profile: bool,
        must: str = "true",
    ) -> None:  # fmt: skip
        with pytest.MonkeyPatch.context() as patch:
            modules: list[EmulatedModule] = []

            def compiled(files: Sequence[Path], defines: Mapping[str, int]) -> EmulatedModule:
                modules.append(EmulatedModule("decode_step", folder, {**defines, "MUST": must}, files))
                return modules[-1]

            sums_bytes = StepLayout.of(w, num_rows, num_programs).sums_bytes
            device = SimpleNamespace(
                multi_processor_count=num_programs,
                shared_memory_per_block_optin=depth * STAGE_BYTES + sums_bytes + STATIC_BYTES,
            )
            patch.setattr(torch.cuda, "get_device_properties", lambda *_: device)
            patch.setattr(torch.cuda, "set_device", lambda *_: None)
            patch.setattr(step, "CudaModule", compiled)
            kernels = StepKernels(w, cache.block_size, (num_rows,), profile=profile)
        self._module, self._cache = modules[0], cache
        self._fused = FusedStep(w, cache, kernels, num_rows)
        self._fused._cached_boxes = emulated_map(cache.data.flatten(1, 2), BOX_TOKENS)
        self.clocks = self._fused.clocks

    def __call__(
        self, ids: torch.Tensor, positions: torch.Tensor, tables: torch.Tensor, leads: torch.Tensor, seed: int = 0
    ) -> torch.Tensor:
        """As FusedStep; fails where a thread reads what it may not, or waits for ever."""
        fused = self._fused
        given = [ids, positions, tables, leads]
        self._module.memory = [*given, self._cache.data, *fused._weight_tensors, *fused._buffers]
        self._module.seed = seed
        return fused(*given).clone()


class EmulatedAttention(RaggedAttention):
    """Over the emulator: a device of `num_programs` multiprocessors with the shared memory of a Hopper."""

    def __init__(self, w: FastWeights, block_size: int, num_programs: int, folder: Path) -> None:
        with pytest.MonkeyPatch.context() as patch:

            def compiled(files: Sequence[Path], defines: Mapping[str, int]) -> EmulatedModule:
                self.module = EmulatedModule("ragged", folder, defines, files)
                return self.module

            device = SimpleNamespace(
                multi_processor_count=num_programs, shared_memory_per_block_optin=227 << 10,
                shared_memory_per_multiprocessor=228 << 10,
            )  # fmt: skip
            patch.setattr(torch.cuda, "get_device_properties", lambda *_: device)
            patch.setattr(torch.cuda, "set_device", lambda *_: None)
            patch.setattr(ragged, "CudaModule", compiled)
            super().__init__(w, block_size)

    def _launch(self, tensors: list[torch.Tensor], sizes: list[int]) -> None:
        """Fails where a thread reads what it may not, or waits for ever."""
        whole = [torch.empty(0, dtype=tensor.dtype).set_(tensor.untyped_storage()) for tensor in tensors]
        self.module.memory = [*{tensor.data_ptr(): tensor for tensor in whole}.values()]
        super()._launch(tensors, sizes)
