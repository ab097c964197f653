"""The own kernels under compute-sanitizer's memory checker."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

LIMIT_S = 240
MEMCHECK = (
    "compute-sanitizer",
    "--tool=memcheck",
    "--error-exitcode=9",
    "--launch-timeout=200",  # until the process first calls CUDA; 10 by default, which importing torch may take
    "--target-processes=application-only",
    "--report-api-errors=no",  # cuda-bindings asks the driver for functions that it may not have
)


def launch_all(env: dict[str, str], *checker: str) -> str:
    """Run `tests.gpu.sanitized` and return what it and its checker said; a run past its limit ends with its group."""
    done = subprocess.run(
        ["timeout", "--kill-after=10", str(LIMIT_S), *checker, sys.executable, "-u", "-m", "tests.gpu.sanitized"],
        env=os.environ | env,
        cwd=Path(__file__).parents[2],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    print(done.stdout)
    assert done.returncode == 0, f"exit status {done.returncode} (124: over {LIMIT_S} s)\n{done.stdout[-4000:]}"
    return done.stdout


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("compute-sanitizer") is None, reason="compute-sanitizer is not installed")
def test_the_kernels_touch_no_memory_that_is_not_theirs(tmp_path: Path) -> None:
    """Compiled without the checker first; then each tensor is an allocation of its own, whose bounds are checked."""
    cache = {"TRITON_CACHE_DIR": str(tmp_path)}
    launch_all(cache)
    said = launch_all(cache | {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}, *MEMCHECK)
    assert "advance, drawn" in said
    assert "ERROR SUMMARY: 0 errors" in said
