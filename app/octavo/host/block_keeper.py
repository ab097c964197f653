"""Keeps KV blocks on disk: two threads between the engine's tier, the files, and their table in the store."""

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import TypeVar

from octavo.launcher import HostSpec, is_echo
from octavo_data import Store, StoreError, StoreReadOnlyError
from octavo_data.encoding import now_ms
from octavo_data.kv_disk import KVDisk
from octavo_data.kv_files import DamagedBlockError, KVFolder
from octavo_data.kv_index import KVRow
from octavo_engine.disk_tier import Bytes, DiskTier
from octavo_engine.loaded import Loaded
from octavo_engine.sequence import Sequence as EngineSequence
from octavo_engine.speeds import Speeds
from octavo_engine.stored_blocks import StoredBlock

log = logging.getLogger(__name__)

T = TypeVar("T")
Job = Callable[[], None]

BETWEEN_STEPS_BYTES = 4 << 20
"""So much is copied out of the pool or into it between two steps, in a millisecond or two; one block at least."""

CLOSE_S = 5.0
ANSWER_S = 60.0  # a step of a large batch on a slow CPU may come first


class BlockKeeper:
    """See BlockFiles, which the engine's thread calls. The reader thread loads, the writer thread owns the table.

    `post` has a job run in the engine's thread between two steps. Nothing here raises into the engine: a disk that
    fails costs a prefill and a line in the log.
    """

    def __init__(self, store_file: Path, folder: Path, max_bytes: int, post: Callable[[Job], None]) -> None:
        self._store_file = store_file
        self._folder = KVFolder(folder)
        self._max_bytes = max_bytes
        self._post = post
        self._is_closed = False
        self._tier: DiskTier | None = None
        self._disk: KVDisk | None = None
        self._pinned: frozenset[bytes] = frozenset()
        self._rows: dict[bytes, KVRow] = {}  # of this engine's fingerprint; changed in the engine's thread
        self._num_at_once = 1
        self._buffers: SimpleQueue[bytearray] = SimpleQueue()  # the reader's, less those on their way into the pool
        self._reader = ThreadPoolExecutor(1, "octavo-kv-reader")
        self._writer = ThreadPoolExecutor(1, "octavo-kv-writer")
        self._opening = self._writer.submit(self._open)  # while the model loads

    def attach(self, loaded: Loaded) -> None:
        """Give an engine what the disk has for it; in its thread, before its first request."""
        if loaded.memory is None:
            return
        try:
            bytes_per_s = self._opening.result()
        except (StoreError, OSError) as error:
            log.warning("disk: KV blocks are not kept: %s", error)
            return
        self._begin(loaded.engine.attach_disk(loaded.memory, self, Speeds(bytes_per_s)))

    async def close(self) -> None:
        """Write what is still to be written, within some seconds; the engine's thread must still run."""
        closing = asyncio.wrap_future(self._writer.submit(self._close))
        try:
            await asyncio.wait_for(closing, CLOSE_S)
        except TimeoutError:
            log.warning("disk: not all blocks of the last turns are written")
        self._is_closed = True
        for executor in (self._reader, self._writer):
            executor.shutdown(wait=False, cancel_futures=True)

    # ---- called in the engine's thread ----

    def read(self, load: EngineSequence, blocks: Sequence[StoredBlock]) -> None:
        """See BlockFiles."""
        self._submit(self._reader, partial(self._read, load, blocks))

    def keep(self, chain: Sequence[bytes], blocks: Sequence[StoredBlock]) -> None:
        """See BlockFiles. One time of use for all of a chain: among equals the deepest goes first."""
        used_at = now_ms()
        self._change(lambda disk: disk.index.touch(chain, used_at))
        if blocks:
            self._submit(self._writer, partial(self._write, blocks, used_at))

    def pin(self, names: Sequence[bytes], is_pinned: bool) -> None:
        """See BlockFiles."""
        self._pinned = self._pinned.union(names) if is_pinned else self._pinned.difference(names)
        self._change(lambda disk: disk.index.pin(names, is_pinned))

    def _begin(self, tier: DiskTier) -> None:
        self._tier = tier
        self._num_at_once = max(1, BETWEEN_STEPS_BYTES // tier.block_bytes)
        for _ in range(self._num_at_once):
            self._buffers.put(bytearray(tier.block_bytes))
        rows = self._writer.submit(self._known).result()
        self._learn(rows)
        tier.speeds.tokens_per_s = rows[0].tokens_per_s if rows else 0.0
        log.info("disk: %d blocks for this model, read at %.0f MB/s", len(tier.stored), tier.speeds.bytes_per_s / 1e6)

    def _learn(self, rows: Sequence[KVRow]) -> None:
        """These rows are in the table; one whose name is not that of its tokens, or of another size, is of no use."""
        for row in rows:
            block = StoredBlock(row.name, row.parent, row.token_ids, row.depth)
            if block.is_sound and row.where.num_bytes == self._attached.block_bytes:
                self._rows[row.name] = row
                self._attached.stored.add(block)

    def _forget(self, names: Sequence[bytes]) -> None:
        for name in names:
            self._rows.pop(name, None)
            self._attached.stored.drop(name)

    def _deliver(self, load: EngineSequence, data: bytearray) -> None:
        tier = self._attached
        try:
            tier.deliver(load, data)
        except Exception:  # a border: the device refuses; what is not loaded is computed
            log.exception("disk: a block cannot be put into the pool")
            tier.end(load)
        finally:
            self._buffers.put(data)

    # ---- in the reader thread ----

    def _read(self, load: EngineSequence, blocks: Sequence[StoredBlock]) -> None:
        times: list[float] = []
        try:
            for block in blocks:
                if not self._attached.is_on_its_way(load) or not (seconds := self._pass_on(load, block)):
                    break
                times.append(seconds)
        finally:
            names = [block.name for block in blocks[: len(times)]]
            self._change(lambda disk: disk.index.count_hits(names))  # before the end is told: it may be the host's too
            self._post(partial(self._attached.end, load))
        log.info("disk: %d of %d blocks read in %.3f s", len(times), len(blocks), sum(times))
        tier = self._attached
        self._post(partial(tier.speeds.observe_load, len(times) * tier.block_bytes, sum(times)))

    def _pass_on(self, load: EngineSequence, block: StoredBlock) -> float:
        """Read a block and have it put into the pool; how many seconds the reading took, 0 if it cannot be had."""
        data = self._buffers.get(timeout=ANSWER_S)
        begin = time.perf_counter()
        if not self._fill(data, block):
            self._buffers.put(data)
            return 0.0
        seconds = time.perf_counter() - begin
        self._post(partial(self._deliver, load, data))
        return seconds

    def _fill(self, data: bytearray, block: StoredBlock) -> bool:
        """Read the content of a block; false if it went to make room, or cannot be trusted."""
        if (row := self._rows.get(block.name)) is None:
            return False
        try:
            self._folder.read(row.name, row.where, data)
        except DamagedBlockError as error:
            log.warning("disk: %s: %s; its %d tokens are computed anew", row.where.file, error, len(row.token_ids))
            self._post(partial(self._forget, [row.name]))
            self._change(lambda disk: disk.drop(row))
            return False
        return True

    # ---- in the writer thread ----

    def _open(self) -> float:
        """Open the table, put it in order, and measure the disk: bytes a second. Raises StoreError, OSError."""
        store = Store(self._store_file)
        if store.is_read_only:
            raise StoreReadOnlyError(store.notice, "")
        self._disk = KVDisk(store, self._folder, self._max_bytes)
        self._disk.sweep()
        return self._folder.measure()

    def _known(self) -> list[KVRow]:
        assert self._disk is not None
        try:
            return self._disk.index.rows(self._attached.root.hex())
        except StoreError as error:
            log.warning("disk: nothing can be loaded: %s", error)
            return []

    def _write(self, blocks: Sequence[StoredBlock], used_at: int) -> None:
        tier, size = self._attached, self._num_at_once
        try:
            for start in range(0, len(blocks), size):
                if self._is_closed:
                    break
                self._write_some(blocks[start : start + size], used_at)
        except (OSError, StoreError) as error:
            log.warning("disk: blocks are not kept: %s", error)
        finally:
            self._post(partial(tier.end_write, blocks))

    def _write_some(self, blocks: Sequence[StoredBlock], used_at: int) -> None:
        """Write what the pool still has of these blocks."""
        assert self._disk is not None
        tier = self._attached
        contents = self._ask(lambda: [tier.snapshot(block) for block in blocks])
        rows = [self._write_one(block, data) for block, data in zip(blocks, contents, strict=True) if data is not None]
        gone = self._disk.add(rows, used_at)
        self._post(partial(self._learn, rows))
        self._post(partial(self._forget, gone))

    def _write_one(self, block: StoredBlock, data: Bytes) -> KVRow:
        return KVRow(
            name=block.name,
            fingerprint=self._attached.root.hex(),
            parent=block.parent,
            depth=block.depth,
            token_ids=block.tokens,
            where=self._folder.write(block.name, data),
            tokens_per_s=self._attached.speeds.tokens_per_s,
            is_pinned=block.name in self._pinned,
        )

    def _close(self) -> None:
        self._is_closed = True
        if self._disk is not None:
            self._disk.close()

    # ---- in any thread ----

    @property
    def _attached(self) -> DiskTier:
        assert self._tier is not None
        return self._tier

    def _submit(self, executor: ThreadPoolExecutor, work: Job) -> None:
        with suppress(RuntimeError):  # the executor is shut down
            executor.submit(self._do, work)

    def _do(self, work: Job) -> None:
        """A border: what goes wrong beside the engine stays beside it."""
        if self._is_closed:
            return
        try:
            work()
        except StoreError as error:
            log.warning("disk: the table of blocks cannot be written: %s", error)
        except Exception:
            log.exception("disk: work on KV blocks failed")

    def _change(self, change: Callable[[KVDisk], None]) -> None:
        """Have the writer thread change something of little weight in the table."""
        assert self._disk is not None
        self._submit(self._writer, partial(change, self._disk))

    def _ask(self, function: Callable[[], T]) -> T:
        """Have the engine's thread answer between two steps. Raises TimeoutError when it does not."""
        answer: Future[T] = Future()
        self._post(partial(_settle, answer, function))
        return answer.result(ANSWER_S)


def _settle(answer: "Future[T]", function: Callable[[], T]) -> None:
    try:
        answer.set_result(function())
    except Exception as error:  # a border: it belongs to whoever asked
        answer.set_exception(error)


def make_keeper(spec: HostSpec, post: Callable[[Job], None]) -> BlockKeeper | None:
    """The keeper of a host; None where the settings want none, or the model has no KV."""
    settings = spec.settings
    if not settings.disk_cache_bytes or settings.enable_prefix_caching is False or is_echo(spec.model):
        return None
    return BlockKeeper(spec.paths.store_file, spec.paths.kv_dir, settings.disk_cache_bytes, post)
