"""A store that cannot be written: replies stream to their end, the person is told, and nothing earlier is lost."""

import asyncio
import contextlib
import os
import resource
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest
from tests.app import ui_stage
from tests.app.host_stage import DEADLINE_S, HostStage, until

from octavo import launcher
from octavo.client import Client
from octavo.protocol import Notice, TurnDelta, TurnFinished
from octavo.ui.app import OctavoApp
from octavo.workspace import Workspace
from octavo_data import StoreError, TurnStatus

MODEL = "echo:3"
LONG = "word " * 200  # the echo takes more than three seconds, so the disk is full for some flushes
pytestmark = pytest.mark.skipif(not hasattr(resource, "prlimit"), reason="takes Linux")
Full = Callable[[HostStage, Client], contextlib.AbstractContextManager[None]]


@contextlib.contextmanager
def limited(_: HostStage, client: Client) -> Iterator[None]:
    """The host's files may not grow, which the kernel may say of a disk too."""
    most = resource.prlimit(client.pid, resource.RLIMIT_FSIZE)[1]
    resource.prlimit(client.pid, resource.RLIMIT_FSIZE, (1, most))
    yield
    resource.prlimit(client.pid, resource.RLIMIT_FSIZE, (most, most))


@contextlib.contextmanager
def filled(stage: HostStage, _: Client) -> Iterator[None]:
    """The disk of the store, a small one, is full."""
    ballast = stage.paths.data_dir / "ballast"
    with ballast.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(b"x" * 4096)
    yield
    ballast.unlink()


