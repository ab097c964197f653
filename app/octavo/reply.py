"""One request as its client sees it: the frames that the host sends for it, in order, read once."""

import asyncio
from collections.abc import AsyncIterator

from octavo.errors import OctavoError, RequestRejectedError
from octavo.protocol import (
    Accepted,
    Notice,
    Rejected,
    RequestFrame,
    TurnDelta,
    TurnFinished,
    TurnPreempted,
    TurnStarted,
)

ReplyFrame = Accepted | TurnStarted | TurnPreempted | TurnDelta | Notice | TurnFinished


class Reply:
    """Iterate to get the frames of one request up to and with TurnFinished; made by `Client.submit` and `watch`.

    Iterating raises RequestRejectedError when the host refuses, HostLostError (or HostError) when it goes away. The
    frames wait here however slowly they are read. `await accepted()` first to learn the ids of chat and turn.
    """

    def __init__(self, number: int) -> None:
        self.number = number
        self.is_over = False  # the last frame has arrived, read or not
        self._items: asyncio.Queue[RequestFrame | OctavoError] = asyncio.Queue()
        self._accepted: Accepted | None = None
        self._is_read = False

    async def accepted(self) -> Accepted:
        """Wait until the turn is stored and queued; raises RequestRejectedError, HostLostError, HostError."""
        if self._accepted is None:
            frame = await self._next()
            assert isinstance(frame, Accepted), frame  # the host sends it first
        assert self._accepted
        return self._accepted

    async def __aiter__(self) -> AsyncIterator[ReplyFrame]:
        while not self._is_read:
            yield await self._next()

    async def text(self) -> AsyncIterator[str]:
        """Only the text, piece by piece; the errors are those of iterating."""
        async for frame in self:
            if isinstance(frame, TurnDelta):
                yield frame.text

    def put(self, frame: RequestFrame) -> bool:
        """The connection's reader brings a frame; returns whether it was the last one."""
        self._items.put_nowait(frame)
        self.is_over = isinstance(frame, TurnFinished | Rejected)
        return self.is_over

    def fail(self, error: OctavoError) -> None:
        """The connection is over before the last frame came."""
        self.is_over = True
        self._items.put_nowait(error)

    async def _next(self) -> ReplyFrame:
        frame = await self._items.get()
        self._is_read = isinstance(frame, TurnFinished | Rejected | OctavoError)
        if isinstance(frame, OctavoError):
            raise frame
        if isinstance(frame, Rejected):
            raise RequestRejectedError(frame.error, frame.remedy)
        if isinstance(frame, Accepted):
            self._accepted = frame
        return frame
