"""`octavo` alone: start the host while this is still a plain terminal, then open the terminal UI."""

import asyncio
import contextlib
import importlib
import sys

import click

from octavo.cli.setup import load, with_model
from octavo.config import Settings
from octavo.errors import OctavoError
from octavo.launcher import connect
from octavo.paths import Paths


def open_ui(model: str | None) -> int:
    """Run the UI until it is left and return its exit code; raises UsageError, ConfigError, StoreError.

    Without a host it still opens, and says why.
    """
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise click.UsageError('The terminal UI needs a terminal. For one question write octavo "your question".')
    settings, paths = load()
    with contextlib.suppress(OctavoError):  # a wrong model name: the UI says so
        settings = with_model(settings, model)
    asyncio.run(_prepare(settings, paths))
    from octavo.ui.run import run

    return run(settings, paths)


async def _prepare(settings: Settings, paths: Paths) -> None:
    """Start the host, whose process must not inherit the terminal of the UI, and import the UI meanwhile."""
    importing = asyncio.to_thread(importlib.import_module, "octavo.ui.run")
    await asyncio.gather(importing, _start_host(settings, paths))


async def _start_host(settings: Settings, paths: Paths) -> None:
    with contextlib.suppress(OctavoError, OSError):  # the UI tries again, and shows the reason
        async with await connect(settings, paths):
            pass
