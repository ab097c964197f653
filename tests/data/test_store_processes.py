"""Laws that need several processes: a killed writer loses nothing that it flushed, two writers lose no turn."""

import random
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest
from tests.data.schema_dumps import SCHEMAS

from octavo_data import Store, TurnStatus
from octavo_data.connection import open_file
from octavo_data.upgrading import backups
from octavo_data.upkeep import check

FLUSHES = """
import sys
from pathlib import Path
from octavo_data import Store
store = Store(Path(sys.argv[1]))
chat = store.create_chat(title="t", model="m")
turn = store.begin_turn(chat.id, prompt="Count.", host="victim", kept_tokens=0, prompt_ids=[7])
for number in range(1, 1_000_000):
    store.flush_turn(turn.id, reply="word " * number, reply_ids=list(range(number)))
    print(number, flush=True)
"""
DIES_INSIDE_A_TRANSACTION = """
import os, signal, sys
from pathlib import Path
from octavo_data import Store
store = Store(Path(sys.argv[1]))
chat = store.create_chat(title="t", model="m")
turn = store.begin_turn(chat.id, prompt="p", host="victim", kept_tokens=0, prompt_ids=[7])
store.flush_turn(turn.id, reply="kept", reply_ids=[1])
with store._writing():
    store._conn.execute("UPDATE turns SET reply = 'half a write', reply_ids = x''")
    os.kill(os.getpid(), signal.SIGKILL)
"""
OPENS = """
import sqlite_utils, sys, time
from pathlib import Path
from octavo_data import Store
start, folder = float(sys.argv[1]), Path(sys.argv[2])
for number in range(20):
    time.sleep(max(0.0, start + number * 0.05 - time.time()))
    with Store(folder / f"{number}.db") as store:
        store.create_chat(title=sys.argv[3], model="m")
"""
WRITES = """
import sys
from pathlib import Path
from octavo_data import ChatMovedError, Place, Store, TurnCounts, TurnStatus, TurnTimings

def begin(number):
    "On the tip that it read before, as often as it takes; or on whatever is the tip, with ids of its own."
    named = dict(prompt=f"{name}:{number}", host=f"host-{name}", prompt_ids=[1000 * name + number])
    if mode == "blind":
        return store.begin_turn(chat_id, kept_tokens=0, **named)
    while True:
        tip = store.chat(chat_id).tip_id
        kept = len(store.token_ids(tip)) if tip else 0
        try:
            return store.begin_turn(chat_id, kept_tokens=kept, parent_id=tip, must_be_tip=True, **named)
        except ChatMovedError:
            print("overtaken")

store, chat_id, mode, name = Store(Path(sys.argv[1])), sys.argv[2], sys.argv[3], int(sys.argv[4])
print("ready", flush=True)
sys.stdin.readline()
for number in range(300):
    turn = begin(number)
    store.flush_turn(turn.id, reply="so far", reply_ids=[])
    store.end_turn(
        turn.id, status=TurnStatus.DONE, stop_reason="stop", reply=f"reply {name}:{number}", reply_ids=[number],
        counts=TurnCounts(), timings=TurnTimings(),
    )
store.close()
"""


def start(script: str, *args: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", script, *map(str, args)]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True)


def finish(processes: Sequence[subprocess.Popen[str]]) -> None:
    """Let all go on, wait for them, and fail with what they wrote to stderr."""
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    errors = [process.communicate(timeout=60)[1] for process in processes]
    assert [process.returncode for process in processes] == [0] * len(processes), "\n".join(errors)


@pytest.mark.parametrize("seed", range(4))
def test_a_killed_writer_leaves_its_last_flush_and_a_turn_to_interrupt(tmp_path: Path, seed: int) -> None:
    path = tmp_path / "octavo.db"
    process = start(FLUSHES, path)
    assert process.stdout is not None
    for _ in range(20):
        process.stdout.readline()
    time.sleep(random.Random(seed).uniform(0, 0.05))
    process.kill()
    told = [20, *map(int, process.stdout.read().split())]  # `communicate` would miss what readline has read ahead
    process.communicate()
    with Store(path) as store:
        (turn,) = store.turns(store.last_chat().id)
        number = turn.counts.completion_tokens
        assert number in (told[-1], told[-1] + 1)  # the last that was acknowledged, or one whose word was cut off
        assert (turn.status, turn.reply) == (TurnStatus.RUNNING, "word " * number)
        assert store.token_ids(turn.id) == [7, *range(number)]
        assert store.running_hosts() == {"victim"}
        assert store.interrupt_turns("victim") == 1
        closed = store.turn(turn.id)
        assert (closed.status, closed.reply) == (TurnStatus.INTERRUPTED, turn.reply)
        assert store._conn.execute("PRAGMA integrity_check").fetchone()[0] == "ok"


def test_a_writer_killed_inside_a_transaction_leaves_what_was_before_it(tmp_path: Path) -> None:
    process = start(DIES_INSIDE_A_TRANSACTION, tmp_path / "octavo.db")
    process.communicate(timeout=60)
    assert process.returncode == -signal.SIGKILL
    with Store(tmp_path / "octavo.db") as store:
        (turn,) = store.turns(store.last_chat().id)
        assert (turn.reply, turn.status) == ("kept", TurnStatus.RUNNING)
        assert store.token_ids(turn.id) == [7, 1]
        assert store.interrupt_turns("victim") == 1


def test_processes_that_open_an_empty_file_at_the_same_moment_all_succeed(tmp_path: Path) -> None:
    begin = time.time() + 2.0
    finish([start(OPENS, begin, tmp_path, name) for name in "abc"])
    for number in range(20):
        with Store(tmp_path / f"{number}.db") as store:
            assert {chat.title for chat in store.chats()} == {"a", "b", "c"}


def test_processes_that_open_an_older_file_at_the_same_moment_all_succeed(tmp_path: Path) -> None:
    dumped = (SCHEMAS / "001.sql").read_text()
    for number in range(20):
        with closing(open_file(tmp_path / f"{number}.db")) as conn:
            conn.executescript(dumped)
    begin = time.time() + 2.0
    finish([start(OPENS, begin, tmp_path, name) for name in "abc"])
    for number in range(20):
        with Store(tmp_path / f"{number}.db") as store:
            assert {chat.title for chat in store.chats()} == {"a", "b", "c", "Rivers", "Half a chat", "Empty"}
            assert [copy.name for copy in backups(store.path)] == [f"{number}.db.bak-001"]
            assert check(store) == []


@pytest.mark.parametrize("mode", ["on a seen tip", "blind"])
def test_two_processes_on_one_chat_lose_no_turn_and_no_id(tmp_path: Path, mode: str) -> None:
    path = tmp_path / "octavo.db"
    with Store(path) as store:
        chat = store.create_chat(title="t", model="m")
        writers = [start(WRITES, path, chat.id, mode, name) for name in (1, 2)]
        for writer in writers:
            assert writer.stdout is not None
            assert writer.stdout.readline() == "ready\n"
        finish(writers)
        turns = store.turns(chat.id)
        for name in "12":  # none is missing, and each writer's own are in its own order
            assert [turn.prompt for turn in turns if turn.prompt[0] == name] == [f"{name}:{n}" for n in range(300)]
        assert [turn.reply for turn in turns] == [f"reply {turn.prompt}" for turn in turns]
        assert store.chat(chat.id).num_turns == len(turns) == 600
        asked = [1000 * int(turn.prompt[0]) + int(turn.prompt[2:]) for turn in turns]
        known = [token for token in store.token_ids(turns[-1].id) if token >= 1000]
        assert known == (asked if mode == "on a seen tip" else asked[-1:])
