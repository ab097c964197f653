"""The laws of the host, over a real process and socket: turns outlive clients, and nobody holds up anybody."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator

import msgspec
import pytest
import pytest_asyncio
from tests.app.host_stage import DEADLINE_S, FAST, LONG, SLOW, HostStage, host_stage, kill, until

from octavo.client import Client
from octavo.errors import HostError, HostLostError, OctavoError, RequestRejectedError
from octavo.protocol import Notice, Submit, TurnDelta, TurnFinished, TurnStarted
from octavo.reply import Reply
from octavo.wire import pack
from octavo_data import TurnStatus, shelves
from octavo_engine.events import StopReason


@pytest_asyncio.fixture
async def stage() -> AsyncIterator[HostStage]:
    async with host_stage() as made:
        yield made


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


async def num_running(client: Client) -> int:
    status = await client.status()
    return status.requests.running if status else 0


async def ask(client: Client, prompt: str, chat_id: str | None = None) -> str:
    """A whole stored turn; returns the id of its chat."""
    reply = client.submit(prompt, chat_id=chat_id)
    chat = (await reply.accepted()).chat_id
    assert chat is not None
    await read(reply)
    return chat


async def test_the_turn_is_stored_whole_when_the_client_hears_its_end(stage: HostStage) -> None:
    client = await stage.connect()
    reply = client.submit("Good  day,\nhow are you?", system="Be brief.")
    accepted = await reply.accepted()
    text, finished = await read(reply)
    assert (text, finished.stop_reason) == ("Good  day,\nhow are you?", StopReason.STOP)
    with stage.store() as store:
        chat = store.last_chat()
        (turn,) = store.turns(chat.id)
    assert (chat.id, turn.id) == (accepted.chat_id, accepted.turn_id)
    assert (chat.title, chat.system, chat.model) == ("Good day, how are you?", "Be brief.", FAST)
    assert (turn.prompt, turn.reply, turn.status, turn.stop_reason) == (text, text, TurnStatus.DONE, "stop")
    assert turn.counts.completion_tokens == len(finished.token_ids) == len(text) + 1
    assert turn.timings.total_ms == finished.timings.total_ms > 0


async def test_the_next_turn_keeps_the_exact_ids_of_those_before(stage: HostStage) -> None:
    client = await stage.connect()
    chat = await ask(client, "One, and then some more words.")
    reply = client.submit("Two.", chat_id=chat)
    frames = [frame async for frame in reply]
    (started,) = [frame for frame in frames if isinstance(frame, TurnStarted)]
    assert started.cached_tokens > 30
    with stage.store() as store:
        first, second = store.turns(chat)
        assert second.kept_tokens == len(store.token_ids(first.id))
        assert store.token_ids(second.id)[: second.kept_tokens] == store.token_ids(first.id)


async def test_a_chat_goes_on_with_another_model_and_ids_of_its_own(stage: HostStage) -> None:
    chat = await ask(await stage.connect(), "One.")
    assert await ask(await stage.connect("echo:2"), "Two.", chat) == chat
    assert await ask(await stage.connect(), "Three.", chat) == chat  # the last ids are the other model's
    assert await ask(await stage.connect(), "Four.", chat) == chat
    with stage.store() as store:
        turns = store.turns(chat)
        assert [(turn.reply, turn.model) for turn in turns] == [
            ("One.", "echo:1"), ("Two.", "echo:2"), ("Three.", "echo:1"), ("Four.", "echo:1"),
        ]  # fmt: skip
        assert [turn.kept_tokens for turn in turns] == [0, 0, 0, len(store.token_ids(turns[2].id))]


async def test_a_chat_in_the_trash_is_not_asked_and_nothing_of_it_is_computed(stage: HostStage) -> None:
    client = await stage.connect()
    chat = await ask(client, "One.")
    with stage.store() as store:
        shelves.trash(store, chat)
    with pytest.raises(RequestRejectedError, match=f"chat {chat} is in the trash"):
        await ask(client, "Two.", chat)
    with stage.store() as store:
        assert len(store.turns(chat)) == 1


async def test_two_clients_stream_side_by_side(stage: HostStage) -> None:
    one, two = await stage.connect("echo:3"), await stage.connect("echo:3")
    heard: list[str] = []

    async def listen(client: Client, name: str, prompt: str) -> str:
        text = ""
        async for piece in client.submit(prompt).text():
            heard.append(name)
            text += piece
        return text

    prompts = ["first " * 60, "second " * 50]
    assert list(await asyncio.gather(listen(one, "1", prompts[0]), listen(two, "2", prompts[1]))) == prompts
    assert "12" in "".join(heard)
    assert "21" in "".join(heard)


async def test_one_client_streams_several_requests_at_once(stage: HostStage) -> None:
    client = await stage.connect()
    prompts = [f"{name} " * 30 for name in ("a", "bb", "ccc", "dddd")]
    ends = await asyncio.gather(*(read(client.submit(prompt)) for prompt in prompts))
    assert [text for text, _ in ends] == prompts


async def test_a_turn_outlives_its_client(stage: HostStage) -> None:
    client, prompt = await stage.connect("echo:3"), "word " * 80
    reply = client.submit(prompt)
    chat = (await reply.accepted()).chat_id
    await first_text(reply)
    await client.aclose()
    with stage.store() as store:
        assert chat is not None
        await until(lambda: store.turns(chat)[-1].status is not TurnStatus.RUNNING)
        turn = store.turns(chat)[-1]
    assert (turn.status, turn.reply) == (TurnStatus.DONE, prompt)


async def test_a_running_turn_is_flushed_to_the_store(stage: HostStage) -> None:
    client = await stage.connect(SLOW)
    accepted = await client.submit(LONG).accepted()
    assert accepted.turn_id is not None
    with stage.store() as store:
        await until(lambda: store.turn(accepted.turn_id or "").reply)
        turn = store.turn(accepted.turn_id)
    assert turn.status is TurnStatus.RUNNING
    assert LONG.startswith(turn.reply)


async def test_an_unstored_request_ends_with_its_client_and_leaves_nothing(stage: HostStage) -> None:
    client, other = await stage.connect(SLOW), await stage.connect(SLOW)
    reply = client.submit(LONG, store=False)
    assert (await reply.accepted()).chat_id is None
    await first_text(reply)
    await client.aclose()
    async with asyncio.timeout(DEADLINE_S):
        while await num_running(other):  # noqa: ASYNC110  the answer is another process's
            await asyncio.sleep(0.01)
    with stage.store() as store:
        assert store.chats() == []


async def test_stop_keeps_what_was_said(stage: HostStage) -> None:
    client = await stage.connect(SLOW)
    reply = client.submit(LONG)
    chat = (await reply.accepted()).chat_id
    start = await first_text(reply)
    client.stop(reply)
    rest, finished = await read(reply)
    with stage.store() as store:
        (turn,) = store.turns(chat or "")
    assert (finished.stop_reason, turn.status) == (StopReason.ABORTED, TurnStatus.STOPPED)
    assert turn.reply == start + rest
    assert turn.counts.completion_tokens == len(finished.token_ids)
    client.stop(reply)  # harmless


async def test_a_chat_answers_one_question_at_a_time(stage: HostStage) -> None:
    client, other = await stage.connect(SLOW), await stage.connect(SLOW)
    chat = (await client.submit(LONG).accepted()).chat_id
    with pytest.raises(RequestRejectedError, match="still being written"):
        await other.submit("And?", chat_id=chat).accepted()
    with stage.store() as store:
        assert len(store.turns(chat or "")) == 1


async def test_two_questions_at_the_same_moment_are_one_answer_and_one_refusal(stage: HostStage) -> None:
    client = await stage.connect()
    chat = await ask(client, "Hello.")
    replies = [client.submit("Both at once, please.", chat_id=chat) for _ in range(2)]
    answers = await asyncio.gather(*(reply.accepted() for reply in replies), return_exceptions=True)
    assert sorted(type(answer).__name__ for answer in answers) == ["Accepted", "RequestRejectedError"]


async def test_a_prompt_that_is_too_long_is_refused_with_the_numbers_and_stores_nothing(stage: HostStage) -> None:
    client = await stage.connect()
    with pytest.raises(RequestRejectedError, match=r"holds 16384.*\. Send less, or begin"):
        await client.submit("x" * 20_000).accepted()
    with stage.store() as store:
        assert store.chats() == []
    assert await ask(client, "Shorter.")


async def test_an_unknown_chat_is_refused(stage: HostStage) -> None:
    client = await stage.connect()
    with pytest.raises(RequestRejectedError, match="nosuchchat"):
        await client.submit("Hello?", chat_id="nosuchchat").accepted()


async def test_a_value_out_of_range_is_refused_and_the_connection_lives(stage: HostStage) -> None:
    client = await stage.connect()
    wrong = msgspec.to_builtins(Submit(request=77, prompt="Hello")) | {"params": {"temperature": -1}}
    reply = client._replies[77] = Reply(77)
    body = msgspec.msgpack.encode(wrong)
    client._writer.write(len(body).to_bytes(4, "big") + body)
    with pytest.raises(RequestRejectedError, match="temperature is -1"):
        await reply.accepted()
    assert await ask(client, "Hello.")


async def test_watching_gives_the_whole_text_exactly_once(stage: HostStage) -> None:
    client, prompt = await stage.connect("echo:3"), "".join(f"{i} " for i in range(120))
    reply = client.submit(prompt)
    accepted = await reply.accepted()
    await first_text(reply)
    await client.aclose()
    watched = (await stage.connect("echo:3")).watch(accepted.chat_id or "")
    assert (await watched.accepted()) == msgspec.structs.replace(accepted, request=watched.number)
    text, finished = await read(watched)
    assert (text, finished.stop_reason) == (prompt, StopReason.STOP)


async def test_watching_a_chat_that_is_silent_is_refused(stage: HostStage) -> None:
    client = await stage.connect()
    chat = await ask(client, "Hello.")
    with pytest.raises(RequestRejectedError, match="No turn"):
        await client.watch(chat).accepted()


async def test_whoever_watches_can_stop(stage: HostStage) -> None:
    client, other = await stage.connect(SLOW), await stage.connect(SLOW)
    reply = client.submit(LONG)
    watched = other.watch((await reply.accepted()).chat_id or "")
    await first_text(watched)
    other.stop(watched)
    (text, finished), (_, seen) = await asyncio.gather(read(reply), read(watched))
    assert finished.stop_reason is seen.stop_reason is StopReason.ABORTED
    assert LONG.startswith(text)


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


async def test_status_counts_blocks_and_requests(stage: HostStage) -> None:
    client = await stage.connect(SLOW)
    await first_text(client.submit(LONG))
    status = await client.status()
    assert status is not None
    assert (status.model, status.requests.running) == (SLOW, 1)
    assert status.blocks.used + status.blocks.free + status.blocks.cached == status.blocks.total


async def test_a_model_that_cannot_be_loaded_is_told_to_who_asked(stage: HostStage) -> None:
    stage.settings = msgspec.structs.replace(stage.settings, dtype="float99")
    client = await stage.connect()
    with pytest.raises(OctavoError, match="float99"):
        await client.submit("Hello?").accepted()
    with pytest.raises(HostError, match="float99"):
        await client.wait_ready()
    await until(stage.is_host_gone)
