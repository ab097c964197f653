"""The end of a turn reaches the store once, also when that refuses it at first or takes its time."""

import time
from typing import Any

import pytest
from tests.app.host_inside import host_inside, quick
from tests.app.host_stage import until

from octavo.protocol import Notice, TurnDelta
from octavo_data import Store, StoreWriteError, TurnStatus


async def test_an_end_that_the_store_refuses_is_told_and_written_later(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise StoreWriteError("cannot write: disk full", "Free some disk space.")

    async with host_inside(monkeypatch, quick) as (stage, client, _):
        with monkeypatch.context() as patch:
            patch.setattr(Store, "end_turn", refuse)
            reply = client.submit("Hello there.")
            frames = [frame async for frame in reply]
        assert "".join(frame.text for frame in frames if isinstance(frame, TurnDelta)) == "Hello there."
        (notice,) = [frame for frame in frames if isinstance(frame, Notice)]
        assert ("disk full" in notice.text, notice.remedy) == (True, "Free some disk space.")
        with Store(stage.paths.store_file) as store:
            chat = store.last_chat().id
            await until(lambda: store.turns(chat)[-1].status is TurnStatus.DONE)
            assert store.turns(chat)[-1].reply == "Hello there."


async def test_an_end_is_offered_once_however_slow_the_store_is(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    end_turn = Store.end_turn

    def end_slowly(*values: Any, **more: Any) -> object:
        time.sleep(0.1)
        return end_turn(*values, **more)

    monkeypatch.setattr("octavo.host.turns.FLUSH_S", 0.01)
    monkeypatch.setattr(Store, "end_turn", end_slowly)
    async with host_inside(monkeypatch, quick) as (_, client, _):
        for _ in range(2):
            assert "".join([text async for text in client.submit("Hello.").text()]) == "Hello."
    assert "came too late" not in caplog.text
