"""What becomes of CUDA kernels where something is missing: a reason, never a load that fails; no GPU is asked."""

import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import platformdirs
import pytest
import torch

from octavo_engine.runner.fast.cuda_module import CudaModule, CudaModuleError

CUBIN = b"machine code"


class FakeNvrtc(ModuleType):
    """Counts what it compiles; `missing` is what it raises instead, `is_wrong` that no source compiles."""

    def __init__(self) -> None:
        super().__init__("nvrtc")
        self.num_compiled = 0
        self.missing = ""
        self.is_wrong = False

    def nvrtcCreateProgram(self, *_: Any) -> tuple[int, str]:  # noqa: N802
        if self.missing:
            raise RuntimeError(self.missing)
        return 0, "program"

    def nvrtcCompileProgram(self, *_: Any) -> tuple[int]:  # noqa: N802
        self.num_compiled += 1
        return (int(self.is_wrong),)

    def nvrtcGetProgramLogSize(self, _: Any) -> tuple[int, int]:  # noqa: N802
        return 0, 12

    def nvrtcGetProgramLog(self, _: Any, text: bytes) -> tuple[int]:  # noqa: N802
        return (0,)

    def nvrtcGetCUBINSize(self, _: Any) -> tuple[int, int]:  # noqa: N802
        return 0, len(CUBIN)

    def nvrtcGetCUBIN(self, _: Any, cubin: bytes) -> tuple[int]:  # noqa: N802
        return (0,)

    def nvrtcDestroyProgram(self, _: Any) -> tuple[int]:  # noqa: N802
        return (0,)


@pytest.fixture
def nvrtc(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FakeNvrtc:
    """A machine with a GPU and NVRTC, whose cache is below `tmp_path`."""
    fake, bindings = FakeNvrtc(), ModuleType("cuda.bindings")
    driver = SimpleNamespace(cuModuleLoadData=lambda cubin: (int(len(cubin) != len(CUBIN)), "module"))
    vars(bindings).update(driver=driver, nvrtc=fake)
    monkeypatch.setitem(sys.modules, "cuda", ModuleType("cuda"))
    monkeypatch.setitem(sys.modules, "cuda.bindings", bindings)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda *_: (9, 0))
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: None)
    monkeypatch.setenv("OCTAVO_HOME", str(tmp_path))
    return fake


@pytest.fixture
def source(tmp_path: Path) -> Path:
    file = tmp_path / "kernel.cu"
    file.write_text("// nothing")
    return file


def test_a_kernel_is_compiled_once_for_each_set_of_constants(nvrtc: FakeNvrtc, source: Path, tmp_path: Path) -> None:
    for size in (8, 8, 16):
        CudaModule([source], {"SIZE": size})
    assert nvrtc.num_compiled == 2
    files = [*(tmp_path / "cache" / "kernels").iterdir()]
    assert [file.suffix for file in files] == [".cubin"] * 2
    assert {len(file.read_bytes()) for file in files} == {len(CUBIN)}


@pytest.mark.parametrize("broken", [b"", CUBIN[:5], b"{}" * 500])
def test_a_broken_file_is_replaced_once(
    nvrtc: FakeNvrtc, source: Path, tmp_path: Path, broken: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    CudaModule([source], {})
    (file,) = (tmp_path / "cache" / "kernels").iterdir()
    whole = file.read_bytes()
    file.write_bytes(broken)
    for _ in range(2):
        CudaModule([source], {})
    assert (file.read_bytes(), nvrtc.num_compiled) == (whole, 2)
    assert caplog.text.count("are compiled anew") == 1


def test_where_nothing_can_be_kept_kernels_are_compiled_each_time(
    nvrtc: FakeNvrtc, source: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "cache").write_text("a file, where a folder should be")
    for _ in range(2):
        CudaModule([source], {})
    assert nvrtc.num_compiled == 2
    assert "compiled kernels are not kept" in caplog.text


def test_without_a_home_nothing_is_written_to_the_working_folder(
    nvrtc: FakeNvrtc, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delenv("OCTAVO_HOME")
    monkeypatch.setattr(platformdirs, "user_cache_path", lambda *_: Path("~/.cache/octavo"))
    monkeypatch.chdir(tmp_path)
    CudaModule([source], {})
    assert [*tmp_path.iterdir()] == [source]
    assert "there is no home folder for ~/.cache/octavo" in caplog.text


def test_a_write_that_fails_leaves_no_half_file(nvrtc: FakeNvrtc, source: Path, tmp_path: Path) -> None:
    def fail(self: Path, data: bytes) -> None:
        self.touch()
        raise OSError("the disk is full")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Path, "write_bytes", fail)
        CudaModule([source], {})
    assert [*(tmp_path / "cache" / "kernels").iterdir()] == []


@pytest.mark.parametrize("missing", ["bindings", "library", "sense"])
def test_what_is_missing_is_a_reason(
    nvrtc: FakeNvrtc, source: Path, monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    reasons = {
        "bindings": "cuda-bindings cannot be imported",
        "library": "NVRTC cannot be loaded",
        "sense": "a CUDA kernel does not compile",
    }
    if missing == "bindings":
        monkeypatch.setitem(sys.modules, "cuda.bindings", None)
    nvrtc.missing = "no libnvrtc.so" if missing == "library" else ""
    nvrtc.is_wrong = missing == "sense"
    with pytest.raises(CudaModuleError, match=reasons[missing]):
        CudaModule([source], {})
