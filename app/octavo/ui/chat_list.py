"""The list of chats at the left: a title and a live state for each; a rail of signs where there is no room."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from rich.cells import set_cell_size
from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.content import Content
from textual.geometry import Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip

from octavo.session import Session
from octavo.ui.sturdy import Sturdy
from octavo.ui.words import Look, look_of, title_of

RAIL_WIDTH = 8  # narrower than this, only the signs are shown


class ChatList(Sturdy, ScrollView, can_focus=False):
    """Draws sessions, owns none; a click asks for one."""

    ALLOW_SELECT = False
    COMPONENT_CLASSES: ClassVar[set[str]] = {"chats--title", "chats--current", "chats--current-state", "chats--state"}

    @dataclass
    class ChatPicked(Message):
        """Somebody clicked on a chat."""

        session: Session

    def __init__(self) -> None:
        super().__init__(id="chats")
        self._sessions: Sequence[Session] = ()
        self._current: Session | None = None
        self.unread: set[Session] = set()

    def update_sessions(self, sessions: Sequence[Session], current: Session | None) -> None:
        """Show these, in this order, with `current` marked and in view."""
        self._sessions = sessions
        is_moved = current is not self._current
        self._current = current
        self._lay_out()
        if is_moved:
            self._reveal()
        self.refresh()

    @property
    def is_rail(self) -> bool:
        """Whether there is room for the signs only."""
        return self.size.width < RAIL_WIDTH

    def _lay_out(self) -> None:
        height = len(self._sessions) * self._lines_each
        self.virtual_size = Size(self.scrollable_content_region.width, height)

    @property
    def _lines_each(self) -> int:
        return 1 if self.is_rail else 2

    def on_resize(self) -> None:
        self._lay_out()
        self._reveal()
        self.refresh()

    def _reveal(self) -> None:
        for index, session in enumerate(self._sessions):
            if session is self._current:
                top = index * self._lines_each
                lowest = top + self._lines_each - self.size.height
                y = min(max(self.scroll_offset.y, lowest), top)
                self.scroll_to(y=y, animate=False, immediate=True, force=True)

    def _session_at(self, y: int) -> Session | None:
        index = (y + self.scroll_offset.y) // self._lines_each
        return self._sessions[index] if 0 <= index < len(self._sessions) else None

    def on_click(self, event: events.Click) -> None:
        if (session := self._session_at(event.y)) is not None:
            self.post_message(self.ChatPicked(session))

    def on_mouse_move(self, event: events.MouseMove) -> None:
        session = self._session_at(event.y)
        self.tooltip = None if session is None else Content(f"{title_of(session)}\n{self._look(session).word}")

    def _look(self, session: Session) -> Look:
        return look_of(session, is_unread=session in self.unread, is_current=session is self._current)

    def render_line(self, y: int) -> Strip:
        session = self._session_at(y)
        width = self.scrollable_content_region.width
        if session is None:
            return Strip.blank(width, self.rich_style)
        is_current = session is self._current
        base = self.get_component_rich_style("chats--current" if is_current else "chats--title")
        look = self._look(session)
        is_first = (y + self.scroll_offset.y) % self._lines_each == 0
        mark = "▎" if is_current else " "
        segments = [Segment(mark, base + self._color("$accent"))]
        if is_first:
            segments.append(Segment(f"{look.glyph} ", base + self._color(look.color)))
            segments.append(Segment(_fit(title_of(session), width - 4), base))
        else:
            segments.append(Segment("  ", base))
            segments.append(Segment(look.word, self._state_style(look, is_current=is_current)))
        return Strip(segments).crop_extend(0, width, base)

    def _state_style(self, look: Look, *, is_current: bool) -> Style:
        name = "chats--current-state" if is_current else "chats--state"
        return self.get_component_rich_style(name) + self._color(look.color)

    def _color(self, variable: str) -> Style:
        return Style(color=self.app.theme_variables[variable.removeprefix("$")])


def _fit(title: str, width: int) -> str:
    """`title` cut to `width` cells, with an ellipsis where something is missing."""
    cut = set_cell_size(title, max(0, width)).rstrip()
    return cut if cut == title or width < 1 else set_cell_size(title, width - 1).rstrip() + "…"
