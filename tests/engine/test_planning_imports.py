"""Planning needs the standard library alone."""

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import octavo_engine

FOLDER = Path(octavo_engine.__file__).parent
ROOT = Path(__file__).parents[2]
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


def test_the_rule_for_planning_lists_every_planning_module() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    (planning,) = (contract for contract in contracts if contract["name"].startswith("Planning"))
    joins_both_halves = {"__init__", "llm"}
    modules = sorted(path.stem for path in FOLDER.glob("*.py") if path.stem not in joins_both_halves)
    assert planning["source_modules"] == [f"octavo_engine.{name}" for name in modules]
