"""The visible text of one reply: ids in, text out, ended by a stop string."""

from collections.abc import Sequence

from octavo_engine.detokenizer import Decode, Detokenizer
from octavo_engine.stop_strings import StopStrings


class ReplyText:
    """A detokenizer and the stop strings behind it.

    `is_over` says that a stop string ended it. Decoding is a tokenizer's own code: what it raises is kept in `error`,
    and the text is over too.
    """

    def __init__(self, decode: Decode, stops: Sequence[str], spoiler: int | None = None) -> None:
        self._detokenizer = Detokenizer(decode, spoiler)
        self._stops = StopStrings(stops)
        self._has_stops = bool(stops)
        self.is_over = False
        self.error = ""

    def add(self, token_ids: Sequence[int], *, can_stop: bool = True) -> str:
        """The text that becomes visible; a stop string counts only if the reply may end here."""
        try:
            text = self._detokenizer.add(token_ids)
        except Exception as error:  # a border, see above
            return self._fail(error)
        return self._show(text) if self._has_stops and can_stop else text

    def finish(self) -> str:
        """What was held back, unless a stop string or an error ended the reply."""
        if self.is_over:
            return ""
        try:
            text = self._show(self._detokenizer.finish())
        except Exception as error:  # a border, see above
            text = self._fail(error)
        return text if self.is_over else text + self._stops.finish()

    def _show(self, text: str) -> str:
        visible, self.is_over = self._stops.add(text)
        return visible

    def _fail(self, error: Exception) -> str:
        self.is_over = True
        self.error = f"the tokenizer cannot decode the reply: {error!r}"
        return ""
