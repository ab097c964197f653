"""Real hosts of the demo engine for tests, each in folders of its own, and none left behind."""

import asyncio
import contextlib
import os
import shutil
import signal
import tempfile
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import psutil

from octavo import launcher
from octavo.client import Client
from octavo.config import Settings
from octavo.host_lock import is_free
from octavo.paths import Paths
from octavo.protocol import TurnDelta, TurnFinished
from octavo.reply import Reply
from octavo.session import Change, Session
from octavo.workspace import Workspace
from octavo_data import Store

DEADLINE_S = 60.0  # generous: the machine may be busy with something else
FAST = "echo:1"
SLOW = "echo:20"  # the reply to LONG takes more than a minute: whoever waits for its end waits for something else
LONG = "The quick brown fox jumps over the lazy dog. " * 100


@dataclass
class HostStage:
    """Hands out clients and workspaces over one set of folders."""

    paths: Paths
    settings: Settings
    open_things: list[Client | Workspace] = field(default_factory=list)

    async def connect(self, model: str = FAST) -> Client:
        client = await launcher.connect(self._set(model), self.paths)
        self.open_things.append(client)
        return client

    async def workspace(self, model: str = FAST) -> Workspace:
        workspace = Workspace(self._set(model), self.paths)
        self.open_things.append(workspace)
        await workspace.start()
        return workspace

    def store(self) -> Store:
        """To be closed by `with`."""
        return Store(self.paths.store_file)

    def spec(self, model: str = FAST) -> launcher.HostSpec:
        return launcher.HostSpec.of(self._set(model), self.paths)

    def is_host_gone(self, model: str = FAST) -> bool:
        return is_free(self.paths.lock(self.spec(model).key))

    async def close(self) -> None:
        for thing in self.open_things:
            await thing.aclose()
        await launcher.stop(self.paths)
        while self._is_host_left():  # it was starting and did not hold its lock yet
            await asyncio.sleep(0.05)
            await launcher.stop(self.paths)

    def _is_host_left(self) -> bool:
        for process in psutil.Process().children():
            with contextlib.suppress(psutil.Error):  # it has ended
                if any(f"{self.paths.data_dir}" in argument for argument in process.cmdline()):
                    return True
        return False

    def _set(self, model: str) -> Settings:
        return msgspec.structs.replace(self.settings, model=model)


@contextlib.asynccontextmanager
async def host_stage(settings: Settings | None = None) -> AsyncIterator[HostStage]:
    """A stage whose path is short enough for a socket."""
    home = Path(tempfile.mkdtemp(prefix="oct-"))
    stage = HostStage(Paths.below(home), settings or Settings())
    try:
        yield stage
    finally:
        await stage.close()
        shutil.rmtree(home, ignore_errors=True)


async def until(condition: Callable[[], object]) -> None:
    """Wait for something that will come; fails after a minute."""
    async with asyncio.timeout(DEADLINE_S):
        while not condition():  # noqa: ASYNC110  what is waited for happens in another process
            await asyncio.sleep(0.01)


def kill(client: Client) -> None:
    """What the kernel does when memory runs out."""
    os.kill(client.pid, signal.SIGKILL)


def hear(session: Session) -> list[Change]:
    """Everything that the session tells from now on."""
    changes: list[Change] = []
    session.subscribe(changes.append)
    return changes


async def end_of(session: Session) -> None:
    await until(lambda: not session.is_busy)


async def read(reply: Reply) -> tuple[str, TurnFinished]:
    """All of a reply's text and its end."""
    text = ""
    async with asyncio.timeout(DEADLINE_S):
        async for frame in reply:
            if isinstance(frame, TurnDelta):
                text += frame.text
            if isinstance(frame, TurnFinished):
                return text, frame
    raise AssertionError("a reply ends with TurnFinished")


async def first_text(reply: Reply) -> str:
    async for piece in reply.text():
        if piece:
            return piece
    raise AssertionError("the reply has no text")


async def ask(client: Client, prompt: str, chat_id: str | None = None) -> str:
    """A whole stored turn; returns the id of its chat."""
    reply = client.submit(prompt, chat_id=chat_id)
    chat = (await reply.accepted()).chat_id
    assert chat is not None
    await read(reply)
    return chat
