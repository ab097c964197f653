"""Planning needs the standard library alone."""

import os
import subprocess
import sys
from pathlib import Path

import octavo_engine

FOLDER = Path(octavo_engine.__file__).parent
BLOCK_AND_IMPORT = """
import importlib, sys
for name in ("torch", "transformers", "numpy", "flash_attn", "tokenizers", "octavo_engine.runner"):
    sys.modules[name] = None
for name in sys.argv[1:]:
    importlib.import_module(name)
"""


def test_every_planning_module_imports_without_a_tensor_library() -> None:
    modules = [f"octavo_engine.{path.stem}" for path in sorted(FOLDER.glob("*.py"))]
    assert {"octavo_engine.engine", "octavo_engine.scheduler", "octavo_engine.echo"} <= set(modules)
    done = subprocess.run(
        [sys.executable, "-c", BLOCK_AND_IMPORT, *modules],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
