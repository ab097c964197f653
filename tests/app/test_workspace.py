"""The laws of the list of chats, and of what other processes do with them."""

import asyncio

import pytest
from tests.app.host_stage import LONG, SLOW, HostStage, end_of, hear, kill, until

from octavo.errors import OctavoError, RequestRejectedError
from octavo.session import (
    SessionState,
    TitleChanged,
    TurnsReplaced,
)
from octavo.workspace import HostState, SessionsChanged, WorkspaceChange
from octavo_data import shelves


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


async def test_a_host_that_somebody_else_starts_anew_is_found_again(stage: HostStage) -> None:
    """And none is started for what the one that died has left."""
    client = await stage.connect(SLOW)
    chat = (await client.submit(LONG).accepted()).chat_id or ""
    workspace = await stage.workspace(SLOW)
    session = workspace.open(chat)
    await until(lambda: workspace.host.state is HostState.READY and session.state is SessionState.ANSWERING)
    kill(client)
    await until(lambda: session.turns[0].status == "interrupted" and workspace.host.state is HostState.LOST)
    await asyncio.sleep(2.5)  # two looks at the store
    assert (workspace.host.state, stage.is_host_gone(SLOW)) == (HostState.LOST, True)
    again = await stage.connect(SLOW)
    await again.submit(LONG, chat_id=chat).accepted()
    await until(lambda: workspace.host.state is HostState.READY and session.state is SessionState.ANSWERING)


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
