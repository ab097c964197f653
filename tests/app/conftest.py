"""What the tests of the app share: hosts of the demo engine, and the command line in folders of its own."""

import os
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio
from tests.app.cli_stage import Run, command
from tests.app.host_stage import HostStage, host_stage


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    return os.environ | {"OCTAVO_HOME": str(tmp_path), "PYTHONPATH": os.pathsep.join(sys.path), "NO_COLOR": "1"}


@pytest.fixture
def octavo(env: dict[str, str], tmp_path: Path) -> Run:
    """Runs `octavo` with arguments, in folders of this test alone."""

    def run(*arguments: str, stdin: str = "") -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            command(*arguments), env=env, cwd=tmp_path, input=stdin, capture_output=True, text=True, timeout=60
        )

    return run


@pytest.fixture
def echo(octavo: Run) -> Iterator[str]:
    """The demo engine; one step of it takes 5 ms, so that there is something to interrupt."""
    model = "echo:5"
    yield model
    octavo("engine", "stop", "-m", model)


@pytest_asyncio.fixture
async def stage() -> AsyncIterator[HostStage]:
    """Folders of this test alone, and the hosts in them."""
    async with host_stage() as made:
        yield made