@contextlib.contextmanager
def mounted(place: Path, *options: str) -> Iterator[None]:
    """Skips where that is not allowed: it takes root."""
    done = subprocess.run(["mount", *options, place], capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(done.stderr.strip())
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", place], check=True)


async def ask(client: Client, prompt: str, chat_id: str | None = None) -> tuple[str | None, str | None, list[Notice]]:
    """A whole reply, which is told to its end; the ids of its chat and turn, and what was noticed."""
    reply = client.submit(prompt, chat_id=chat_id)
    async with asyncio.timeout(DEADLINE_S):
        frames = [frame async for frame in reply]
    assert "".join(frame.text for frame in frames if isinstance(frame, TurnDelta)) == prompt
    assert isinstance(frames[-1], TurnFinished)
    accepted = await reply.accepted()
    return accepted.chat_id, accepted.turn_id, [frame for frame in frames if isinstance(frame, Notice)]


async def assert_nothing_is_lost_while_full(stage: HostStage, full: Full) -> None:
    client = await stage.connect(MODEL)
    chat, _, notices = await ask(client, "First.")
    assert (notices, chat is None) == ([], False)
    asking = asyncio.create_task(ask(client, LONG, chat))
    with stage.store() as store:
        await until(lambda: store.turns(chat or "")[-1].prompt == LONG)
        with full(stage, client):
            _, _, (notice,) = await asking
            assert "The reply cannot be stored at the moment: cannot write to" in notice.text
            assert "space" in notice.remedy
            for chat_id in (chat, chat, None):  # one line each time, and the chat goes on
                _, turn, (notice,) = await ask(client, "In between.", chat_id)
                assert (turn, "This turn cannot be stored" in notice.text) == (None, True)
            assert store.turns(chat or "")[0].reply == "First."
        _, turn, notices = await ask(client, "Space again.", chat)
        assert (turn is None, notices) == (False, [])
        await until(lambda: store.turns(chat or "")[1].status is TurnStatus.DONE)
        turns = store.turns(chat or "")
        assert [(turn.prompt, turn.status) for turn in turns] == [
            (prompt, TurnStatus.DONE) for prompt in ("First.", LONG, "Space again.")
        ]
        assert [turn.reply for turn in turns] == [turn.prompt for turn in turns]
        context = bytes(token for token in store.token_ids(turns[-1].id) if token < 256).decode()
    assert context.count(LONG) == 2  # the model was asked with all of the reply whose end was not stored


async def test_a_host_whose_files_cannot_grow_streams_and_tells_and_stores_what_it_owes(stage: HostStage) -> None:
    await assert_nothing_is_lost_while_full(stage, limited)


async def test_on_a_full_disk_a_host_streams_and_tells_and_stores_what_it_owes(stage: HostStage) -> None:
    stage.paths.data_dir.mkdir(parents=True)
    with mounted(stage.paths.data_dir, "-t", "tmpfs", "-o", "size=1m", "none"):
        await assert_nothing_is_lost_while_full(stage, filled)


async def test_a_file_that_may_only_be_read_is_told_and_written_again_once_it_may(stage: HostStage) -> None:
    chat, *_ = await ask(await stage.connect(MODEL), "First.")
    await launcher.stop(stage.paths)
    file = stage.paths.store_file
    with mounted(file, "--bind", "-o", "ro", str(file)):
        client = await stage.connect(MODEL)
        for chat_id in (chat, None):
            _, turn, (notice,) = await ask(client, "Read only.", chat_id)
            assert (turn, notice.remedy) == (None, "Make the file and its folder writable.")
    _, turn, notices = await ask(client, "Writable.", chat)
    assert (turn is None, notices) == (False, [])
    with stage.store() as store:
        assert [turn.reply for turn in store.turns(chat or "")] == ["First.", "Writable."]


async def test_a_host_does_not_rest_before_it_has_stored_what_it_owes(stage: HostStage) -> None:
    stage.settings = msgspec.structs.replace(stage.settings, idle_minutes=0.005)
    client = await stage.connect(MODEL)
    asking = asyncio.create_task(ask(client, LONG))
    with stage.store() as store:
        await until(lambda: _is_begun(stage))
        with limited(stage, client):
            chat, *_ = await asking
            assert not await client.give_way("another")
            await client.aclose()
            await asyncio.sleep(1.5)  # longer than it waits for work
            assert not stage.is_host_gone(MODEL)
        await until(lambda: stage.is_host_gone(MODEL))
        (turn,) = store.turns(chat or "")
    assert (turn.status, turn.reply) == (TurnStatus.DONE, LONG)


def _is_begun(stage: HostStage) -> bool:
    with contextlib.suppress(StoreError), stage.store() as store:
        return bool(store.running_hosts())
    return False


async def test_the_command_line_prints_the_reply_and_one_line_about_the_disk(stage: HostStage) -> None:
    client = await stage.connect(MODEL)
    chat, *_ = await ask(client, "First.")
    env = os.environ | {"OCTAVO_HOME": str(stage.paths.data_dir.parent), "PYTHONPATH": os.pathsep.join(sys.path)}
    arguments = (sys.executable, "-P", "-m", "octavo", "ask", "-m", MODEL, "--chat", chat or "", "On a full disk.")
    pipe, nothing = asyncio.subprocess.PIPE, asyncio.subprocess.DEVNULL
    with limited(stage, client):
        process = await asyncio.create_subprocess_exec(*arguments, env=env, stdin=nothing, stdout=pipe, stderr=pipe)
        out, err = await process.communicate()
    assert (process.returncode, out) == (0, b"On a full disk.\n")
    assert err.startswith(b"octavo: This turn cannot be stored: cannot write to ")
    assert err.endswith(b". Check the disk and its free space.\n")
    assert err.count(b"\n") == 1


async def test_the_ui_shows_the_reply_and_says_that_it_is_not_stored(stage: HostStage) -> None:
    client = await stage.connect(MODEL)
    app = OctavoApp(Workspace(msgspec.structs.replace(stage.settings, model=MODEL), stage.paths))
    async with app.run_test(size=(100, 30)) as pilot:
        with limited(stage, client):
            await pilot.press("ctrl+n", *"on a full disk", "enter")
            session = app.view.session
            assert session is not None
            await ui_stage.until(
                pilot, lambda: "This turn cannot be stored" in app.view.banner.text and not session.is_busy
            )
            assert session.turns[-1].reply == "on a full disk"
            assert app.view.banner.display
