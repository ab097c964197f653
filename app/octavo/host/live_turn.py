"""A turn while it runs in the host: its text so far, who follows it, and when they hear of it."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from octavo.host.bookkeeping import Ending
from octavo.host.connection import Connection
from octavo.protocol import (
    Accepted,
    HostFrame,
    Notice,
    Rejected,
    TurnDelta,
    TurnFinished,
    TurnPreempted,
    TurnStarted,
)
from octavo_data import TurnStatus
from octavo_engine.events import Delta, Event, Finished, Preempted, Started, StopReason, Timings, Usage

COALESCE_S = 0.03


@dataclass(frozen=True, slots=True)
class Follower:
    """A request of a client that wants the frames of a turn under its own number."""

    connection: Connection
    number: int


class LiveTurn:
    """Collects a turn's events and sends them on, one frame each 30 ms at most, the first at once.

    Nothing is sent before `announce`; what came earlier follows it. `ended` is done when the engine is through with
    the turn, however that came about. Belongs to the loop's thread.
    """

    def __init__(self, request_id: str) -> None:
        self.request_id = request_id
        self.chat_id: str | None = None
        self.turn_id: str | None = None
        self.is_stopped = False  # somebody asked for its end
        self.has_unflushed = False
        self.token_ids: list[int] = []
        self.followers: list[Follower] = []
        self.ended: asyncio.Future[Finished] = asyncio.get_running_loop().create_future()
        self._texts: list[str] = []
        self._notices: list[tuple[str, str]] = []
        self._started: Started | None = None
        self._is_preempted = False
        self._num_prompt_tokens: int | None = None  # None until it is announced
        self._num_sent_texts = 0
        self._num_sent_tokens = 0
        self._last_sent_at = 0.0
        self._timer: asyncio.TimerHandle | None = None

    @property
    def text(self) -> str:
        """The reply so far."""
        return "".join(self._texts)

    @property
    def is_announced(self) -> bool:
        """Whether its followers were told that it is accepted."""
        return self._num_prompt_tokens is not None

    def take(self, event: Event) -> None:
        """The engine tells something about this turn."""
        if self.ended.done():  # it was cut short, and the engine heard of that later
            return
        match event:
            case Started():
                self._started = event
                if self.is_announced:
                    self._tell(self._started_frame)
            case Preempted():
                self._send_now()
                self._is_preempted = True
                if self.is_announced:
                    self._tell(_preempted_frame)
            case Delta():
                self._is_preempted = False
                self._texts.append(event.text)
                self.token_ids += event.token_ids
                self.has_unflushed = True
                self._send_soon()
            case Finished():
                self.ended.set_result(event)

    def announce(self, num_prompt_tokens: int) -> None:
        """Tell the followers that the turn is accepted, and all that happened since."""
        self._num_prompt_tokens = num_prompt_tokens
        for follower in self.followers:
            self._tell_all(follower)

    def follow(self, follower: Follower) -> None:
        """Let one more follow; it gets everything from the beginning, exactly once."""
        self._send_now()
        self.followers.append(follower)
        if self.is_announced:
            self._tell_all(follower)

    def unfollow(self, connection: Connection) -> bool:
        """A client has gone; whether it followed this turn."""
        kept = [follower for follower in self.followers if follower.connection is not connection]
        is_follower = len(kept) < len(self.followers)
        self.followers = kept
        return is_follower

    def notice(self, text: str, remedy: str) -> None:
        """Tell the followers something that a person should know, once."""
        if (text, remedy) not in self._notices:
            self._notices.append((text, remedy))
            if self.is_announced:
                self._tell(lambda number: Notice(request=number, text=text, remedy=remedy))

    def cut_short(self, reason: StopReason, error: str = "") -> None:
        """End the turn without the engine, which is gone or must not be waited for."""
        if not self.ended.done():
            cached = self._started.cached_tokens if self._started else 0
            prompt = self._num_prompt_tokens or 0
            computed = prompt - cached if self._started else 0
            usage = Usage(
                prompt_tokens=prompt,
                cached_tokens=cached,
                computed_tokens=computed,
                completion_tokens=len(self.token_ids),
            )
            self.ended.set_result(Finished(self.request_id, reason, usage, Timings(), error))

    def reject(self, error: str, remedy: str) -> None:
        """Tell the followers that it will not run."""
        self._tell(lambda number: Rejected(request=number, error=error, remedy=remedy))

    def finish(self, finished: Finished) -> None:
        """Send the rest of the text and the last frame."""
        self._send_now()
        self._tell(
            lambda number: TurnFinished(
                request=number,
                stop_reason=finished.stop_reason,
                usage=finished.usage,
                timings=finished.timings,
                token_ids=tuple(self.token_ids),
                error=finished.error,
            )
        )

    def ending(self, turn_id: str, status: TurnStatus, finished: Finished) -> Ending:
        """What the store is to keep of it."""
        return Ending(turn_id, status, finished, self.text, tuple(self.token_ids))

    def _send_soon(self) -> None:
        if not self.is_announced or self._timer is not None:
            return
        loop = asyncio.get_running_loop()
        wait_s = self._last_sent_at + COALESCE_S - loop.time()
        if wait_s <= 0:
            self._send_now()
        else:
            self._timer = loop.call_later(wait_s, self._send_now)

    def _send_now(self) -> None:
        """Bring all followers to the same point: the present."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not self.is_announced or len(self._texts) == self._num_sent_texts:
            return
        text, num_tokens = self._unsent()
        self._mark_sent()
        self._tell(lambda number: TurnDelta(request=number, text=text, num_tokens=num_tokens))

    def _unsent(self) -> tuple[str, int]:
        return "".join(self._texts[self._num_sent_texts :]), len(self.token_ids) - self._num_sent_tokens

    def _mark_sent(self) -> None:
        self._num_sent_texts, self._num_sent_tokens = len(self._texts), len(self.token_ids)
        self._last_sent_at = asyncio.get_running_loop().time()

    def _tell_all(self, follower: Follower) -> None:
        number, send = follower.number, follower.connection.send
        assert self._num_prompt_tokens is not None
        send(
            Accepted(request=number, chat_id=self.chat_id, turn_id=self.turn_id, prompt_tokens=self._num_prompt_tokens)
        )
        for text, remedy in self._notices:
            send(Notice(request=number, text=text, remedy=remedy))
        if self._started:
            send(self._started_frame(number))
        if self._texts:
            send(TurnDelta(request=number, text=self.text, num_tokens=len(self.token_ids)))
            self._mark_sent()
        if self._is_preempted:
            send(_preempted_frame(number))

    def _started_frame(self, number: int) -> HostFrame:
        assert self._started is not None
        return TurnStarted(request=number, cached_tokens=self._started.cached_tokens)

    def _tell(self, frame_for: Callable[[int], HostFrame]) -> None:
        for follower in self.followers:
            follower.connection.send(frame_for(follower.number))


def _preempted_frame(number: int) -> HostFrame:
    return TurnPreempted(request=number)
