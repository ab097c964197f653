"""What a terminal shows of a model that loads: where it is, and nothing of it once it is ready."""

import asyncio
import io
from types import SimpleNamespace
from typing import Any

import pytest

from octavo.cli.loading_line import loading_line
from octavo.host_view import HostState, HostView
from octavo.listeners import Listeners
from octavo.protocol import HostFailed, Loading
from octavo.ui.words import host_word


class Terminal(io.StringIO):
    """A terminal that remembers all that was written to it."""

    def isatty(self) -> bool:
        return True


@pytest.fixture
def client() -> Any:
    """A connection whose host loads."""
    listeners = Listeners[None]()
    return SimpleNamespace(
        model="toy",
        is_ready=False,
        loading=None,
        failure=None,
        closed=asyncio.Event(),
        subscribe=lambda callback: listeners.add(lambda _: callback()),
        tell=lambda: listeners.tell(None),
    )


async def test_the_line_follows_the_host_and_leaves_before_the_reply(
    client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    terminal = Terminal()
    with loading_line(client, terminal):
        client.loading = Loading(label="reading the weights", percent=40)
        client.tell()
        client.is_ready = True
        client.tell()
        before = terminal.getvalue()
        assert "loading toy: reading the weights 40 %" in before
        assert before.endswith("\x1b[2K")  # the line is empty again
    assert terminal.getvalue() == before


async def test_before_the_host_says_what_it_does_the_model_is_named(client: Any) -> None:
    terminal = Terminal()
    with loading_line(client, terminal):
        client.tell()
    assert "loading toy …" in terminal.getvalue()


async def test_the_line_is_gone_when_the_model_cannot_be_loaded(client: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    terminal = Terminal()
    with loading_line(client, terminal):
        client.failure = HostFailed(error="no", remedy="")
        client.tell()
        assert terminal.getvalue().endswith("\x1b[2K")


async def test_a_pipe_and_a_model_that_is_ready_get_nothing(client: Any) -> None:
    pipe, terminal = io.StringIO(), Terminal()
    with loading_line(client, pipe):
        client.tell()
    client.is_ready = True
    with loading_line(client, terminal):
        client.tell()
    assert pipe.getvalue() + terminal.getvalue() == ""


def test_the_status_line_says_the_same() -> None:
    assert host_word(HostView(state=HostState.LOADING)) == "loading model…"
    loading = HostView(state=HostState.LOADING, loading="reading the weights 40 %")
    assert host_word(loading) == "loading: reading the weights 40 %"
    assert host_word(HostView(state=HostState.READY)) == "ready"
