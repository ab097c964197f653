"""The composer: a text area that grows with its text; enter sends, shift+enter and ctrl+j make a line."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from textual import events
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.message import Message
from textual.widgets import TextArea

from octavo.ui.sturdy import Sturdy

NEWLINE_KEYS = ("shift+enter", "ctrl+j", "alt+enter")
IDLE_HINT = Content("Write a message")
BUSY_HINT = Content("Answering; esc stops it")  # at hand in a terminal too small for the line of keys


class Composer(Sturdy, TextArea):
    """Where a message is written."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("ctrl+shift+z", "redo", show=False)]

    @dataclass
    class EndPressed(Message):
        """End was pressed where the cursor cannot go further."""

    def __init__(self, send: Callable[[str], None]) -> None:
        """`send` is called as soon as enter is pressed: what is typed behind it is of the next message."""
        self._send = send
        super().__init__(
            id="composer",
            compact=True,
            highlight_cursor_line=False,
            placeholder=IDLE_HINT,
            tab_behavior="focus",
        )

    async def _on_key(self, event: events.Key) -> None:
        if event.key == "enter":
            event.stop()
            event.prevent_default()
            self._send(self.text)
        elif event.key in NEWLINE_KEYS:
            event.stop()
            event.prevent_default()
            self.insert("\n")
            self.scroll_cursor_visible()
        # for any other key Textual calls the handler of TextArea next

    async def _on_paste(self, event: events.Paste) -> None:
        event.text = event.text.replace("\r\n", "\n").replace("\r", "\n")

    def action_cursor_line_end(self, select: bool = False) -> None:
        if not select and self.cursor_at_end_of_text:
            self.post_message(self.EndPressed())
        super().action_cursor_line_end(select)

    def show_text(self, text: str) -> None:
        """Put `text` in place of what is there, with the cursor behind it."""
        if text != self.text:
            self.load_text(text)
            self.move_cursor(self.document.end)
