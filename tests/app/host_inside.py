"""A host in the test's own process, where its engine and its store can be made to fail."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Callable, Sequence

import pytest
from tests.app.host_stage import DEADLINE_S, HostStage, host_stage

from octavo.client import Client
from octavo.config import Settings
from octavo.host import server
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
        listener = socket.socket(socket.AF_UNIX)
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


def quick(_: HostSpec) -> Loaded:
    return load_echo()
