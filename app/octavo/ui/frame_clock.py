"""Draws at most once a frame, however often something changes."""

from asyncio import get_running_loop
from collections.abc import Callable
from time import monotonic

from textual.message_pump import MessagePump

FRAME_S = 1 / 60


class FrameClock:
    """Calls `draw` in the queue of `pump`: at once after a quiet time, else when the next frame is due."""

    def __init__(self, pump: MessagePump, draw: Callable[[], None]) -> None:
        self._pump = pump
        self._draw = draw
        self._is_due = False
        self._drawn_at = 0.0

    def ask(self) -> None:
        """Something has changed."""
        if self._is_due:
            return
        self._is_due = True
        if monotonic() - self._drawn_at >= FRAME_S:
            self._pump.call_next(self.draw)
        else:  # not a timer of Textual's: one that begins late, after the process was held up, never fires
            get_running_loop().call_later(FRAME_S, self._pump.call_next, self.draw)

    def draw(self) -> None:
        """Draw now."""
        self._is_due = False
        self._drawn_at = monotonic()
        self._draw()
