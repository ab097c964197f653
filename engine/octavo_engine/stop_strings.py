"""Ends a reply at a stop string: nothing of it leaks, and no more text is held back than could still become one."""

from collections.abc import Sequence


class StopStrings:
    """Text in, text out. Only a tail that is the beginning of a stop string is held back."""

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = tuple(stops)
        self._held = ""

    def add(self, text: str) -> tuple[str, bool]:
        """The text that may be shown now, and whether a stop string was met (the reply ends before it)."""
        if not self._stops:
            return text, False
        held = self._held + text
        found = [(start + len(stop), start) for stop in self._stops if (start := held.find(stop)) >= 0]
        if found:
            self._held = ""
            _, start = min(found)  # the first to be complete, however the text came in pieces
            return held[:start], True
        keep = max(_overlap(held, stop) for stop in self._stops)
        self._held = held[len(held) - keep :]
        return held[: len(held) - keep], False

    def finish(self) -> str:
        """What was held back, at the end of a reply that met no stop string."""
        held, self._held = self._held, ""
        return held


def _overlap(text: str, stop: str) -> int:
    """The longest end of `text` that is a proper beginning of `stop`."""
    longest = min(len(text), len(stop) - 1)
    return next((size for size in range(longest, 0, -1) if text.endswith(stop[:size])), 0)
