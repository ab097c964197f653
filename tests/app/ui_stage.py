"""Puts the UI on a stage: an app over fake sessions, run without a terminal."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable

import pytest
from tests.app.host_stage import DEADLINE_S
from tests.app.ui_fakes import READY, FakeSession, FakeWorkspace
from textual.pilot import Pilot

from octavo.ui import status_line
from octavo.ui.app import OctavoApp
from octavo.workspace import HostView


class Stage:
    """The app, its pilot, and the sessions by name."""

    def __init__(self, *sessions: FakeSession, host: HostView = READY, chat_id: str | None = None) -> None:
        self.workspace = FakeWorkspace(*sessions, host=host)
        self.app = OctavoApp(self.workspace, chat_id)
        self.pilot: Pilot[int]

    @contextlib.asynccontextmanager
    async def open(self, width: int = 100, height: int = 30) -> AsyncIterator["Stage"]:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(status_line, "NOTICE_S", DEADLINE_S)  # a slow machine may look later than a person
            async with self.app.run_test(size=(width, height)) as self.pilot:
                await self.settle()
                yield self

    async def settle(self) -> None:
        await settle(self.app, self.pilot)

    async def until(self, condition: Callable[[], object]) -> None:
        await until(self.pilot, condition)

    async def press(self, *keys: str) -> None:
        await self.pilot.press(*keys)
        await self.settle()

    @property
    def current(self) -> FakeSession:
        session = self.app.view.session
        assert isinstance(session, FakeSession)
        return session

    @property
    def typed(self) -> str:
        return self.app.view.composer.text

    @property
    def notice(self) -> str:
        return self.app.keys.notice

    @property
    def banner(self) -> str:
        return self.app.view.banner.text if self.app.view.banner.display else ""

    def screen_text(self) -> str:
        """What a person sees, row by row."""
        width, height = self.app.size
        strips = self.app.screen._compositor.render_strips()  # there is no public way to ask
        return "\n".join(strip.text[:width].rstrip() for strip in strips[:height])


async def settle(app: OctavoApp, pilot: Pilot[int]) -> None:
    """Let every message, what comes of it, and at least one frame pass, however often the machine stalls."""
    await _pass_messages(pilot)
    await until(pilot, lambda: not (app._frames._is_due and app.is_running))
    await _pass_messages(pilot)
    await pilot.pause(0.05)
    await pilot.pause()


async def until(pilot: Pilot[int], condition: Callable[[], object]) -> None:
    """Let the app run until it is so; fails after a minute."""
    async with asyncio.timeout(DEADLINE_S):
        while not condition():
            await pilot.pause(0.01)


async def _pass_messages(pilot: Pilot[int]) -> None:
    """A key passes a few queues before something is drawn; each round empties all of them once."""
    for _ in range(8):
        await pilot.pause(0)


def stored(title: str, chat_id: str, *turns: tuple[str, str]) -> FakeSession:
    """A session of a chat with finished turns."""
    session = FakeSession(title, chat_id)
    for prompt, reply in turns:
        session.add_turn(prompt, reply)
    return session
