"""The UI over a real host with the demo engine, and over one that cannot start."""

import functools
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from textual.app import App
from textual.pilot import Pilot

from octavo.config import Settings
from octavo.launcher import connect
from octavo.paths import Paths
from octavo.ui.app import OctavoApp
from octavo.ui.run import run
from octavo.ui.status_line import StatusLine
from octavo.workspace import HostState, Workspace
from octavo_data import Store

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
        assert app.status.cached.endswith(" cached")

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


def test_a_ui_that_dies_of_a_bug_prints_what_was_not_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def type_then_break(app: OctavoApp) -> None:
        if not app.view.composer.text:
            app.view.composer.insert("a thought")
        else:
            monkeypatch.setattr(StatusLine, "render", lambda _: 1 / 0)
            app.status.refresh()

    monkeypatch.setattr("octavo.ui.app.POLL_S", 0.3)
    monkeypatch.setattr(OctavoApp, "_poll", type_then_break)
    monkeypatch.setattr(OctavoApp, "run", functools.partialmethod(App.run, headless=True))
    assert run(Settings(model="smollm2-135m"), Paths.below(tmp_path)) == 1  # not on this machine: no host starts
    assert capsys.readouterr().err.endswith("octavo: not sent in New chat:\na thought\n")


async def test_a_store_of_a_newer_version_is_read_and_said_to_be_so(paths: Paths) -> None:
    Store(paths.store_file).close()
    with sqlite3.connect(paths.store_file) as store:
        store.execute("INSERT INTO migrations VALUES ('m999_later', 0)")
    app = OctavoApp(Workspace(SETTINGS, paths))
    async with app.run_test(size=(100, 30)) as pilot:
        while app.workspace.host.state is not HostState.READY:
            await pilot.pause(0.02)
        await pilot.pause(0.1)
        assert "written by a newer octavo" in app.view.banner.text


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
