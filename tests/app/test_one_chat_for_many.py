"""One chat asked from everywhere at once: two hosts, command lines, a UI that looks on; no turn is lost."""

import asyncio
import os
import sys

import pytest
from tests.app.host_stage import DEADLINE_S, FAST, HostStage, until

from octavo.client import Client
from octavo.errors import RequestRejectedError
from octavo_data import TurnStatus

BUSY = "A reply is still being written in this chat"


async def ask(client: Client, prompt: str, chat_id: str | None) -> str:
    """A whole stored turn, asked again as often as the chat is busy; returns the id of its chat."""
    while True:
        reply = client.submit(prompt, chat_id=chat_id)
        try:
            accepted = await reply.accepted()
        except RequestRejectedError as error:
            if error.message != BUSY:
                raise
            await asyncio.sleep(0.001)
            continue
        assert accepted.chat_id
        assert "".join([text async for text in reply.text()]) == prompt
        return accepted.chat_id


async def test_two_hosts_and_a_ui_lose_no_turn_of_one_chat(stage: HostStage) -> None:
    workspace = await stage.workspace()
    one, other = await stage.connect(FAST), await stage.connect("echo:2")
    chat = await ask(one, "first", None)
    await until(lambda: len(workspace.sessions) == 1)
    session = workspace.open(chat)

    async def ask_all(client: Client, name: str) -> None:
        for number in range(8):
            await ask(client, f"{name} {number}", chat)

    async with asyncio.timeout(DEADLINE_S):
        await asyncio.gather(ask_all(one, "one"), ask_all(other, "other"))
    with stage.store() as store:
        turns = store.turns(chat)
        assert len(turns) == store.chat(chat).num_turns == 17
    assert [turn.parent_id for turn in turns] == [None, *(turn.id for turn in turns[:-1])]
    for name in ("one", "other"):
        assert [turn.prompt for turn in turns if turn.prompt.startswith(name)] == [f"{name} {n}" for n in range(8)]
    assert {turn.status for turn in turns} == {TurnStatus.DONE}
    await until(lambda: [turn.reply for turn in session.turns] == [turn.reply for turn in turns])


@pytest.mark.slow
async def test_two_command_lines_and_a_ui_ask_at_once_and_each_answer_is_stored_or_refused(stage: HostStage) -> None:
    workspace = await stage.workspace(FAST)
    chat = await ask(await stage.connect(FAST), "first", None)
    home = stage.paths.data_dir.parent
    env = os.environ | {"OCTAVO_HOME": str(home), "PYTHONPATH": os.pathsep.join(sys.path)}

    async def run(prompt: str) -> tuple[int, str, str]:
        arguments = (sys.executable, "-P", "-m", "octavo", "ask", "--chat", chat, prompt)
        pipe, nothing = asyncio.subprocess.PIPE, asyncio.subprocess.DEVNULL
        process = await asyncio.create_subprocess_exec(*arguments, env=env, stdin=nothing, stdout=pipe, stderr=pipe)
        out, err = await process.communicate()
        return process.returncode or 0, out.decode(), err.decode()

    await until(lambda: len(workspace.sessions) == 1)
    session = workspace.open(chat)
    asked = [run("from one shell " * 20), run("from another " * 20), session.ask("from the UI " * 20)]
    answers = await asyncio.gather(*asked, return_exceptions=True)
    shells = [answer for answer in answers[:2] if isinstance(answer, tuple)]
    assert len(shells) == 2
    for code, out, err in shells:
        assert (code, bool(out), BUSY in err) in ((0, True, False), (1, False, True)), (code, out, err)
    await until(lambda: not session.is_busy)
    num_answered = sum(code == 0 for code, _, _ in shells) + (not isinstance(answers[2], Exception))
    with stage.store() as store:
        turns = store.turns(chat)
    assert len(turns) == 1 + num_answered
    assert num_answered >= 1
    assert {turn.status for turn in turns} == {TurnStatus.DONE}
    await until(lambda: [turn.turn_id for turn in session.turns] == [turn.id for turn in turns])
