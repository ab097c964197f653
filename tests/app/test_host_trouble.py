"""What befalls a host, its clients and its files costs those whom it befell, who are told, and nobody else."""

import asyncio
import os
import signal

import msgspec
import pytest
from tests.app.host_stage import DEADLINE_S, LONG, SLOW, HostStage, ask, first_text, kill, read, until

from octavo.errors import HostError, HostLostError, OctavoError, RequestRejectedError
from octavo.protocol import Notice, Submit, TurnDelta
from octavo.reply import Reply
from octavo.wire import pack
from octavo_data import TurnStatus
from octavo_engine.events import StopReason


async def test_a_value_out_of_range_is_refused_and_the_connection_lives(stage: HostStage) -> None:
    client = await stage.connect()
    wrong = msgspec.to_builtins(Submit(request=77, prompt="Hello")) | {"params": {"temperature": -1}}
    reply = client._replies[77] = Reply(77)
    body = msgspec.msgpack.encode(wrong)
    client._writer.write(len(body).to_bytes(4, "big") + body)
    with pytest.raises(RequestRejectedError, match="temperature is -1"):
        await reply.accepted()
    assert await ask(client, "Hello.")


async def test_a_killed_host_is_an_error_then_an_interrupted_turn_then_a_new_host(stage: HostStage) -> None:
    client = await stage.connect(SLOW)
    reply = client.submit(LONG)
    chat = (await reply.accepted()).chat_id or ""
    with stage.store() as store:
        await until(lambda: store.turns(chat)[-1].reply)
        kill(client)
        with pytest.raises(HostLostError, match="went away"):
            await read(reply)
        assert client.closed.is_set()
        with pytest.raises(HostLostError):
            client.submit("Anybody?")
        again = await stage.connect(SLOW)
        assert again.pid != client.pid
        await until(lambda: store.turns(chat)[-1].status is TurnStatus.INTERRUPTED)
        assert LONG.startswith(store.turns(chat)[-1].reply)
        assert store.turns(chat)[-1].reply
        assert await ask(again, "Go on.", chat) == chat
        assert [turn.status for turn in store.turns(chat)] == [TurnStatus.INTERRUPTED, TurnStatus.DONE]


@pytest.mark.parametrize("is_polite", [True, False])
async def test_a_stopped_host_closes_its_turns_says_so_and_cleans_up(stage: HostStage, is_polite: bool) -> None:
    client, other = await stage.connect(SLOW), await stage.connect(SLOW)
    reply = client.submit(LONG)
    chat = (await reply.accepted()).chat_id or ""
    start = await first_text(reply)
    if is_polite:
        await other.shutdown()
    else:
        os.kill(client.pid, signal.SIGTERM)
    text, finished = await read(reply)
    assert (finished.stop_reason, finished.error) == (StopReason.ABORTED, "The engine was stopped")
    await asyncio.gather(client.closed.wait(), other.closed.wait())
    assert client.failure is not None
    assert client.failure.error == "The engine was stopped"
    await until(lambda: stage.is_host_gone(SLOW))
    assert not stage.paths.socket(stage.spec(SLOW).key).exists()
    with stage.store() as store:
        (turn,) = store.turns(chat)
    assert (turn.status, turn.reply) == (TurnStatus.INTERRUPTED, start + text)


async def test_a_client_that_does_not_read_holds_up_nobody(stage: HostStage) -> None:
    client = await stage.connect()
    reader, writer = await asyncio.open_unix_connection(str(stage.paths.socket(stage.spec().key)))
    for number in range(1, 200):
        writer.write(pack(Submit(request=number, prompt="never read " * 20, store=False)))
    assert await ask(client, "Hello.")
    writer.transport.abort()
    del reader


async def test_rubbish_on_the_socket_costs_only_its_own_connection(stage: HostStage) -> None:
    client = await stage.connect()
    for rubbish in (b"GET / HTTP/1.1\r\n\r\n", b"\x00\x00\x00\x02\xc1\xc1", b"\xff\xff\xff\xff"):
        reader, writer = await asyncio.open_unix_connection(str(stage.paths.socket(stage.spec().key)))
        writer.write(rubbish)
        writer.write_eof()
        assert await asyncio.wait_for(reader.read(), DEADLINE_S) == b""
        writer.close()
        await writer.wait_closed()
    assert await ask(client, "Hello.")


async def test_without_a_store_the_reply_streams_and_the_client_is_told(stage: HostStage) -> None:
    stage.paths.store_file.mkdir(parents=True)  # a folder where the file should be
    client = await stage.connect()
    reply = client.submit("Hello there.")
    frames = [frame async for frame in reply]
    assert "".join(frame.text for frame in frames if isinstance(frame, TurnDelta)) == "Hello there."
    (notice,) = [frame for frame in frames if isinstance(frame, Notice)]
    assert "cannot be stored" in notice.text
    assert str(stage.paths.store_file) in notice.text
    assert notice.remedy
    assert (await reply.accepted()).turn_id is None


async def test_a_model_that_cannot_be_loaded_is_told_to_who_asked(stage: HostStage) -> None:
    stage.settings = msgspec.structs.replace(stage.settings, dtype="float99")
    client = await stage.connect()
    with pytest.raises(OctavoError, match="float99"):
        await client.submit("Hello?").accepted()
    with pytest.raises(HostError, match="float99"):
        await client.wait_ready()
    await until(stage.is_host_gone)
