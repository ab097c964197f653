"""How long a chat with a long history waits for its next word: after a restart, with the disk and without, and warm."""

import asyncio
import shutil
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

import msgspec

from octavo import launcher
from octavo.bench.results import Result
from octavo.client import Client
from octavo.config import Settings
from octavo.models.resolve import resolve
from octavo.paths import Paths
from octavo.protocol import TurnDelta, TurnFinished
from octavo_data import Store
from octavo_data.kv_disk import KVDisk
from octavo_data.kv_files import KVFolder
from octavo_engine.params import SamplingParams

NUM_ROUNDS = 3
NUM_SENTENCES = 74
"""The first question, about 1,500 tokens of the default model."""

SENTENCE = "The river bends twice before the old mill, and nobody has counted the stones of the bridge since. "
QUESTION = "How many stones does the bridge have?"
PARAMS = SamplingParams(temperature=0.0, max_tokens=4, ignore_eos=True)


@dataclass(slots=True)
class _Times:
    """Milliseconds from the question to the first word, one of each round."""

    cold: list[float] = field(default_factory=list)
    disk: list[float] = field(default_factory=list)
    warm: list[float] = field(default_factory=list)


def bench_restart(model: str, settings: Settings, paths: Paths) -> list[Result]:
    """A chat of 1,500 tokens in a host of its own that is stopped and started. Raises what starting a host raises."""
    home = Path(tempfile.mkdtemp(prefix="oct-"))
    try:
        settings = msgspec.structs.replace(settings, model=str(resolve(model, paths)))
        return [asyncio.run(_measure(model, settings, Paths.below(home)))]
    finally:
        shutil.rmtree(home, ignore_errors=True)


async def _measure(model: str, settings: Settings, paths: Paths) -> Result:
    times = _Times()
    try:
        chat_id, num_tokens = await _begin(settings, paths)
        for _ in range(NUM_ROUNDS):
            await _round(settings, paths, chat_id, times)
    finally:
        await launcher.stop(paths)
    more = {
        "history tokens": num_tokens,
        "cold_first_token_ms": median(times.cold),
        "disk_first_token_ms": median(times.disk),
        "warm_first_token_ms": median(times.warm),
    }
    return Result(work="restart", model=model, more=more)


async def _begin(settings: Settings, paths: Paths) -> tuple[str, int]:
    """A chat whose first turn is a long paste; its id and its tokens."""
    async with await launcher.connect(settings, paths) as client:
        await client.wait_ready()
        reply = client.submit(SENTENCE * NUM_SENTENCES, params=PARAMS)
        accepted = await reply.accepted()
        assert accepted.chat_id is not None
        async for _ in reply:
            pass
        return accepted.chat_id, accepted.prompt_tokens


async def _round(settings: Settings, paths: Paths, chat_id: str, times: _Times) -> None:
    """Warm, from disk, cold: each asks in the same chat, which grows by a short turn."""
    times.warm.append(await _ask(settings, paths, chat_id))
    await launcher.stop(paths)
    times.disk.append(await _ask(settings, paths, chat_id))
    await launcher.stop(paths)
    with Store(paths.store_file) as store:
        KVDisk(store, KVFolder(paths.kv_dir), settings.disk_cache_bytes).clear()
    times.cold.append(await _ask(settings, paths, chat_id))


async def _ask(settings: Settings, paths: Paths, chat_id: str) -> float:
    """Milliseconds to the first word, from a host whose model is loaded."""
    async with await launcher.connect(settings, paths) as client:
        await client.wait_ready()
        return await _first_token_ms(client, chat_id)


async def _first_token_ms(client: Client, chat_id: str) -> float:
    begin, first = time.perf_counter(), 0.0
    async for frame in client.submit(QUESTION, chat_id=chat_id, params=PARAMS):
        if isinstance(frame, TurnDelta | TurnFinished) and not first:
            first = time.perf_counter()
    return (first - begin) * 1e3
