"""Runs the terminal UI from its opening to its end, whatever that is."""

import logging
import sys

from octavo.config import Settings
from octavo.paths import Paths
from octavo.ui.app import OctavoApp
from octavo.ui.plain import plain
from octavo.ui.words import title_of
from octavo.workspace import Workspace


def run(settings: Settings, paths: Paths) -> int:
    """Run the UI until it is quit; returns the exit code. Raises OctavoError when the store cannot be opened."""
    workspace = Workspace(settings, paths)
    paths.log_file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    logging.basicConfig(filename=paths.log_file, level=logging.WARNING)  # stderr is the screen
    app = OctavoApp(workspace, log_file=paths.log_file)
    app.run()
    if app.return_code:
        _save_drafts(workspace)
    return app.return_code or 0


def _save_drafts(workspace: Workspace) -> None:
    """The UI has died of a bug: put what was typed and not sent where it can be copied."""
    for session in workspace.sessions:
        if session.draft.strip():
            sys.stderr.write(f"octavo: not sent in {title_of(session)}:\n{plain(session.draft)}\n")
