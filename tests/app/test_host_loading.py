"""While its model loads, a host takes requests and says what it does; what goes wrong then is told to who asked."""

import asyncio
import threading

import pytest
from tests.app.host_inside import host_inside
from tests.app.host_stage import DEADLINE_S, LONG, until

from octavo.errors import HostError, RequestRejectedError
from octavo.host_view import HostView
from octavo.launcher import HostSpec
from octavo_data import Store
from octavo_engine.echo import load_echo
from octavo_engine.loaded import Loaded, LoadStep


class Gate:
    """Loads when the test lets it."""

    def __init__(self, loaded: Loaded | Exception) -> None:
        self.loaded = loaded
        self.open = threading.Event()

    def load(self, _: HostSpec) -> Loaded:
        assert self.open.wait(DEADLINE_S)
        if isinstance(self.loaded, Exception):
            raise self.loaded
        return self.loaded


async def test_clients_may_ask_while_the_model_loads(monkeypatch: pytest.MonkeyPatch) -> None:
    gate = Gate(load_echo())
    async with host_inside(monkeypatch, gate.load) as (_, client, _):
        assert (client.is_ready, await client.status()) == (False, None)
        reply, stopped = client.submit("Early."), client.submit("Never mind.")
        client.stop(stopped)
        with pytest.raises(RequestRejectedError, match="stopped before it began"):
            await stopped.accepted()
        gate.open.set()
        assert [text async for text in reply.text()][-1].endswith(".")
        assert (client.is_ready, client.device, client.max_model_len) == (True, "none", 16_384)


async def test_clients_hear_what_loading_does_and_late_ones_what_it_does_now(monkeypatch: pytest.MonkeyPatch) -> None:
    gate = Gate(load_echo())
    steps = [LoadStep("reading the weights"), LoadStep("reading the weights", 40), LoadStep("reading the weights", 40)]
    async with host_inside(monkeypatch, gate.load, steps) as (stage, client, _):
        await until(lambda: str(client.loading) == "reading the weights 40 %")
        async with await stage.connect("echo") as late:
            await until(lambda: late.loading is not None)
            assert HostView.of(late).loading == "reading the weights 40 %"
            assert not late.is_ready
            gate.open.set()
            await late.wait_ready()
            assert HostView.of(late).loading == ""


async def test_a_stop_right_behind_its_request_is_heard(monkeypatch: pytest.MonkeyPatch) -> None:
    gate = Gate(load_echo())
    async with host_inside(monkeypatch, gate.load) as (_, client, _):
        replies = [client.submit(LONG) for _ in range(3)]
        for reply in replies:
            client.stop(reply)
        ends = await asyncio.gather(*(reply.accepted() for reply in replies), return_exceptions=True)
        assert {type(end) for end in ends} == {RequestRejectedError}
        gate.open.set()
        await client.wait_ready()
        assert [text async for text in client.submit("Hello.").text()]


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (MemoryError(), "does not fit into the memory"),
        (ImportError("libcudart.so: cannot open"), "libcudart"),
        (RuntimeError("bad magic\nand a long tale"), "RuntimeError: bad magic. Its log has more: /"),
    ],
)
async def test_what_went_wrong_with_the_model_is_one_line_and_a_remedy(
    monkeypatch: pytest.MonkeyPatch, error: Exception, words: str
) -> None:
    gate = Gate(error)
    async with host_inside(monkeypatch, gate.load) as (stage, client, serving):
        reply = client.submit("Hello?")
        gate.open.set()
        with pytest.raises(HostError, match="echo") as caught:
            await client.wait_ready()
        assert caught.value.remedy
        with pytest.raises(RequestRejectedError, match=words):
            await reply.accepted()
        assert await serving == 1
        with Store(stage.paths.store_file) as store:
            assert store.chats() == []
