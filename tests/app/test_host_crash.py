"""Hosts killed at 200 random moments while four chats stream: the file is whole, and so is every turn that ended."""

import asyncio
import contextlib
import json
import os
import random
import signal
import sys
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import pytest
from tests.app.host_stage import DEADLINE_S, HostStage, host_stage

from octavo import launcher
from octavo.client import Client, HostAbsentError
from octavo.errors import HostLostError
from octavo.host.turns import FLUSH_S
from octavo.host_lock import reap
from octavo.protocol import Notice, TurnDelta, TurnFinished
from octavo_data import Store, Turn, TurnStatus
from octavo_data.upkeep import check

MODEL = "echo:2"
NUM_FILES, NUM_KILLS = 4, 50  # over each file 50 hosts live and die, one after the other
MAX_KILLS = 4 * NUM_KILLS  # on a busy machine many die before they answer
NUM_CHATS = 4
MAX_TURNS = 3  # of one chat: more would not fit into the context
LATE_S = FLUSH_S + 1.0  # what was shown longer ago than this is stored; the second is for a busy machine
SHORT, LONG = (1, 12), (250, 350)  # words of a prompt; the echo of a long one takes some seconds
WORDS = ("river", "Grüße,", "世界", "🌍", "and\n\nso", "`code`", "1.5")

# A host is `python -m octavo.host` but for its imports, which are done before the fork: they take half a second.
NURSERY = """
import json, os, sys
from octavo.host import __main__, server, turns
from octavo_engine import echo
for line in sys.stdin:
    turns.FLUSH_S, arguments = json.loads(line)
    child = os.fork()
    if child == 0:
        os._exit(__main__.main(arguments))
    print(child, flush=True)
    os.waitpid(child, 0)
    print("dead", flush=True)
"""


@dataclass
class Heard:
    """What a client heard of one turn, and when."""

    turn_id: str
    prompt: str
    text: str = ""
    pieces: list[tuple[float, str]] = field(default_factory=list)
    finished: TurnFinished | None = None

    def until(self, moment: float) -> str:
        return "".join(text for at, text in self.pieces if at <= moment)


@dataclass
class Lane:
    """A file, the hosts that live and die over it, and what is asked of them in four chats."""

    stage: HostStage
    rng: random.Random
    flush_s: float
    dead: asyncio.Event = field(default_factory=asyncio.Event)  # the host is
    chats: list[str | None] = field(default_factory=lambda: [None] * NUM_CHATS)
    num_asked: list[int] = field(default_factory=lambda: [0] * NUM_CHATS)
    heard: list[Heard] = field(default_factory=list)  # from the last host
    kept: dict[str, Turn] = field(default_factory=dict)  # all turns, as they were after the last kill

    async def live_and_die(self, nursery: asyncio.subprocess.Process, delay_s: float) -> float:
        """Start a host, ask it in all chats, kill it; the moment just before that."""
        assert nursery.stdin
        assert nursery.stdout
        spec = self.stage.spec(MODEL)
        nursery.stdin.write(json.dumps([self.flush_s, launcher._arguments(spec)]).encode() + b"\n")
        pid = int(await nursery.stdout.readline())
        self.dead.clear()
        self.heard.clear()
        asking = asyncio.create_task(self._ask_all())
        try:
            await asyncio.sleep(delay_s)
        finally:  # also when another file has failed
            killed_at = time.monotonic()
            os.kill(pid, signal.SIGKILL)
            self.dead.set()
        assert await nursery.stdout.readline() == b"dead\n"
        await asyncio.wait_for(asking, DEADLINE_S)
        return killed_at

    async def _ask_all(self) -> None:
        socket = self.stage.paths.socket(self.stage.spec(MODEL).key)
        while not self.dead.is_set():
            with contextlib.suppress(HostAbsentError):  # it is not there yet, or died before its welcome
                async with await Client.open(socket) as client:
                    await asyncio.gather(*(self._ask_on(client, index) for index in range(NUM_CHATS)))
            await asyncio.sleep(0.005)

    async def _ask_on(self, client: Client, index: int) -> None:
        """One turn after the other in one chat, three before a new one, until the host is lost."""
        with contextlib.suppress(HostLostError):
            while True:
                self.num_asked[index] += 1
                if self.num_asked[index] % MAX_TURNS == 0:
                    self.chats[index] = None
                await self._ask(client, index)

    async def _ask(self, client: Client, index: int) -> None:
        prompt = " ".join(self.rng.choices(WORDS, k=self.rng.randint(*self.rng.choice((SHORT, LONG)))))
        reply = client.submit(prompt, chat_id=self.chats[index])
        accepted = await reply.accepted()
        assert accepted.turn_id
        self.chats[index] = accepted.chat_id
        heard = Heard(accepted.turn_id, prompt)
        self.heard.append(heard)
        async for frame in reply:
            assert not isinstance(frame, Notice), frame
            if isinstance(frame, TurnDelta):
                heard.text += frame.text
                heard.pieces.append((time.monotonic(), frame.text))
            if isinstance(frame, TurnFinished):
                heard.finished = frame

    @property
    def is_about_something(self) -> bool:
        """Whether enough turns were answered, and enough cut off."""
        num_done = sum(turn.status is TurnStatus.DONE for turn in self.kept.values())
        return min(num_done, len(self.kept) - num_done) > NUM_KILLS / NUM_FILES

    def verify(self, killed_at: float) -> None:
        """The laws of a file whose writer was killed; may run in any thread."""
        with self.stage.store() as store:
            assert store._conn.execute("PRAGMA integrity_check").fetchall()[0][0] == "ok"
            assert store._conn.execute("PRAGMA foreign_key_check").fetchall() == []
            turns = {turn.id: turn for chat in store.chats() for turn in store.turns(chat.id)}
            assert all(chat.num_turns for chat in store.chats())
            for turn in turns.values():
                assert turn.prompt.startswith(turn.reply)
                assert turn.status is not TurnStatus.DONE or turn.reply == turn.prompt
            for heard in self.heard:
                self._verify_heard(store, turns[heard.turn_id], heard, killed_at)
            self._verify_kept(turns)
            if self.rng.random() < 0.5:  # else the next host does it
                reap(store, self.stage.paths)
            self.kept = turns

    def _verify_heard(self, store: Store, turn: Turn, heard: Heard, killed_at: float) -> None:
        assert turn.prompt == heard.prompt
        assert turn.prompt.startswith(heard.text)
        if heard.finished:
            assert (turn.status, turn.reply) == (TurnStatus.DONE, heard.text)
            ids = store.token_ids(turn.id)
            assert tuple(ids[-len(heard.finished.token_ids) :]) == heard.finished.token_ids
        else:  # its end may be stored while the client has not heard of it
            assert turn.status in (TurnStatus.RUNNING, TurnStatus.DONE)
            assert turn.reply.startswith(heard.until(killed_at - LATE_S))

    def _verify_kept(self, turns: dict[str, Turn]) -> None:
        """What was there before this host is there as it was, and what ran then is shown as interrupted."""
        for before in self.kept.values():
            now = turns[before.id]
            assert now.reply == before.reply
            if before.status is not TurnStatus.RUNNING:
                assert now.status is before.status
            elif self.heard:  # this host began turns, and before that it closed those of its forerunner
                assert now.status is TurnStatus.INTERRUPTED


