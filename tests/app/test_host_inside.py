"""The host in the test's own process, where its engine and its store can be made to fail."""

import asyncio
import socket
import threading
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from tests.app.host_inside import host_inside, quick
from tests.app.host_stage import DEADLINE_S, until

from octavo.errors import RequestRejectedError
from octavo.host import connection as host_connection
from octavo.host import engine_thread, server
from octavo.host.bookkeeping import Plan, begin
from octavo.host.connection import Connection
from octavo.host.turns import NUM_TRIES, Turns
from octavo.protocol import Accepted, Notice, Submit, TurnDelta, TurnFinished, TurnPreempted, TurnStarted
from octavo.session import SessionState, StateChanged
from octavo.wire import pack, read_body
from octavo_data import Store, StoreWriteError, Turn, TurnStatus
from octavo_engine.batch import Batch, PendingStep
from octavo_engine.echo import load_echo
from octavo_engine.errors import DeviceMemoryError
from octavo_engine.events import Event, Preempted, StopReason
from octavo_engine.loaded import Loaded
from octavo_engine.params import SamplingParams


async def test_an_engine_that_breaks_down_fails_its_turns_and_ends_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = load_echo(step_ms=2)
    step, num_steps = loaded.engine.step, 0

    def break_down() -> object:
        nonlocal num_steps
        num_steps += 1
        assert num_steps < 11, "a block is lost"
        return step()

    monkeypatch.setattr(loaded.engine, "step", break_down)
    async with host_inside(monkeypatch, lambda _: loaded) as (stage, client, serving):
        reply = client.submit("A question of some length.")
        frames = [frame async for frame in reply]
        finished = frames[-1]
        assert isinstance(finished, TurnFinished)
        assert (finished.stop_reason, "a block is lost" in finished.error) == (StopReason.FAILED, True)
        assert await serving == 1
        assert client.failure is not None
        with Store(stage.paths.store_file) as store:
            (turn,) = store.turns(store.last_chat().id)
        assert (turn.status, turn.reply) == (TurnStatus.FAILED, "A questio")
        assert "a block is lost" in turn.error


async def test_one_failed_step_fails_its_turn_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = load_echo()
    launch = loaded.engine._runner.launch
    monkeypatch.setattr(loaded.engine._runner, "launch", lambda batch: 1 / 0)
    async with host_inside(monkeypatch, lambda _: loaded) as (_, client, _):
        finished = [frame async for frame in client.submit("Hello.")][-1]
        assert isinstance(finished, TurnFinished)
        assert finished.stop_reason is StopReason.FAILED
        assert "ZeroDivisionError" in finished.error
        monkeypatch.setattr(loaded.engine._runner, "launch", launch)
        assert "".join([text async for text in client.submit("Hello.").text()]) == "Hello."


async def test_a_question_too_large_for_the_memory_in_one_step_is_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    loaded = load_echo()
    launch = loaded.engine._runner.launch

    def find_no_memory(batch: Batch) -> PendingStep:
        sizes.append(batch.num_tokens)
        if batch.num_tokens > 40:
            raise DeviceMemoryError("nothing is free")
        return launch(batch)

    monkeypatch.setattr(loaded.engine._runner, "launch", find_no_memory)
    async with host_inside(monkeypatch, lambda _: loaded) as (_, client, _):
        question = "A question that is long. " * 4
        assert "".join([text async for text in client.submit(question).text()]) == question
    assert max(sizes) > 40 > max(sizes[3:])


async def test_a_status_that_cannot_be_told_is_an_error_and_no_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = load_echo()
    monkeypatch.setattr(loaded.engine, "counts", lambda: 1 / 0)
    async with host_inside(monkeypatch, lambda _: loaded) as (_, client, _):
        await client.wait_ready()
        with pytest.raises(RequestRejectedError, match="ZeroDivisionError"):
            await client.status()
        assert [text async for text in client.submit("Hello.").text()]


