"""Compiles CUDA C++ with NVRTC and launches its kernels; both libraries come with a CUDA build of torch."""

import ctypes
import hashlib
import logging
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import platformdirs
import torch

log = logging.getLogger(__name__)
TENSOR_MAP_BYTES = 128


class CudaModuleError(Exception):
    """Why a kernel cannot be compiled, loaded or launched here."""


class CudaModule:
    """Kernels of one source, for the current device.

    Raises CudaModuleError where cuda-bindings or NVRTC is missing or the source does not compile.
    """

    def __init__(self, files: Sequence[Path], defines: Mapping[str, int]) -> None:
        try:
            from cuda.bindings import driver, nvrtc
        except ImportError as error:
            raise CudaModuleError(f"cuda-bindings cannot be imported ({error})") from error
        self._driver: Any = driver
        source = "\n".join(file.read_text() for file in files).encode()
        major, minor = torch.cuda.get_device_capability()
        options = [f"--gpu-architecture=sm_{major}{minor}a", "--std=c++17", "-default-device"]
        options += [f"-D{name}={value}" for name, value in defines.items()]
        torch.cuda.current_stream()  # the context that the module is loaded into
        self._module = self._load(source, options, lambda: _compile(nvrtc, source, options))

    def _load(self, source: bytes, options: list[str], build: Callable[[], bytes]) -> Any:
        """The module; compiled code is kept between runs, as compiling takes seconds, and replaced if it is broken."""
        file = _file(source, options)
        try:
            return _checked(self._driver.cuModuleLoadData(file.read_bytes()))
        except (FileNotFoundError, NotADirectoryError):
            pass
        except (OSError, CudaModuleError) as error:
            log.warning("compiled kernels that were kept cannot be used, and are compiled anew: %s", error)
        cubin = build()
        try:
            _write(file, cubin)
        except OSError as error:
            log.warning("compiled kernels are not kept: %s", error)
        return _checked(self._driver.cuModuleLoadData(cubin))

    def kernel(self, name: str, shared_bytes: int = 0) -> "Kernel":
        """The function of this name, which may ask for `shared_bytes` of dynamic shared memory."""
        function = _checked(self._driver.cuModuleGetFunction(self._module, name.encode()))
        limit = self._driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        _checked(self._driver.cuFuncSetAttribute(function, limit, shared_bytes))
        return Kernel(self._driver, function, shared_bytes)


class Kernel:
    """A function that takes one structure by value."""

    def __init__(self, driver: Any, function: Any, shared_bytes: int) -> None:
        self._driver, self._function, self._shared_bytes = driver, function, shared_bytes

    def launch(self, num_blocks: int, num_threads: int, params: bytes, *, must_meet: bool = False) -> None:
        """Enqueue it on torch's current stream. With `must_meet` it fails where not all blocks run at once."""
        packed = ctypes.create_string_buffer(params, len(params))
        pointers = (ctypes.c_void_p * 1)(ctypes.addressof(packed))
        launch = self._driver.cuLaunchCooperativeKernel if must_meet else self._driver.cuLaunchKernel
        sizes = (num_blocks, 1, 1, num_threads, 1, 1, self._shared_bytes)
        rest = () if must_meet else (0,)
        _checked(
            launch(self._function, *sizes, torch.cuda.current_stream().cuda_stream, ctypes.addressof(pointers), *rest)
        )


def tensor_map(tensor: torch.Tensor, box: Sequence[int]) -> bytes:
    """What a kernel wants to copy boxes of a contiguous bfloat16 tensor of five dimensions: a CUtensorMap, 128 bytes.

    `box`: numbers of each dimension, inner ones last as in the tensor's shape, at most 256. See the CUDA driver's
    cuTensorMapEncodeTiled. Raises CudaModuleError.
    """
    from cuda.bindings import driver

    sizes = [driver.cuuint64_t(size) for size in reversed(tensor.shape)]
    strides = [driver.cuuint64_t(stride * tensor.itemsize) for stride in reversed(tensor.stride()[:-1])]
    boxes = [driver.cuuint32_t(size) for size in reversed(box)]
    encoded = _checked(
        driver.cuTensorMapEncodeTiled(
            driver.CUtensorMapDataType.CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
            tensor.dim(),
            tensor.data_ptr(),
            sizes,
            strides,
            boxes,
            [driver.cuuint32_t(1)] * tensor.dim(),
            driver.CUtensorMapInterleave.CU_TENSOR_MAP_INTERLEAVE_NONE,
            driver.CUtensorMapSwizzle.CU_TENSOR_MAP_SWIZZLE_NONE,
            driver.CUtensorMapL2promotion.CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
            driver.CUtensorMapFloatOOBfill.CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
        )
    )
    return ctypes.string_at(encoded.getPtr(), TENSOR_MAP_BYTES)


def _compile(nvrtc: Any, source: bytes, options: list[str]) -> bytes:
    try:
        program = _checked(nvrtc.nvrtcCreateProgram(source, b"octavo.cu", 0, [], []))
    except RuntimeError as error:  # cuda-bindings looks for the library at the first call
        raise CudaModuleError(f"NVRTC cannot be loaded ({str(error).strip()})") from error
    try:
        encoded = [option.encode() for option in options]
        (status,) = nvrtc.nvrtcCompileProgram(program, len(encoded), encoded)
        if int(status):
            text = b" " * _checked(nvrtc.nvrtcGetProgramLogSize(program))
            nvrtc.nvrtcGetProgramLog(program, text)
            raise CudaModuleError(f"a CUDA kernel does not compile: {text.decode(errors='replace')[:2000]}")
        cubin: bytes = b" " * _checked(nvrtc.nvrtcGetCUBINSize(program))
        _checked(nvrtc.nvrtcGetCUBIN(program, cubin))
        return cubin
    finally:
        nvrtc.nvrtcDestroyProgram(program)


def _checked(result: tuple[Any, ...]) -> Any:
    status, *values = result
    if int(status):
        raise CudaModuleError(f"CUDA answered {status!r}")
    return values[0] if values else None


def _file(source: bytes, options: list[str]) -> Path:
    """Where the code is kept that these options make of this source."""
    key = hashlib.blake2b(source + "\0".join([torch.version.cuda or "", *options]).encode(), digest_size=16).hexdigest()
    return _folder() / f"{key}.cubin"


def _folder() -> Path:
    """Beneath OCTAVO_HOME or the user's cache folder, as all that may be removed at any time."""
    home = os.environ.get("OCTAVO_HOME")
    cache = Path(home).expanduser().absolute() / "cache" if home else platformdirs.user_cache_path("octavo", False)
    return cache / "kernels"


def _write(file: Path, data: bytes) -> None:
    """Whole or not at all, whoever writes the same file now. Raises OSError."""
    if not file.is_absolute():
        raise FileNotFoundError(f"there is no home folder for {file}")  # or it would come to lie in the working folder
    file.parent.mkdir(parents=True, exist_ok=True)
    temporary = file.with_suffix(f".{os.getpid()}")
    try:
        temporary.write_bytes(data)
        temporary.replace(file)
    finally:
        temporary.unlink(missing_ok=True)
