"""The UI over a real host with the demo engine, and over one that cannot start."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from textual.pilot import Pilot

from octavo.config import Settings
from octavo.launcher import connect
from octavo.paths import Paths
from octavo.ui.app import OctavoApp
from octavo.workspace import HostState, Workspace

SETTINGS = Settings(model="echo:5")


@pytest.fixture
async def paths(tmp_path: Path) -> AsyncIterator[Paths]:
    paths = Paths.below(tmp_path)
    async with await connect(SETTINGS, paths) as client:  # as the command line does, before the UI
        yield paths
        await client.shutdown()


async def until_idle(app: OctavoApp, pilot: Pilot[int]) -> None:
    for _ in range(400):
        await pilot.pause(0.025)
        if not any(session.is_busy for session in app.workspace.sessions):
            return
    raise AssertionError("a chat is still busy")


async def test_two_chats_answer_at_once_and_are_there_after_a_restart(paths: Paths) -> None:
    app = OctavoApp(Workspace(SETTINGS, paths))
    async with app.run_test(size=(100, 30)) as pilot:
        for text in ("the first of two messages", "the other one"):
            await pilot.press("ctrl+n", *text, "enter")
        await until_idle(app, pilot)
        assert [session.turns[-1].reply for session in app.workspace.sessions if session.turns] == [
            "the other one",
            "the first of two messages",
        ]
        assert app.workspace.host.state is HostState.READY
        assert app.status.cached.endswith("prompt tokens cached")

    again = OctavoApp(Workspace(SETTINGS, paths))
    async with again.run_test(size=(100, 30)) as pilot:
        await pilot.press("alt+down", "alt+down")
        assert again.view.session is not None
        assert again.view.session.turns[-1].reply == "the first of two messages"
        assert again.view.transcript._blocks[-1].reply.text == "the first of two messages"


async def test_a_stopped_reply_keeps_its_beginning(paths: Paths) -> None:
    app = OctavoApp(Workspace(SETTINGS, paths))
    async with app.run_test(size=(100, 30)) as pilot:
        app.view.composer.insert("many words " * 200)
        await pilot.press("enter")
        session = app.view.session
        assert session is not None
        while not (session.turns and session.turns[-1].reply):
            await pilot.pause(0.02)
        await pilot.press("escape")
        await until_idle(app, pilot)
        turn = session.turns[-1]
        assert (turn.status, "many words ".startswith(turn.reply[:11])) == ("stopped", True)
        assert len(turn.reply) < len(turn.prompt)


async def test_without_the_model_the_ui_opens_and_keeps_what_is_typed(tmp_path: Path) -> None:
    settings = Settings(model="smollm2-135m")  # it is not in this folder
    app = OctavoApp(Workspace(settings, Paths.below(tmp_path)))
    async with app.run_test(size=(100, 30)) as pilot:
        await pilot.press(*"hello", "enter")
        await until_idle(app, pilot)
        await pilot.pause(0.1)
        assert app.view.composer.text == "hello"
        assert app.view.banner.display
        assert "octavo models pull smollm2-135m" in app.view.banner.text
        assert app.workspace.host.state is HostState.FAILED
