"""The laws of sessions: a turn belongs to its session and not to a screen, and nothing typed is lost."""

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from tests.app.host_stage import LONG, SLOW, HostStage, host_stage, kill, until

from octavo.config import Settings
from octavo.errors import HostLostError, ModelMissingError, OctavoError, RequestRejectedError
from octavo.paths import Paths
from octavo.session import (
    Change,
    Session,
    SessionState,
    StateChanged,
    TextAppended,
    TitleChanged,
    TurnAdded,
    TurnEnded,
    TurnRefused,
    TurnsReplaced,
)
from octavo.workspace import HostState, SessionsChanged, Workspace, WorkspaceChange
from octavo_data import Store, TurnStatus, shelves

MEDIUM = "echo:3"
COUNTED = "".join(f"{i} " for i in range(120))


@pytest_asyncio.fixture
async def stage() -> AsyncIterator[HostStage]:
    async with host_stage() as made:
        yield made


def hear(session: Session) -> list[Change]:
    """Everything that the session tells from now on."""
    changes: list[Change] = []
    session.subscribe(changes.append)
    return changes


async def end_of(session: Session) -> None:
    await until(lambda: not session.is_busy)


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
    assert (one.is_busy, two.is_busy) == (True, True)
    await end_of(one)
    await end_of(two)
    assert [session.turns[0].reply for session in (one, two)] == ["first " * 20, "second " * 20]


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
    before = await stage.workspace(MEDIUM)
    session = before.new()
    turn = await session.ask(COUNTED)
    await until(lambda: turn.reply)
    chat = session.chat_id or ""
    await before.aclose()
    after = await stage.workspace(MEDIUM)
    again = after.open(chat)
    changes, start = hear(again), again.turns[0].reply
    await until(lambda: again.turns[0].status == "done")
    texts = [change.text for change in changes if isinstance(change, TextAppended)]
    assert start + "".join(texts) == again.turns[0].reply == COUNTED
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


async def test_what_other_processes_do_with_a_chat_is_seen(stage: HostStage) -> None:
    workspace = await stage.workspace()
    session = workspace.new()
    await session.ask("Hello.")
    await end_of(session)
    chat, changes = session.chat_id or "", hear(session)
    lists: list[WorkspaceChange] = []
    workspace.subscribe(lists.append)
    with stage.store() as store:
        store.rename_chat(chat, "Renamed elsewhere")
        other = store.create_chat(title="Another", model="toy")
    await until(lambda: session.title == "Renamed elsewhere")
    assert TitleChanged("Renamed elsewhere") in changes
    assert SessionsChanged() in lists
    assert {one.chat_id for one in workspace.sessions} == {chat, other.id}
    reply = (await stage.connect()).submit("From elsewhere.", chat_id=chat)
    assert [text async for text in reply.text()]
    await until(lambda: len(session.turns) == 2 and session.turns[1].status == "done")
    assert session.turns[1].reply == "From elsewhere."
    assert TurnsReplaced() in changes


async def test_a_turn_that_another_process_asked_for_is_followed(stage: HostStage) -> None:
    workspace = await stage.workspace(SLOW)
    client = await stage.connect(SLOW)
    chat = (await client.submit(LONG).accepted()).chat_id or ""
    session = workspace.open(chat)
    await until(lambda: session.state is SessionState.ANSWERING)
    await until(lambda: session.turns[0].reply)
    with pytest.raises(RequestRejectedError):
        await session.ask("And?")
    await session.stop()
    await until(lambda: session.turns[0].status == "stopped")


async def test_a_chat_that_was_not_opened_shows_that_it_is_answered(stage: HostStage) -> None:
    client = await stage.connect(SLOW)
    reply = client.submit(LONG)
    first = (await reply.accepted()).chat_id
    workspace = await stage.workspace(SLOW)
    second = (await client.submit(LONG).accepted()).chat_id  # begun before this one looked, and after
    await until(lambda: len(workspace.sessions) == 2)
    assert {session.chat_id: session.state for session in workspace.sessions} == {
        first: SessionState.ANSWERING,
        second: SessionState.ANSWERING,
    }
    client.stop(reply)
    [session] = [session for session in workspace.sessions if session.chat_id == first]
    await until(lambda: session.state is SessionState.IDLE)
    assert not session.turns


async def test_our_own_turns_are_not_read_again(stage: HostStage) -> None:
    workspace = await stage.workspace()
    session = workspace.new()
    changes = hear(session)
    await session.ask("Hello.")
    await end_of(session)
    workspace._poll_once()
    assert TurnsReplaced() not in changes


async def test_the_list_is_in_the_order_of_activity_with_new_ones_first(stage: HostStage) -> None:
    workspace = await stage.workspace()
    first, second = workspace.new(), workspace.new()
    for session in (first, second):
        await session.ask("Hello.")
        await end_of(session)
    assert workspace.sessions == [second, first]
    await first.ask("Again.")
    await end_of(first)
    new = workspace.new()
    assert workspace.sessions == [new, first, second]
    assert workspace.open((first.chat_id or "").upper()) is first


async def test_the_list_has_pinned_chats_first_and_none_that_was_put_or_thrown_away(stage: HostStage) -> None:
    with stage.store() as store:
        a, b, c = (store.create_chat(title=title, model="echo").id for title in "abc")
    workspace = await stage.workspace()

    def titles() -> list[str]:
        return [session.title for session in workspace.sessions]

    assert titles() == ["c", "b", "a"]
    with stage.store() as store:
        shelves.pin(store, a)
        await until(lambda: titles() == ["a", "c", "b"])
        shelves.archive(store, b)
        shelves.trash(store, a)
        await until(lambda: titles() == ["c"])
        shelves.restore(store, a)
        await until(lambda: titles() == ["a", "c"])
    session = workspace.open(c)
    with stage.store() as store:
        shelves.trash(store, c)
    with pytest.raises(OctavoError, match="is in the trash"):
        await session.ask("Still there?")
    assert session.draft == "Still there?"


async def test_an_unknown_chat_is_a_plain_error(stage: HostStage) -> None:
    workspace = await stage.workspace()
    with pytest.raises(OctavoError, match="nosuch"):
        workspace.open("nosuch")
    await until(lambda: workspace.host.state is HostState.READY)  # else it would come up after the test


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