@contextlib.asynccontextmanager
async def open_nursery() -> AsyncIterator[asyncio.subprocess.Process]:
    pipe, nothing = asyncio.subprocess.PIPE, asyncio.subprocess.DEVNULL
    env = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", NURSERY, env=env, stdin=pipe, stdout=pipe, stderr=nothing
    )
    try:
        yield process
    finally:
        process.kill()
        await process.wait()


async def kill_many(seed: int, flush_s: float) -> Lane:
    """Fifty lives and deaths: most in the first third of a second, each eighth after some flushes.

    More where hosts are slow to answer.
    """
    moments = random.Random(seed)
    async with host_stage() as stage, open_nursery() as nursery:
        lane = Lane(stage, random.Random(seed), flush_s)
        for number in range(MAX_KILLS):
            if number >= NUM_KILLS and lane.is_about_something:
                break
            delay_s = moments.uniform(LATE_S, LATE_S + 1.0) if number % 8 == 7 else moments.uniform(0, 0.35)
            killed_at = await lane.live_and_die(nursery, delay_s)
            try:
                await asyncio.to_thread(lane.verify, killed_at)
            except AssertionError as error:
                error.add_note(f"seed {seed}, flushed each {flush_s} s, kill {number} after {delay_s:.4f} s")
                raise
        with stage.store() as store:
            reap(store, stage.paths)
            assert store.running_hosts() == set()
            assert check(store) == []  # our own laws too, and the index for search, which takes long
    return lane


@pytest.mark.slow
async def test_a_host_killed_at_any_moment_leaves_a_whole_file_whole_turns_and_fresh_text() -> None:
    seed = random.randrange(10**6)
    print(f"seed {seed}")
    often = FLUSH_S / 500  # the store is written nearly all the time, so that many kills come in the middle of a write
    flushes = [FLUSH_S, FLUSH_S, often, often]
    async with asyncio.TaskGroup() as group:
        lanes = [group.create_task(kill_many(seed + number, flushes[number])) for number in range(NUM_FILES)]
    turns = [turn for lane in lanes for turn in lane.result().kept.values()]
    num_done = sum(turn.status is TurnStatus.DONE for turn in turns)
    print(f"{len(turns)} turns, {num_done} done")
    assert num_done > NUM_KILLS  # it was about something
    assert len(turns) - num_done > NUM_KILLS
