"""An engine that remembers tokens instead of KV, over a real store and real files of blocks, run after run."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from queue import Empty, SimpleQueue
from time import monotonic, sleep

import pytest
from tests.app.host_stage import DEADLINE_S
from tests.engine.memory_runner import hashed_id
from tests.engine.memory_stage import Stage

from octavo.host import block_keeper
from octavo.host.block_keeper import BlockKeeper
from octavo_data import Store
from octavo_data.kv_disk import KVDisk
from octavo_data.kv_files import KVFolder
from octavo_engine.echo import EchoFormat
from octavo_engine.loaded import Loaded, ModelInfo

CAP = 1 << 20


class KeptRun:
    """One run of an engine: ask in it, and everything that it leaves on disk is there when it is closed."""

    def __init__(self, home: Path, *, max_bytes: int = CAP, fingerprint: str = "memory") -> None:
        self.stage = Stage(next_id=hashed_id, fingerprint=fingerprint)
        self._jobs: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self.keeper = BlockKeeper(home / "octavo.db", home / "kv", max_bytes, self._jobs.put)
        info = ModelInfo("none", "none", "ids", 4, 1024, 8, 0, 1)
        self.keeper.attach(Loaded(self.stage.engine, EchoFormat(), info, self.stage.runner))

    def ask(self, request_id: str, token_ids: list[int], max_tokens: int = 8) -> list[int]:
        """The ids of a greedy reply."""
        self.stage.add(request_id, token_ids, max_tokens)
        while self.stage.engine.has_work:
            self.work(wait=self.stage.engine.awaits_disk)
            self.stage.step()
        return self.stage.outcomes[request_id].token_ids

    def close(self) -> None:
        """What the host does at its end: its engine's thread runs meanwhile."""
        closing = threading.Thread(target=asyncio.run, args=(self.keeper.close(),))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(block_keeper, "CLOSE_S", DEADLINE_S)  # a host would leave unwritten what takes too long
            closing.start()
            while closing.is_alive():
                self.work(wait=True)
                self.stage.engine.check_integrity()
        self.keeper._reader.shutdown(wait=True)  # who ends a host lets it end by itself
        self.work(wait=False)

    @property
    def num_jobs(self) -> int:
        """What waits for the time between two steps."""
        return self._jobs.qsize()

    def await_jobs(self, num_jobs: int) -> None:
        """Let the threads work until so many jobs of theirs wait; fails after a minute."""
        deadline = monotonic() + DEADLINE_S
        while self.num_jobs < num_jobs:
            assert monotonic() < deadline, f"{self.num_jobs} jobs wait"
            sleep(0.01)

    def work(self, *, wait: bool) -> None:
        """Do what the threads asked for; with `wait` something will come, perhaps."""
        try:
            self._jobs.get(timeout=0.02 if wait else 0)()
            while True:
                self._jobs.get_nowait()()
        except Empty:
            return


@contextmanager
def kept_run(home: Path, *, max_bytes: int = CAP, fingerprint: str = "memory") -> Iterator[KeptRun]:
    run = KeptRun(home, max_bytes=max_bytes, fingerprint=fingerprint)
    try:
        yield run
    finally:
        run.close()


@contextmanager
def disk_of(home: Path) -> Iterator[KVDisk]:
    """What lies there now."""
    with Store(home / "octavo.db") as store:
        yield KVDisk(store, KVFolder(home / "kv"), CAP)


def block_files(home: Path) -> list[Path]:
    return sorted((home / "kv").glob("*.kv"))


def alone(token_ids: list[int], max_tokens: int = 8) -> list[int]:
    """The reply of an engine without a disk."""
    stage = Stage(next_id=hashed_id)
    stage.add("alone", token_ids, max_tokens)
    return stage.run()["alone"].token_ids
