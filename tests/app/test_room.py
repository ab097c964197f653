"""A model that does not fit asks hosts without work to make room; those at work stay."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.app.host_stage import FAST, LONG, SLOW, HostStage, until

from octavo.config import Settings
from octavo.errors import HostError
from octavo.host import loading
from octavo.launcher import HostSpec
from octavo_engine.echo import load_echo
from octavo_engine.errors import MemoryShortError, ModelError
from octavo_engine.loaded import LoadStep
from octavo_engine.runner import load as runner_load


async def test_a_host_without_work_gives_way_and_says_for_whom(stage: HostStage) -> None:
    client, watcher = await stage.connect(FAST), await stage.connect(FAST)
    await client.wait_ready()
    assert await client.give_way("big")
    await watcher.closed.wait()
    assert watcher.failure is not None
    assert watcher.failure.error == "The engine made room for big"
    await until(lambda: stage.is_host_gone(FAST))


async def test_a_host_at_work_stays_and_its_reply_goes_on(stage: HostStage) -> None:
    client = await stage.connect(SLOW)
    reply = client.submit(LONG)
    await reply.accepted()
    other = await stage.connect(SLOW)
    assert not await other.give_way("big")
    assert not other.closed.is_set()
    async for text in reply.text():
        assert text
        break
    client.stop(reply)


class Loader:
    """Stands in for `load_engine`: short of memory for as long as some host runs."""

    def __init__(self, stage: HostStage, model: str) -> None:
        self._stage, self._model = stage, model
        self.steps: list[LoadStep] = []

    def load_engine(self, *_: object) -> Any:
        if not self._stage.is_host_gone(self._model):
            raise MemoryShortError("one context does not fit")
        return load_echo()

    async def load(self, tmp_path: Path) -> Any:
        spec = HostSpec(tmp_path, Settings(model="big"), self._stage.paths)
        return await asyncio.to_thread(loading.load, spec, self.steps.append)


async def test_a_model_that_does_not_fit_is_loaded_once_others_made_room(
    stage: HostStage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await (await stage.connect(FAST)).wait_ready()
    loader = Loader(stage, FAST)
    monkeypatch.setattr(runner_load, "load_engine", loader.load_engine)
    assert (await loader.load(tmp_path)).info.device == "none"
    assert [step.label for step in loader.steps] == ["starting torch", "asking other models for room"]


async def test_a_model_that_does_not_fit_beside_hosts_at_work_is_refused(
    stage: HostStage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = await stage.connect(SLOW)
    await client.submit(LONG).accepted()
    loader = Loader(stage, SLOW)
    monkeypatch.setattr(runner_load, "load_engine", loader.load_engine)
    with pytest.raises(MemoryShortError) as caught:
        await loader.load(tmp_path)
    spec = HostSpec(tmp_path, Settings(model="big"), stage.paths)
    assert isinstance(loading.explain(caught.value, spec), HostError)
    assert not client.closed.is_set()


async def test_what_else_goes_wrong_disturbs_no_other_host(
    stage: HostStage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = await stage.connect(FAST)
    await client.wait_ready()

    def fail(*_: object) -> Any:
        raise ModelError("its layers are strange")

    monkeypatch.setattr(runner_load, "load_engine", fail)
    with pytest.raises(ModelError, match="strange"):
        await Loader(stage, FAST).load(tmp_path)
    assert not client.closed.is_set()
