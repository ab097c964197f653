"""What is shown of a turn: its prompt, its reply as far as it is known, and how it went."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from msgspec.structs import asdict

from octavo.protocol import TurnDelta, TurnFinished
from octavo_data import Chat, Turn, TurnStatus
from octavo_engine.events import StopReason, Timings, Usage

_STATUS = {StopReason.FAILED: TurnStatus.FAILED, StopReason.ABORTED: TurnStatus.STOPPED}


@dataclass(slots=True, kw_only=True)
class TurnView:
    """One user message and its reply as far as it is known; only its session changes it.

    `turn_id` is None until the host has stored it. `status` is a value of TurnStatus. `stop_reason` is a value of
    StopReason ("interrupted" after the host died), "" while it runs. `error` is one line, "" when all is well.
    `cached_tokens` is known when the turn leaves the queue, `usage` and `timings` at its end. `num_tokens` counts the
    reply's tokens so far.
    """

    prompt: str
    turn_id: str | None = None
    reply: str = ""
    status: str = TurnStatus.RUNNING
    stop_reason: str = ""
    error: str = ""
    cached_tokens: int | None = None
    num_tokens: int = 0
    usage: Usage | None = None
    timings: Timings | None = None
    _first: tuple[float, int] | None = field(default=None, repr=False)  # (seconds, num_tokens) at the first text
    _last_s: float = field(default=0.0, repr=False)

    @classmethod
    def of(cls, turn: Turn) -> "TurnView":
        """The view of a stored turn."""
        is_over = turn.status is not TurnStatus.RUNNING
        return cls(
            prompt=turn.prompt,
            turn_id=turn.id,
            reply=turn.reply,
            status=turn.status,
            stop_reason=turn.stop_reason,
            error=turn.error,
            cached_tokens=turn.counts.cached_tokens if is_over else None,
            num_tokens=turn.counts.completion_tokens,
            usage=Usage(**asdict(turn.counts)) if is_over else None,
            timings=Timings(**asdict(turn.timings)) if is_over else None,
        )

    @property
    def is_running(self) -> bool:
        """Whether more of it may come."""
        return self.status == TurnStatus.RUNNING

    @property
    def tokens_per_s(self) -> float:
        """Decoding speed, without the wait for the first token; 0 until it is known."""
        if self.timings:
            return self.timings.tokens_per_s
        if self._first is None or self._last_s <= self._first[0]:
            return 0.0
        return (self.num_tokens - self._first[1]) / (self._last_s - self._first[0])

    def append(self, delta: TurnDelta) -> None:
        """More text has come."""
        self.reply += delta.text
        self.num_tokens += delta.num_tokens
        self._last_s = time.monotonic()
        self._first = self._first or (self._last_s, self.num_tokens)

    def catch_up(self, whole: TurnDelta) -> str | None:
        """Take the whole reply so far; returns what of it is new, None where it does not begin with what was known."""
        known, self.num_tokens = self.reply, 0
        is_longer = whole.text.startswith(known)
        self.reply = ""
        self.append(whole)
        return whole.text[len(known) :] if is_longer else None

    def finish(self, frame: TurnFinished) -> None:
        """The host says how it ended."""
        is_interrupted = frame.stop_reason is StopReason.ABORTED and bool(frame.error)
        self.status = TurnStatus.INTERRUPTED if is_interrupted else _STATUS.get(frame.stop_reason, TurnStatus.DONE)
        self.stop_reason, self.error = frame.stop_reason.value, frame.error
        self.usage, self.timings = frame.usage, frame.timings
        self.cached_tokens, self.num_tokens = frame.usage.cached_tokens, frame.usage.completion_tokens

    def interrupt(self, error: str) -> None:
        """The host is gone; what was said is kept."""
        self.status, self.stop_reason, self.error = TurnStatus.INTERRUPTED, TurnStatus.INTERRUPTED.value, error


def is_up_to_date(turns: Sequence[TurnView], chat: Chat) -> bool:
    """Whether `turns` is what the store has of a chat; a last turn that could not be stored is to be shown on."""
    if not turns:
        return chat.num_turns == 0
    last = turns[-1]
    if last.turn_id is None:
        return True
    # we saw its host die, and the store does not know it yet
    is_known_dead = last.status == TurnStatus.INTERRUPTED and chat.last_status is TurnStatus.RUNNING
    is_settled = last.status == chat.last_status and not last.is_running
    return last.turn_id == chat.tip_id and len(turns) == chat.num_turns and (is_settled or is_known_dead)