async def test_a_request_whose_handler_fails_is_answered_and_the_others_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    async with host_inside(monkeypatch, lambda _: load_echo(step_ms=2)) as (_, client, _):
        other = client.submit("A question of some length.")
        await other.accepted()
        with monkeypatch.context() as patch:
            patch.setattr(Turns, "watch", lambda *_: 1 / 0)
            with pytest.raises(RequestRejectedError, match="ZeroDivisionError") as caught:
                await client.watch("any").accepted()
        assert caught.value.remedy.endswith(".log")
        assert "".join([text async for text in other.text()]) == "A question of some length."


def step_two_together(monkeypatch: pytest.MonkeyPatch, loaded: Loaded) -> threading.Event:
    """Nothing is computed before there are two requests; the step behind a preemption waits for what is returned."""
    step, goes_on = loaded.engine.step, threading.Event()
    are_two = is_preempted = False

    def step_or_wait() -> list[Event]:
        nonlocal are_two, is_preempted
        counts = loaded.engine.counts()
        are_two = are_two or counts.running + counts.waiting == 2
        if not are_two:
            return []
        assert not is_preempted or goes_on.wait(DEADLINE_S)
        events = step()
        is_preempted = is_preempted or any(isinstance(event, Preempted) for event in events)
        return events

    monkeypatch.setattr(loaded.engine, "step", step_or_wait)
    return goes_on


async def test_a_turn_that_is_preempted_is_queued_again_until_it_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = load_echo(num_blocks=20, step_ms=1)  # 320 tokens; the two need twice about 200
    goes_on = step_two_together(monkeypatch, loaded)
    async with host_inside(monkeypatch, lambda _: loaded) as (stage, client, _):
        workspace = await stage.workspace("echo")
        one, two = workspace.new(), workspace.new()
        states: list[SessionState] = []
        two.subscribe(lambda change: states.append(change.state) if isinstance(change, StateChanged) else None)
        await one.ask("a" * 100)
        await two.ask("b" * 100)
        await until(lambda: states[-1:] == [SessionState.QUEUED] and two.turns[0].reply)
        watched = client.watch(two.chat_id or "")
        await watched.accepted()
        goes_on.set()
        late = [await watched.accepted(), *[frame async for frame in watched]]
        await until(lambda: not (one.is_busy or two.is_busy))
        assert [one.turns[0].reply, two.turns[0].reply] == ["a" * 100, "b" * 100]
    queued, answering = SessionState.QUEUED, SessionState.ANSWERING
    assert states == [queued, answering, queued, answering, SessionState.IDLE]
    kinds = [type(frame) for frame in late]
    assert kinds[:4] == [Accepted, TurnStarted, TurnDelta, TurnPreempted]
    assert kinds[4:] == [TurnDelta] * (len(kinds) - 5) + [TurnFinished]
    assert "".join(frame.text for frame in late if isinstance(frame, TurnDelta)) == "b" * 100


