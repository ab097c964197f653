"""The process that draws never imports a tensor library, nor much else before the first paint."""

import subprocess
import sys

SCRIPT = """
import asyncio, sys
from tests.app.ui_stage import Stage, stored

async def main():
    async with Stage(stored("One", "1", ("p", "r"))).open() as stage:
        await stage.press(*"hi", "enter")

asyncio.run(main())
loaded = {name.partition(".")[0] for name in sys.modules}
print(*sorted(loaded & {"torch", "transformers", "numpy", "flash_attn", "safetensors", "huggingface_hub"}))
"""


def test_the_ui_runs_without_torch_and_transformers() -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


def test_importing_the_ui_brings_no_heavy_module() -> None:
    script = "import sys, octavo.ui.run; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    heavy = {"torch", "transformers", "numpy", "sqlite_utils", "pygments", "markdown_it", "tree_sitter", "jinja2"}
    assert not heavy & set(done.stdout.split())
