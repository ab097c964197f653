"""The client against hosts that misbehave: old ones, silent ones, ones that vanish."""

import asyncio
import contextlib
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from octavo import client as octavo_client
from octavo import wire
from octavo.client import Client, HostAbsentError
from octavo.errors import HostError, HostLostError, RequestRejectedError
from octavo.protocol import VERSION, Accepted, HostFrame, Ready, TurnDelta, TurnFinished, Welcome
from octavo.wire import pack, read_body
from octavo_engine.events import StopReason, Timings, Usage

Script = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
WELCOME = Welcome(version=VERSION, model="toy", pid=1, is_ready=False)
FINISHED = TurnFinished(request=1, stop_reason=StopReason.STOP, usage=Usage(prompt_tokens=1), timings=Timings())


@asynccontextmanager
async def fake_host(script: Script) -> AsyncIterator[Path]:
    """Plays `script` to whoever connects."""
    async with asyncio.timeout(60):
        served: list[asyncio.Task[None] | None] = []

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            served.append(asyncio.current_task())
            await script(reader, writer)
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

        with tempfile.TemporaryDirectory(prefix="oct-") as folder:
            path = Path(folder) / "host.sock"
            server = await asyncio.start_unix_server(serve, str(path))
            yield path
            server.close()
            await asyncio.gather(*(task for task in served if task))


def saying(*frames: HostFrame, then_wait_for: int = 0) -> Script:
    """Hears Hello and `then_wait_for` frames more, says `frames`, and hangs up."""

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_body(reader)
        writer.write(pack(frames[0]))
        for _ in range(then_wait_for):
            await read_body(reader)
        for frame in frames[1:]:
            writer.write(pack(frame))

    return script


async def test_nobody_at_the_socket_is_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(HostAbsentError, match=r"none\.sock"):
        await Client.open(tmp_path / "none.sock")


async def test_a_host_of_another_version_is_refused_with_the_remedy() -> None:
    async with fake_host(saying(Welcome(version=99, model="toy", pid=1, is_ready=True))) as path:
        with pytest.raises(HostError, match=r"version 99.*`octavo engine stop`"):
            await Client.open(path)


async def test_a_host_that_speaks_gibberish_is_refused_with_the_remedy() -> None:
    async with fake_host(saying(Ready(device="cpu", max_model_len=1))) as path:
        with pytest.raises(HostError, match="octavo engine stop"):
            await Client.open(path)


async def test_a_host_that_does_not_answer_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(octavo_client, "WELCOME_TIMEOUT_S", 0.05)

    async def hang(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        await reader.read()

    async with fake_host(hang) as path:
        with pytest.raises(HostError, match="does not answer"):
            await Client.open(path)


async def test_a_host_that_hangs_up_before_its_welcome_counts_as_absent() -> None:
    async def hang_up(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        await read_body(reader)

    async with fake_host(hang_up) as path:
        with pytest.raises(HostAbsentError):
            await Client.open(path)


async def test_all_that_waits_ends_with_an_error_when_the_host_vanishes() -> None:
    script = saying(WELCOME, Accepted(request=1, chat_id=None, turn_id=None, prompt_tokens=3), then_wait_for=3)
    async with fake_host(script) as path, await Client.open(path) as client:
        changes: list[bool] = []
        client.subscribe(lambda: changes.append(client.closed.is_set()))
        one, two = client.submit("One"), client.submit("Two")
        status = asyncio.create_task(client.status())
        assert (await one.accepted()).prompt_tokens == 3
        for waiting in (two.accepted(), status, client.wait_ready()):
            with pytest.raises(HostLostError, match="Ask again"):
                await waiting
        with pytest.raises(HostLostError):
            async for _ in one:
                pass
        assert changes == [True]
        with pytest.raises(HostLostError):
            client.submit("Three")
        client.stop(one)
        await client.shutdown()


async def test_what_came_before_the_end_is_still_read_after_it() -> None:
    frames = [TurnDelta(request=1, text=text, num_tokens=1) for text in "abc"]
    accepted = Accepted(request=1, chat_id="c", turn_id="t", prompt_tokens=1)
    async with (
        fake_host(saying(WELCOME, accepted, *frames, FINISHED, then_wait_for=1)) as path,
        await Client.open(path) as client,
    ):
        reply = client.submit("Say it")
        await client.closed.wait()
        assert reply.is_over
        assert [text async for text in reply.text()] == ["a", "b", "c"]
        assert [frame async for frame in reply] == []
        assert await reply.accepted() == accepted


async def test_frames_for_nobody_are_passed_over() -> None:
    stray = TurnDelta(request=99, text="?", num_tokens=1)
    accepted = Accepted(request=1, chat_id=None, turn_id=None, prompt_tokens=1)
    script = saying(WELCOME, stray, accepted, FINISHED, FINISHED, then_wait_for=1)
    async with fake_host(script) as path, await Client.open(path) as client:
        assert [frame async for frame in client.submit("Hello")] == [accepted, FINISHED]


async def test_a_prompt_too_large_for_a_frame_is_refused_and_costs_nothing_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    accepted = Accepted(request=2, chat_id=None, turn_id=None, prompt_tokens=1)
    async with fake_host(saying(WELCOME, accepted, then_wait_for=1)) as path, await Client.open(path) as client:
        with monkeypatch.context() as patch:
            patch.setattr(wire, "MAX_FRAME_BYTES", 1000)
            with pytest.raises(RequestRejectedError, match="too large"):
                client.submit("x" * 1000)
        assert await client.submit("Hello").accepted() == accepted


async def test_the_way_out_of_a_subscription_may_be_taken_twice() -> None:
    async with fake_host(saying(WELCOME)) as path, await Client.open(path) as client:
        leave = client.subscribe(lambda: pytest.fail("told after leaving"))
        leave()
        leave()
        await client.closed.wait()
        assert client.closed.is_set()


async def test_closing_twice_is_harmless() -> None:
    async with fake_host(saying(WELCOME)) as path, await Client.open(path) as client:
        await client.aclose()
        await client.aclose()
        assert client.closed.is_set()
