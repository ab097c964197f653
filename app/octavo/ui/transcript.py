"""The transcript: a scroll view over the lines of all turns, of which only the visible ones are drawn."""

from bisect import bisect_right
from collections.abc import Callable
from itertools import takewhile
from typing import ClassVar

from rich.style import Style
from textual import events
from textual.geometry import Size
from textual.scroll_view import ScrollView
from textual.selection import Selection
from textual.strip import Strip

from octavo.session import Session, TurnView
from octavo.ui.sturdy import Sturdy
from octavo.ui.turn_block import MARGIN, Palette, Part, TurnBlock

NoteOf = Callable[[Session, TurnView], str]


class Transcript(Sturdy, ScrollView, can_focus=False):
    """Shows the turns of one session; it follows the end only while it is at the end."""

    ALLOW_SELECT = True
    COMPONENT_CLASSES: ClassVar[set[str]] = {
        f"transcript--{name}"
        for name in ("bar", "you", "prompt", "label", "reply", "code", "fence", "note", "failure", "cursor")
    }

    def __init__(self, note_of: NoteOf) -> None:
        super().__init__(id="transcript")
        self._note_of = note_of
        self._session: Session | None = None
        self._blocks: list[TurnBlock] = []
        self._tops: list[int] = []  # first line of each block
        self._width = 0
        self._palette: Palette | None = None
        self._places: dict[Session, int | None] = {}  # where each session was scrolled to; None: following
        self.is_following = True

    # ---- what it shows ----

    def show(self, session: Session) -> None:
        """Bring a session into view, where it was left."""
        if self._session is not None:
            self._places[self._session] = None if self.is_following else self.scroll_offset.y
        self._session = session
        self.rebuild()
        place = self._places.get(session)
        self.is_following = place is None
        self._go_to(self.virtual_size.height if place is None else place)

    def rebuild(self) -> None:
        """Lay all turns out again: another session, another width, or other turns."""
        self._blocks = []
        self._tops = []
        self.screen.clear_selection()
        self.sync()
        self.refresh()

    def sync(self) -> None:
        """Take over what the turns of the session have gained; call it at most once a frame."""
        session = self._session
        if session is None or self._width <= 0:
            return
        turns = session.turns
        num = len(self._blocks)
        if num > len(turns) or (num and self._blocks[-1].turn is not turns[num - 1]):
            self._drop_stale(session)
        if self._blocks:
            changed = self._blocks[-1].sync(self._note_of(session, self._blocks[-1].turn))
            self.refresh_lines(self._tops[-1] + changed, self.size.height)
        for turn in turns[len(self._blocks) :]:
            self._tops.append(self._height())
            self._blocks.append(TurnBlock(turn, self._width, self._note_of(session, turn)))
        self._set_height(self._height())

    def _drop_stale(self, session: Session) -> None:
        pairs = zip(self._blocks, session.turns, strict=False)
        kept = sum(1 for _ in takewhile(lambda pair: pair[0].turn is pair[1], pairs))
        del self._blocks[kept:], self._tops[kept:]
        self.refresh()

    def _height(self) -> int:
        return self._tops[-1] + self._blocks[-1].height if self._blocks else 0

    def _set_height(self, height: int) -> None:
        if height != self.virtual_size.height or self._width != self.virtual_size.width:
            self.virtual_size = Size(self._width, height)
            if self.is_following:
                self._go_to(height)

    # ---- where it is ----

    def follow(self) -> None:
        """Go to the end and stay there."""
        self.is_following = True
        self._go_to(self.virtual_size.height)

    def _go_to(self, y: int) -> None:
        self.scroll_to(y=min(y, self.max_scroll_y), animate=False, immediate=True, force=True)

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        super().watch_scroll_y(old_value, new_value)
        self.is_following = new_value >= self.max_scroll_y

    def on_resize(self, event: events.Resize) -> None:
        width = self.scrollable_content_region.width
        if width != self._width:
            anchor = None if self.is_following or not self._blocks else self._anchor()
            self._width = width
            self.rebuild()
            if anchor is not None and self._blocks:
                self._go_to(self._line_of(anchor))
        if self.is_following:
            self._go_to(self.virtual_size.height)

    def _anchor(self) -> tuple[int, Part, int]:
        """The place of the first visible line in the text: it stays when the rows are others."""
        index, y = self._find(self.scroll_offset.y)
        part, row = self._blocks[index].place(y)
        text = self._blocks[index].reply if part is Part.REPLY else self._blocks[index].prompt
        return index, part, text.rows[row].start if part in (Part.REPLY, Part.PROMPT) else 0

    def _line_of(self, anchor: tuple[int, Part, int]) -> int:
        index, part, offset = anchor
        block = self._blocks[index]
        if part is Part.REPLY:
            return self._tops[index] + block.reply_top + block.reply.row_at(offset)
        return self._tops[index] + (1 + block.prompt.row_at(offset) if part is Part.PROMPT else 0)

    def _find(self, line: int) -> tuple[int, int]:
        index = bisect_right(self._tops, line) - 1
        return index, line - self._tops[index]

    # ---- drawing ----

    def render_line(self, y: int) -> Strip:
        line = y + self.scroll_offset.y
        width = self.scrollable_content_region.width
        if line >= self._height():
            return Strip.blank(width, self.rich_style)
        strip = self._strip(line).apply_style(self.rich_style)
        return strip.crop_extend(0, width, self.rich_style).apply_offsets(0, line)

    def _strip(self, line: int) -> Strip:
        index, y = self._find(line)
        palette = self._palette or self._make_palette()
        selection = self.text_selection
        span = selection.get_span(line) if selection is not None else None
        return self._blocks[index].strip(y, palette, span)

    def _make_palette(self) -> Palette:
        def style(name: str) -> Style:
            return self.get_component_rich_style(f"transcript--{name}")

        names = (name for name in Palette.__slots__ if name != "selection")
        selection = self.screen.get_component_rich_style("screen--selection")
        self._palette = Palette(**{name: style(name) for name in names}, selection=selection)
        return self._palette

    def notify_style_update(self) -> None:
        super().notify_style_update()
        self._palette = None
        for block in self._blocks:
            block.forget_strips()

    # ---- selecting ----

    def get_selection(self, selection: Selection) -> tuple[str, str] | None:
        """The prompts and replies under the selection, without labels and without the breaks of wrapping."""
        lines = [line for line in range(self._height()) if selection.get_span(line) is not None]
        pieces: list[str] = []
        while lines:
            pieces += self._take(lines, selection)
        return "\n\n".join(pieces), "\n"

    def _take(self, lines: list[int], selection: Selection) -> list[str]:
        """The selected text of one prompt or reply; its lines are removed."""
        index, y = self._find(lines[0])
        part, row = self._blocks[index].place(y)
        if part not in (Part.PROMPT, Part.REPLY):
            del lines[0]
            return []
        text = self._blocks[index].prompt if part is Part.PROMPT else self._blocks[index].reply
        num = min(len(lines), len(text.rows) - row)
        first, _ = selection.get_span(lines[0]) or (0, -1)
        _, last = selection.get_span(lines[num - 1]) or (0, -1)
        del lines[:num]
        end = len(text.text) if last < 0 else max(0, last - MARGIN)
        return [text.extract((row, max(0, first - MARGIN)), (row + num - 1, end))]

    def selection_updated(self, selection: Selection | None) -> None:
        self.refresh()
