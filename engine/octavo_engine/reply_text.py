"""The visible text of one reply: ids in, text out, ended by a stop string."""

from collections.abc import Sequence

from octavo_engine.detokenizer import Decode, Detokenizer
from octavo_engine.stop_strings import StopStrings


class ReplyText:
    """A detokenizer and the stop strings behind it."""

    def __init__(self, decode: Decode, stops: Sequence[str], spoiler: int | None = None) -> None:
        self._detokenizer = Detokenizer(decode, spoiler)
        self._stops = StopStrings(stops)
        self.is_stopped = False

    def add(self, token_ids: Sequence[int], *, can_stop: bool = True) -> str:
        """The text that becomes visible; `is_stopped` turns true when a stop string was met, if the reply may end."""
        text = self._detokenizer.add(token_ids)
        return self._show(text) if can_stop else text

    def finish(self) -> str:
        """What was held back, unless a stop string ended the reply."""
        if self.is_stopped:
            return ""
        text = self._show(self._detokenizer.finish())
        return text if self.is_stopped else text + self._stops.finish()

    def _show(self, text: str) -> str:
        visible, self.is_stopped = self._stops.add(text)
        return visible
