"""The laws of sessions: a turn belongs to its session and not to a screen, and nothing typed is lost."""

import asyncio

import pytest
from tests.app.host_stage import LONG, SLOW, HostStage, end_of, hear, kill, until

from octavo.config import Settings
from octavo.errors import HostLostError, ModelMissingError, RequestRejectedError
from octavo.paths import Paths
from octavo.session import (
    SessionState,
    StateChanged,
    TextAppended,
    TitleChanged,
    TurnAdded,
    TurnEnded,
    TurnRefused,
    TurnsReplaced,
)
from octavo.workspace import HostState, Workspace
from octavo_data import Store, TurnStatus

MEDIUM = "echo:3"
COUNTED = "".join(f"{i} " for i in range(1000))  # its reply takes more than a minute at the slow pace


async def test_a_turn_is_told_from_its_question_to_its_end(stage: HostStage) -> None:
    workspace = await stage.workspace()
    session = workspace.new(system="Be brief.")
    session.draft = "Good day, how are you?"
    changes = hear(session)
    turn = await session.ask("Good day, how are you?")
    await end_of(session)
    assert changes[:3] == [TurnAdded(0), StateChanged(SessionState.QUEUED), TitleChanged("Good day, how are you?")]
    assert changes[3] == StateChanged(SessionState.ANSWERING)
    assert changes[-2:] == [TurnEnded(0), StateChanged(SessionState.IDLE)]
    texts = [change.text for change in changes if isinstance(change, TextAppended)]
    assert "".join(texts) == turn.reply == "Good day, how are you?"
    assert (turn.status, turn.stop_reason, turn.error) == ("done", "stop", "")
    assert turn.usage is not None
    assert turn.timings is not None
    assert (turn.num_tokens, turn.usage.completion_tokens, turn.cached_tokens) == (23, 23, 0)
    assert session.tokens_per_s == turn.timings.tokens_per_s > 0
    assert (session.draft, list(session.turns), session.error) == ("", [turn], "")
    with stage.store() as store:
        assert store.chat(session.chat_id or "").system == "Be brief."


async def test_a_session_that_nobody_looks_at_goes_on(stage: HostStage) -> None:
    workspace = await stage.workspace(MEDIUM)
    one, two = workspace.new(), workspace.new()
    await asyncio.gather(one.ask("first " * 20), two.ask("second " * 20))
    await end_of(one)
    await end_of(two)
    assert [session.turns[0].reply for session in (one, two)] == ["first " * 20, "second " * 20]


async def test_two_sessions_are_answered_at_once(stage: HostStage) -> None:
    workspace = await stage.workspace(SLOW)
    sessions = [workspace.new(), workspace.new()]
    await asyncio.gather(*(session.ask(LONG) for session in sessions))
    await until(lambda: all(session.turns[0].reply for session in sessions))
    assert [session.is_busy for session in sessions] == [True, True]


async def test_cancelling_who_asked_does_not_cancel_the_turn(stage: HostStage) -> None:
    workspace = await stage.workspace()
    session = workspace.new()
    asking = asyncio.create_task(session.ask("Hello there."))
    await asyncio.sleep(0)
    asking.cancel()
    await asyncio.gather(asking, return_exceptions=True)
    await end_of(session)
    assert session.turns[0].reply == "Hello there."


async def test_a_refused_prompt_is_back_in_the_draft_before_what_was_typed_since(stage: HostStage) -> None:
    workspace = await stage.workspace()
    session = workspace.new()
    changes = hear(session)
    asking = asyncio.create_task(session.ask("x" * 20_000))
    await asyncio.sleep(0)
    session.draft = "and then"
    with pytest.raises(RequestRejectedError):
        await asking
    assert session.draft == "x" * 20_000 + "\nand then"
    assert (list(session.turns), session.state, session.chat_id) == ([], SessionState.FAILED, None)
    assert session.error
    (refused,) = [change for change in changes if isinstance(change, TurnRefused)]
    assert (refused.index, refused.prompt, refused.error) == (0, "x" * 20_000, session.error)
    assert workspace.sessions == [session]
    await session.ask("Shorter.")
    await end_of(session)
    assert (session.state, session.error) == (SessionState.IDLE, "")


async def test_a_question_while_a_reply_runs_is_refused_and_kept(stage: HostStage) -> None:
    workspace = await stage.workspace(SLOW)
    session = workspace.new()
    await session.ask(LONG)
    with pytest.raises(RequestRejectedError, match="still being written"):
        await session.ask("And?")
    assert (session.draft, len(session.turns), session.is_busy) == ("And?", 1, True)


