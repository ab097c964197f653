"""The UI over a real host with the demo engine, and over one that cannot start."""

import functools
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.app.ui_stage import until
from textual.app import App

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


def replies(app: OctavoApp) -> list[str]:
    """Of all chats that were answered, in no order."""
    turns = [session.turns[-1] for session in app.workspace.sessions if session.turns and not session.is_busy]
    return sorted(turn.reply for turn in turns)


def shown(app: OctavoApp) -> str:
    """The last reply of the chat in view."""
    blocks = app.view.transcript._blocks
    return blocks[-1].reply.text if blocks else ""


async def test_two_chats_answer_at_once_and_are_there_after_a_restart(paths: Paths) -> None:
    app = OctavoApp(Workspace(SETTINGS, paths))
    async with app.run_test(size=(100, 30)) as pilot:
        for text in ("the first of two messages", "the other one"):
            await pilot.press("ctrl+n", *text, "enter")
        await until(pilot, lambda: replies(app) == ["the first of two messages", "the other one"])
        assert app.workspace.host.state is HostState.READY
        await until(pilot, lambda: app.status.cached.endswith(" cached"))

    again = OctavoApp(Workspace(SETTINGS, paths))
    async with again.run_test(size=(100, 30)) as pilot:
        await pilot.press("alt+down")
        await until(pilot, lambda: shown(again))
        one = shown(again)
        await pilot.press("alt+down")
        await until(pilot, lambda: shown(again) != one)
        assert {one, shown(again)} == {"the first of two messages", "the other one"}


async def test_a_stopped_reply_keeps_its_beginning(paths: Paths) -> None:
    app = OctavoApp(Workspace(SETTINGS, paths))
    async with app.run_test(size=(100, 30)) as pilot:
        app.view.composer.insert("many words " * 200)
        await pilot.press("enter")
        session = app.view.session
        assert session is not None
        await until(pilot, lambda: session.turns and session.turns[-1].reply)
        await pilot.press("escape")
        await until(pilot, lambda: not session.is_busy)
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
    monkeypatch.setattr(OctavoApp, "run_async", functools.partialmethod(App.run_async, headless=True))
    assert run(Settings(model="smollm2-135m"), Paths.below(tmp_path)) == 1  # not on this machine: no host starts
    assert capsys.readouterr().err.endswith("octavo: not sent in New chat:\na thought\n")


async def test_a_store_of_a_newer_version_is_read_and_said_to_be_so(paths: Paths) -> None:
    Store(paths.store_file).close()
    with sqlite3.connect(paths.store_file) as store:
        store.execute("INSERT INTO migrations VALUES ('m999_later', 0)")
    app = OctavoApp(Workspace(SETTINGS, paths))
    async with app.run_test(size=(100, 30)) as pilot:
        await until(pilot, lambda: app.workspace.host.state is HostState.READY)
        await until(pilot, lambda: app.view.banner.text)
        assert "written by a newer octavo" in app.view.banner.text


async def test_without_the_model_the_ui_opens_and_keeps_what_is_typed(tmp_path: Path) -> None:
    settings = Settings(model="smollm2-135m")  # it is not in this folder
    app = OctavoApp(Workspace(settings, Paths.below(tmp_path)))
    async with app.run_test(size=(100, 30)) as pilot:
        await pilot.press(*"hello", "enter")
        await until(pilot, lambda: app.view.session and app.view.session.error)
        await until(pilot, lambda: app.view.composer.text == "hello")
        await until(pilot, lambda: "octavo models pull smollm2-135m" in app.view.banner.text)
        assert app.view.banner.display
        assert app.workspace.host.state is HostState.FAILED
