"""Runs the terminal UI from its opening to its end, whatever that is."""

import asyncio
import logging
import signal
import sys

from octavo.config import Settings
from octavo.paths import Paths
from octavo.ui.app import OctavoApp
from octavo.ui.pasting import use_paste_parser
from octavo.ui.plain import plain
from octavo.ui.words import title_of
from octavo.workspace import Workspace


def run(settings: Settings, paths: Paths) -> int:
    """Run the UI until it is quit; returns the exit code. Raises OctavoError when the store cannot be opened.

    Whatever ends it, what was typed and not sent is left on stderr, where it can be copied.
    """
    workspace = Workspace(settings, paths)
    paths.log_file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    logging.basicConfig(filename=paths.log_file, level=logging.WARNING)  # stderr is the screen
    app = OctavoApp(workspace, log_file=paths.log_file)
    use_paste_parser()
    asyncio.run(_run(app))
    _save_drafts(workspace)
    return app.return_code or 0


async def _run(app: OctavoApp) -> None:
    """Until the app ends, which a SIGTERM asks it to, so that the terminal is left in order."""
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, lambda: app.exit(return_code=128 + signal.SIGTERM))
    await app.run_async()


def _save_drafts(workspace: Workspace) -> None:
    for session in workspace.sessions:
        if session.draft.strip():
            sys.stderr.write(f"octavo: not sent in {title_of(session)}:\n{plain(session.draft)}\n")