async def test_stop_keeps_what_was_said(stage: HostStage) -> None:
    workspace = await stage.workspace(SLOW)
    session = workspace.new()
    turn = await session.ask(LONG)
    await until(lambda: turn.reply)
    await session.stop()
    await end_of(session)
    assert (turn.status, turn.stop_reason, session.state) == ("stopped", "aborted", SessionState.IDLE)
    assert turn.reply
    assert LONG.startswith(turn.reply)
    await session.stop()


async def test_stop_before_there_is_a_host_gives_the_prompt_back(
    stage: HostStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    never = asyncio.get_running_loop().create_future()
    monkeypatch.setattr("octavo.launcher.connect", lambda *_, **__: never)
    workspace = await stage.workspace()
    session = workspace.new()
    asking = asyncio.create_task(session.ask("Hello?"))
    await until(lambda: session.state is SessionState.QUEUED)
    await session.stop()
    with pytest.raises(RequestRejectedError, match="stopped before it began"):
        await asking
    assert (session.draft, list(session.turns)) == ("Hello?", [])


async def test_a_new_workspace_follows_what_still_runs_and_shows_it_once(stage: HostStage) -> None:
    before = await stage.workspace(SLOW)
    session = before.new()
    turn = await session.ask(COUNTED)
    await until(lambda: turn.reply)
    chat = session.chat_id or ""
    await before.aclose()
    after = await stage.workspace(SLOW)
    await until(lambda: after.host.state is HostState.READY)  # until then it reads anew what the store has
    again = after.open(chat)
    changes, start = hear(again), again.turns[0].reply
    await until(lambda: len(again.turns[0].reply) > len(turn.reply))
    await again.stop()
    await until(lambda: again.turns[0].status == "stopped")
    texts = [change.text for change in changes if isinstance(change, TextAppended)]
    with stage.store() as store:
        assert start + "".join(texts) == again.turns[0].reply == store.turns(chat)[0].reply
    assert COUNTED.startswith(again.turns[0].reply)
    assert TurnsReplaced() not in changes
    assert again.state is SessionState.IDLE


async def test_a_lost_host_interrupts_the_turn_and_the_next_ask_starts_another(stage: HostStage) -> None:
    workspace = await stage.workspace(SLOW)
    session = workspace.new()
    turn = await session.ask(LONG)
    await until(lambda: turn.reply)
    client = await workspace.client(session)
    kill(client)
    await until(lambda: workspace.host.state is HostState.LOST)
    await end_of(session)
    assert (turn.status, session.state) == ("interrupted", SessionState.FAILED)
    assert "went away" in turn.error
    assert session.remedy
    said = turn.reply
    with stage.store() as store:
        await until(lambda: store.turns(session.chat_id or "")[0].status is TurnStatus.INTERRUPTED)
    assert session.turns[0].reply == said
    second = await session.ask("Go on.")
    await end_of(session)
    assert (second.reply, second.status, workspace.host.state) == ("Go on.", "done", HostState.READY)


async def test_without_a_model_one_can_read_and_asking_says_what_to_do(paths: Paths) -> None:
    with Store(paths.store_file) as store:
        chat = store.create_chat(title="Old", model="toy")
        store.begin_turn(chat.id, prompt="Then?", host="dead-host", kept_tokens=0, prompt_ids=[1])
    workspace = Workspace(Settings(), paths)
    await workspace.start()
    await until(lambda: workspace.host.state is HostState.FAILED)
    assert "octavo models pull" in workspace.host.remedy
    session = workspace.open(chat.id)
    assert [(turn.prompt, turn.status) for turn in session.turns] == [("Then?", "interrupted")]
    with pytest.raises(ModelMissingError):
        await session.ask("And now?")
    assert session.draft == "And now?"
    await workspace.aclose()


async def test_an_ask_whose_host_dies_before_it_answers_gives_the_prompt_back(stage: HostStage) -> None:
    workspace = await stage.workspace(SLOW)
    await until(lambda: workspace.host.state is HostState.READY)
    session = workspace.new()
    kill(await workspace.client(session))
    with pytest.raises(HostLostError):
        await session.ask("Hello?")
    assert session.draft == "Hello?"
    turn = await session.ask(session.draft)
    await until(lambda: turn.reply)
