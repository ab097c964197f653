"""One turn over the host: text to stdout as it comes; ctrl+c and other signals that end it keep what was said."""

import asyncio
import contextlib
import signal
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import click

from octavo.cli.loading_line import loading_line
from octavo.cli.output import plain, print_json
from octavo.cli.setup import load, with_model
from octavo.client import Client
from octavo.config import Settings
from octavo.errors import HostError, OctavoError
from octavo.going_on import going_on
from octavo.launcher import HostSpec, connect
from octavo.paths import Paths
from octavo.protocol import Accepted, Notice, TurnDelta, TurnFinished
from octavo.reply import Reply
from octavo_data import Store
from octavo_engine.events import StopReason
from octavo_engine.params import SamplingParams

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What the command line asks; `is_next` or `chat_id` go on with a chat."""

    prompt: str
    model: str | None
    system: str | None
    is_next: bool
    chat_id: str | None
    store: bool
    params: SamplingParams


@dataclass(slots=True)
class Answer:
    """What has come back so far; without `finished` the turn never ran."""

    model: str = ""
    accepted: Accepted | None = None
    finished: TurnFinished | None = None
    parts: list[str] = field(default_factory=list)
    ended_by: signal.Signals | None = None

    @property
    def text(self) -> str:
        """The reply, as far as it was said."""
        return "".join(self.parts)


def answer(question: Question, *, is_json: bool, is_usage: bool) -> int:
    """Ask, print, and return the exit code; raises OctavoError, StoreError, UsageError."""
    settings, paths = load()
    chat_id, settings = _choose_chat(question, settings, paths)
    said = Answer()
    try:
        asyncio.run(_ask(question, chat_id, settings, paths, said, _no_show if is_json else _show))
    finally:
        if not is_json and said.parts and not said.text.endswith("\n"):
            _show("\n")  # the prompt of the shell, or the error, begins on its own line
    if is_json and said.finished:
        print_json(_as_json(said, said.finished), indent=-1)  # token ids would fill a screen
    if is_usage and said.finished:
        click.echo(_usage_line(said.finished), err=True)
    return _exit_code(said, settings, paths)


def _choose_chat(question: Question, settings: Settings, paths: Paths) -> tuple[str | None, Settings]:
    """The chat to go on with, and the settings with the model that was asked for, its own, or the current one."""
    if not question.is_next and question.chat_id is None:
        return None, with_model(settings, question.model)
    with Store(paths.store_file) as store:
        chat = store.last_chat() if question.chat_id is None else store.chat(question.chat_id)
    if question.model is not None:
        return chat.id, with_model(settings, question.model)
    choice = going_on(chat.model, with_model(settings, None), paths)
    if choice.notice:
        click.echo(f"octavo: {OctavoError(plain(choice.notice), plain(choice.remedy))}", err=True)
    return chat.id, choice.settings


async def _ask(
    question: Question, chat_id: str | None, settings: Settings, paths: Paths, said: Answer, show: Callable[[str], None]
) -> None:
    async with await connect(settings, paths) as client:
        said.model = client.model
        reply = client.submit(
            question.prompt, chat_id=chat_id, system=question.system, store=question.store, params=question.params
        )
        with loading_line(client), _signals_stop(client, reply, said):
            try:
                await _collect(reply, said, show)
            except (OctavoError, asyncio.CancelledError):
                if not said.ended_by:  # a turn that is stopped before it began is refused
                    raise
            except BrokenPipeError:  # whoever read it has had enough; it might go on for the rest of the context
                client.stop(reply)
                raise


async def _collect(reply: Reply, said: Answer, show: Callable[[str], None]) -> None:
    async for frame in reply:
        match frame:
            case Accepted():
                said.accepted = frame
            case TurnDelta(text=text):
                said.parts.append(text)
                show(text)
            case Notice(text=text, remedy=remedy):
                click.echo(f"octavo: {OctavoError(plain(text), plain(remedy))}", err=True)
            case TurnFinished():
                said.finished = frame


@contextlib.contextmanager
def _signals_stop(client: Client, reply: Reply, said: Answer) -> Iterator[None]:
    """The first ctrl+c stops the turn, whose end still comes; the second does not wait for that.

    So do SIGTERM, as of `timeout`, and SIGHUP: a reply that nobody reads might go on for the rest of the context.
    """
    loop = asyncio.get_running_loop()
    task = asyncio.current_task()
    assert task

    def interrupt(number: signal.Signals) -> None:
        if said.ended_by:
            task.cancel()
        said.ended_by = number
        client.stop(reply)

    heard = [number for number in ENDING if signal.getsignal(number) is not signal.SIG_IGN]  # nohup ignores SIGHUP
    for number in heard:
        loop.add_signal_handler(number, interrupt, number)
    try:
        yield
    finally:
        for number in heard:
            loop.remove_signal_handler(number)


def _show(text: str) -> None:
    sys.stdout.write(plain(text) if sys.stdout.isatty() else text)
    sys.stdout.flush()


def _no_show(_text: str) -> None:
    pass


def _exit_code(said: Answer, settings: Settings, paths: Paths) -> int:
    if said.ended_by:
        return 128 + said.ended_by
    assert said.finished
    if said.finished.stop_reason is StopReason.ABORTED:
        raise HostError(said.finished.error or "The reply was stopped", "Ask again.")
    if said.finished.stop_reason is StopReason.FAILED:
        log_file = HostSpec.of(settings, paths).log_file
        raise HostError(f"The reply failed: {said.finished.error}", f"Ask again; the log says more: {log_file}")
    if said.finished.stop_reason is StopReason.KV_FULL:
        click.echo("octavo: the reply ended early, because the memory for its context is full.", err=True)
    return 0


def _as_json(said: Answer, finished: TurnFinished) -> dict[str, Any]:
    return {
        "text": said.text,
        "chat_id": said.accepted.chat_id if said.accepted else None,
        "turn_id": said.accepted.turn_id if said.accepted else None,
        "model": said.model,
        "stop_reason": finished.stop_reason,
        "usage": finished.usage,
        "timings": finished.timings,
        "token_ids": finished.token_ids,
    }


def _usage_line(finished: TurnFinished) -> str:
    usage, timings = finished.usage, finished.timings
    return (
        f"{usage.prompt_tokens} prompt tokens ({usage.cached_tokens} cached), {usage.completion_tokens} completion "
        f"tokens; first token {timings.first_token_ms:.0f} ms, total {timings.total_ms:.0f} ms, "
        f"{timings.tokens_per_s:.1f} tokens/s"
    )
