"""A host in the test's own process, where its engine and its store can be made to fail."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Callable, Iterator, Sequence

import pytest
from tests.app.host_stage import DEADLINE_S, HostStage, host_stage

from octavo.client import Client
from octavo.config import Settings
from octavo.host import server
from octavo.host_lock import sign, try_lock
from octavo.launcher import HostSpec
from octavo_engine.echo import load_echo
from octavo_engine.loaded import Loaded, LoadStep, OnLoadStep

Load = Callable[[HostSpec], Loaded]


@contextlib.asynccontextmanager
async def host_inside(
    monkeypatch: pytest.MonkeyPatch, load: Load, steps: Sequence[LoadStep] = (), settings: Settings | None = None
) -> AsyncIterator[tuple[HostStage, Client, asyncio.Task[int]]]:
    """A host around `load`, which tells `steps` first, and a client of it; the task has the exit status."""

    def tell_and_load(spec: HostSpec, tell: OnLoadStep) -> Loaded:
        for step in steps:
            tell(step)
        return load(spec)

    monkeypatch.setattr(server, "load", tell_and_load)
    monkeypatch.setattr(server, "LAST_WORDS_S", 0.0)
    async with host_stage(settings) as stage:
        spec = stage.spec("echo")
        with held_lock(stage, spec), socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(stage.paths.socket(spec.key)))
            listener.listen()
            serving = asyncio.create_task(server.Host(spec, listener).run())
            try:
                async with await Client.open(stage.paths.socket(spec.key)) as client:
                    try:
                        yield stage, client, serving
                    finally:
                        await client.shutdown()
            finally:
                await asyncio.wait_for(serving, DEADLINE_S)


@contextlib.contextmanager
def held_lock(stage: HostStage, spec: HostSpec) -> Iterator[None]:
    """What every host does: without it a workspace would take its turns for those of a dead one."""
    lock = stage.paths.lock(spec.key)
    with try_lock(lock) as is_ours:
        assert is_ours
        sign(lock, spec.key, spec.model)
        yield


def quick(_: HostSpec) -> Loaded:
    return load_echo()
