"""Keeps pasted text text: Textual's parser looks for keys in it wherever it holds an escape character."""

from collections.abc import Iterable

from textual import _xterm_parser
from textual.drivers import linux_driver
from textual.message import Message

ESCAPE, BEGIN, END = "\x1b", "\x1b[200~", "\x1b[201~"


def use_paste_parser() -> None:
    """Let Textual's driver for terminals read through PasteParser; it offers no other way to name one."""
    linux_driver.XTermParser = PasteParser  # type: ignore[attr-defined]


class PasteParser(_xterm_parser.XTermParser):
    """Takes escape characters out of what stands between the marks of a paste, as many terminals do.

    Left in, what follows one would be taken for keys: up to 32 characters would move ahead of the text, and a line end
    among them would send it. (Textual 8.2, `reissue_sequence_as_keys`.)
    """

    def __init__(self, debug: bool = False) -> None:
        super().__init__(debug)
        self._is_pasting = False
        self._seen = ""  # the last characters outside of a paste: the mark of its begin may come in two parts
        self._held = ""  # the last ones inside: so may that of its end

    def feed(self, data: str) -> Iterable[Message]:
        if not data:  # the end of all input
            return super().feed(data)
        cleaned = self._cleaned(data)
        return super().feed(cleaned) if cleaned else ()

    def _cleaned(self, data: str) -> str:
        parts = []
        while data:
            part, data = self._pasted(data) if self._is_pasting else self._typed(data)
            parts.append(part)
        return "".join(parts)

    def _typed(self, data: str) -> tuple[str, str]:
        """What comes up to the begin of a paste, and the rest."""
        text = self._seen + data
        place = text.find(BEGIN)
        if place < 0:
            self._seen = text[-len(BEGIN) + 1 :]
            return data, ""
        end, self._seen, self._is_pasting = place + len(BEGIN) - len(self._seen), "", True
        return data[:end], data[end:]

    def _pasted(self, data: str) -> tuple[str, str]:
        """What comes up to the end of the paste, without what is not text, and the rest."""
        text, mark, rest = (self._held + data).partition(END)
        self._is_pasting, self._held = not mark, ""
        if not mark:
            begun = next(count for count in range(len(END) - 1, -1, -1) if text.endswith(END[:count]))
            self._held = END[:begun]
            text = text[: len(text) - begun]
        return text.replace(ESCAPE, "") + mark, rest
