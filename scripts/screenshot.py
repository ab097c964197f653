"""Makes docs/screenshot.svg: the real UI over a real host, with two chats that answer at once.

It uses the default model if that is on this machine, else the demo engine, and a folder of its own for everything.
"""

import argparse
import asyncio
import tempfile
from pathlib import Path

from octavo.config import Settings
from octavo.errors import OctavoError
from octavo.launcher import connect
from octavo.models.resolve import resolve
from octavo.paths import Paths
from octavo.ui.app import OctavoApp
from octavo.workspace import Workspace
from octavo_engine.params import SamplingParams

QUESTIONS = (
    "Write a letter to a friend about a walk in the autumn woods.",
    "Write a Python function that counts the words of a text, and explain it.",
)
DEMO = (
    "The demo engine says again what it was told, a few letters at a time, while another chat is answered in the "
    "same steps. Both share one paged cache of keys and values, and a prompt that begins alike is computed once.",
    "This one is written at the same moment. Switch between the two with alt and an arrow: neither stops, and what "
    "you have typed stays where you typed it.",
)
ENOUGH = 330  # characters of each reply
TIMEOUT_S = 120.0


def choose(paths: Paths) -> tuple[str, tuple[str, ...]]:
    """The model, and what to ask it."""
    try:
        resolve(Settings().model, paths)
    except OctavoError:
        return "echo:40", DEMO
    return Settings().model, QUESTIONS


async def ask_both(app: OctavoApp, questions: tuple[str, ...], enough: int) -> str:
    """Ask each question in a chat of its own, wait until both replies have some text, and take the picture."""
    async with asyncio.timeout(TIMEOUT_S), app.run_test(size=(100, 30)) as pilot:
        for question in questions:
            await pilot.press("ctrl+n")
            assert app.view.session is not None
            app.view.session.params = SamplingParams(temperature=0)  # the same words each time
            app.view.composer.insert(question)
            await pilot.press("enter")
        sessions = [session for session in app.workspace.sessions if session.turns]
        while any(session.is_busy and len(session.turns[-1].reply) < enough for session in sessions):
            await pilot.pause(0.05)
        await pilot.pause(1.1)  # for the figures of the status line
        svg = app.export_screenshot(title="Octavo")
        await asyncio.gather(*(session.stop() for session in sessions))
    return svg


async def make(paths: Paths, model: str, questions: tuple[str, ...], enough: int) -> str:
    """Start a host, take the picture, stop the host."""
    settings = Settings(model=model)
    async with await connect(settings, paths) as client:
        svg = await ask_both(OctavoApp(Workspace(settings, paths)), questions, enough)
        await client.shutdown()
    return svg


def main() -> None:
    """Take the picture and write it."""
    parser = argparse.ArgumentParser(prog="scripts/screenshot", description=__doc__)
    parser.add_argument("output", nargs="?", type=Path, default=Path("docs/screenshot.svg"))
    output: Path = parser.parse_args().output
    own = Paths.from_env()
    model, questions = choose(own)
    with tempfile.TemporaryDirectory(prefix="octavo-shot-") as home:
        paths = Paths.below(Path(home))
        paths.data_dir.mkdir()
        if own.models_dir.is_dir():
            paths.models_dir.symlink_to(own.models_dir)
        svg = asyncio.run(make(paths, model, questions, 100 if model.startswith("echo") else ENOUGH))
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(svg, "utf-8")


if __name__ == "__main__":
    main()