async def test_a_lost_block_is_found_when_work_runs_out_and_ends_the_host(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    loaded = load_echo()
    checks: list[None] = []
    monkeypatch.setattr(engine_thread, "QUIET_S", 0.01)
    monkeypatch.setattr(loaded.engine, "check_integrity", lambda: checks.append(None))
    async with host_inside(monkeypatch, lambda _: loaded) as (_, client, serving):
        await client.submit("Hello.").accepted()
        await until(lambda: checks)
        loaded.engine._scheduler.manager.pool.take()
        monkeypatch.undo()
        monkeypatch.setattr(server, "LAST_WORDS_S", 0.0)
        reply = client.submit("Hello.")
        assert [text async for text in reply.text()]
        assert await serving == 1
        assert client.failure is not None
        assert "ref counts differ" in client.failure.error
    assert "the engine broke down" in caplog.text


async def test_what_our_frames_cannot_carry_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    async with host_inside(monkeypatch, quick) as (_, client, _):
        with pytest.raises(RequestRejectedError, match="n is 3"):
            await client.submit("Hello.", params=SamplingParams(n=3)).accepted()


async def test_flushes_that_the_store_refuses_are_told_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise StoreWriteError("cannot write: disk full", "Free some disk space.")

    monkeypatch.setattr(Store, "flush_turn", refuse)
    monkeypatch.setattr("octavo.host.turns.FLUSH_S", 0.01)
    async with host_inside(monkeypatch, lambda _: load_echo(step_ms=3)) as (_, client, _):
        notices = [frame async for frame in client.submit("word " * 20) if isinstance(frame, Notice)]
    assert [notice.remedy for notice in notices] == ["Free some disk space."]


async def test_a_note_about_the_prompt_reaches_the_client(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = load_echo()
    prompt = loaded.chat_format.prompt
    monkeypatch.setattr(
        type(loaded.chat_format),
        "prompt",
        lambda _, messages, known_ids=(): replace(prompt(messages, known_ids), note="The template has no system role."),
    )
    async with host_inside(monkeypatch, lambda _: loaded) as (_, client, _):
        notices = [frame async for frame in client.submit("Hello.") if isinstance(frame, Notice)]
    assert [notice.text for notice in notices] == ["The template has no system role."]


async def test_the_first_text_comes_at_once_and_the_rest_in_few_frames(monkeypatch: pytest.MonkeyPatch) -> None:
    async with host_inside(monkeypatch, quick) as (_, client, _):
        deltas = [frame async for frame in client.submit("x" * 2000) if isinstance(frame, TurnDelta)]
    assert "".join(delta.text for delta in deltas) == "x" * 2000
    assert sum(delta.num_tokens for delta in deltas) == 2001
    assert len(deltas) < 400


async def test_a_client_that_lets_too_much_pile_up_is_hung_up_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_connection, "MAX_UNSENT_BYTES", 100_000)
    ours, theirs = socket.socketpair()
    reader, writer = await asyncio.open_unix_connection(sock=ours)
    connection = Connection(reader, writer)
    for _ in range(1000):
        connection.send(TurnDelta(request=1, text="x" * 10_000, num_tokens=1))
    assert writer.transport.is_closing()
    assert [frame async for frame in connection.frames()] == []
    theirs.close()
    await connection.close()


@pytest.mark.parametrize("num_slips", [1, 3])
async def test_a_question_is_put_on_top_of_what_another_host_added_at_the_last_moment(
    monkeypatch: pytest.MonkeyPatch, num_slips: int
) -> None:
    slips = 0

    def begin_late(store: Store, plan: Plan, *values: Any) -> Turn:
        nonlocal slips
        if plan.chat and slips < num_slips:
            slips += 1
            with Store(store.path) as other:
                other.begin_turn(plan.chat.id, prompt="theirs", host="other", kept_tokens=0, prompt_ids=[])
                other.interrupt_turns("other")
        return begin(store, plan, *values)

    monkeypatch.setattr("octavo.host.turns.begin", begin_late)
    async with host_inside(monkeypatch, quick) as (stage, client, _):
        first = client.submit("One.")
        chat = (await first.accepted()).chat_id
        assert chat
        assert "".join([text async for text in first.text()]) == "One."
        second = client.submit("Two.", chat_id=chat)
        if num_slips < NUM_TRIES:
            assert "".join([text async for text in second.text()]) == "Two."
        else:
            with pytest.raises(RequestRejectedError, match="has gone on elsewhere"):
                await second.accepted()
        with Store(stage.paths.store_file) as store:
            prompts = [turn.prompt for turn in store.turns(chat)]
        assert prompts == ["One.", *["theirs"] * num_slips, *["Two."] * (num_slips < NUM_TRIES)]


async def test_frames_come_back_as_they_went() -> None:
    reader = asyncio.StreamReader()
    frames: list[Submit] = [Submit(request=1, prompt="Grüße, 世界 🌍"), Submit(request=2, prompt="", store=False)]
    for frame in frames:
        reader.feed_data(pack(frame))
    reader.feed_eof()

    assert [msgspec.msgpack.decode(await read_body(reader), type=Submit) for _ in frames] == frames
    with pytest.raises(EOFError):
        await read_body(reader)
