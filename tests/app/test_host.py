"""The laws of the host, over a real process and socket: turns outlive clients, and nobody holds up anybody."""

import asyncio

import msgspec
import pytest
from tests.app.host_stage import DEADLINE_S, FAST, LONG, SLOW, HostStage, ask, first_text, read, until

from octavo.client import Client
from octavo.errors import RequestRejectedError
from octavo.protocol import TurnStarted
from octavo_data import TurnStatus, shelves
from octavo_engine.events import StopReason


async def num_running(client: Client) -> int:
    status = await client.status()
    return status.requests.running if status else 0


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
    clients = [await stage.connect(SLOW) for _ in range(2)]
    prompts = ["first " * 1000, "second " * 1000]  # to their end they would take minutes
    replies = [client.submit(prompt) for client, prompt in zip(clients, prompts, strict=True)]
    heard = ""

    async def listen(index: int) -> str:
        nonlocal heard
        text = ""
        async for piece in replies[index].text():
            heard += f"{index}"
            text += piece
        return text

    listening = [asyncio.create_task(listen(index)) for index in range(2)]
    await until(lambda: "01" in heard and "10" in heard)
    for client, reply in zip(clients, replies, strict=True):
        client.stop(reply)
    texts = await asyncio.gather(*listening)
    with stage.store() as store:
        stored = [store.turns((await reply.accepted()).chat_id or "")[0].reply for reply in replies]
    assert texts == stored
    assert [prompt.startswith(text) for prompt, text in zip(prompts, texts, strict=True)] == [True, True]


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


async def test_watching_gives_the_whole_text_exactly_once(stage: HostStage) -> None:
    client, prompt = await stage.connect(SLOW), "".join(f"{i} " for i in range(1000))
    reply = client.submit(prompt)
    accepted = await reply.accepted()
    await first_text(reply)
    await client.aclose()
    other = await stage.connect(SLOW)
    watched = other.watch(accepted.chat_id or "")
    assert (await watched.accepted()) == msgspec.structs.replace(accepted, request=watched.number)
    start = [await first_text(watched), await first_text(watched)]
    other.stop(watched)
    rest, finished = await read(watched)
    with stage.store() as store:
        (turn,) = store.turns(accepted.chat_id or "")
    assert "".join(start) + rest == turn.reply
    assert (prompt.startswith(turn.reply), finished.stop_reason) == (True, StopReason.ABORTED)


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


async def test_status_counts_blocks_and_requests(stage: HostStage) -> None:
    client = await stage.connect(SLOW)
    await first_text(client.submit(LONG))
    status = await client.status()
    assert status is not None
    assert (status.model, status.requests.running) == (SLOW, 1)
    assert status.blocks.used + status.blocks.free + status.blocks.cached == status.blocks.total
