"""The lines of one turn in the transcript, at one width: labels, prompt, reply and note, as cached strips."""

from dataclasses import dataclass
from enum import Enum

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip

from octavo.session import TurnView
from octavo.ui.growing_text import GrowingText, RowKind
from octavo.ui.plain import plain

MARGIN = 2  # cells and characters before each text; a selection's columns count them
MAX_TEXT_WIDTH = 100  # longer rows tire the eye
_BAR = "▎ "
_CURSOR = "▍"


class Part(Enum):
    """What a line belongs to; the values name the component classes of the transcript."""

    YOU = "you"
    PROMPT = "prompt"
    GAP = "gap"
    LABEL = "label"
    REPLY = "reply"
    NOTE = "note"


@dataclass(frozen=True, slots=True)
class Palette:
    """The styles of everything that a block draws."""

    bar: Style
    you: Style
    prompt: Style
    label: Style
    reply: Style
    code: Style
    fence: Style
    note: Style
    failure: Style
    cursor: Style
    selection: Style


class TurnBlock:
    """One turn as lines; `sync` takes over what the turn has gained since."""

    def __init__(self, turn: TurnView, width: int, note: str) -> None:
        self.turn = turn
        text_width = min(MAX_TEXT_WIDTH, width - MARGIN - 2)
        self.prompt = GrowingText(text_width)
        self.prompt.extend(plain(turn.prompt).strip("\n"))
        self.reply = GrowingText(text_width)
        self._num_taken = 0  # characters of turn.reply that self.reply has
        self._note = GrowingText(text_width)
        self._note_text = ""
        self._is_live = False
        self._strips: dict[int, Strip] = {}
        self.sync(note)

    @property
    def height(self) -> int:
        """Lines, with the gap below."""
        return self._note_top + (len(self._note.rows) if self._note_text else 0) + 1

    @property
    def reply_top(self) -> int:
        """The first line of the reply."""
        return len(self.prompt.rows) + 3

    @property
    def _note_top(self) -> int:
        return self.reply_top + len(self.reply.rows)

    def sync(self, note: str) -> int:
        """Take over new text and state; returns the first line that changed, or the height when none did."""
        before = self._note_top
        changed = min(self._sync_reply(), before)
        is_live = self.turn.status == "running"
        if note != self._note_text:
            self._note_text = note
            self._note = GrowingText(self.reply.width, plain(note))
        elif is_live == self._is_live and changed == before == self._note_top:
            return self.height
        self._is_live = is_live
        changed = max(self.reply_top, changed - 1)  # the cursor leaves the row before
        self._strips = {y: strip for y, strip in self._strips.items() if y < changed}
        return changed

    def _sync_reply(self) -> int:
        # a carriage return at the end waits for the newline that may follow
        end = len(self.turn.reply) - self.turn.reply.endswith("\r")
        if end <= self._num_taken:
            return self._note_top
        changed = self.reply.extend(plain(self.turn.reply[self._num_taken : end]))
        self._num_taken = end
        return self.reply_top + changed

    def forget_strips(self) -> None:
        """Draw everything anew, in other colours say."""
        self._strips.clear()

    def place(self, y: int) -> tuple[Part, int]:
        """What line `y` shows, and which row of it."""
        num_prompt = len(self.prompt.rows)
        if y == 0:
            return Part.YOU, 0
        if y <= num_prompt:
            return Part.PROMPT, y - 1
        if y < self.reply_top:
            return (Part.GAP, 0) if y == num_prompt + 1 else (Part.LABEL, 0)
        if y < self._note_top:
            return Part.REPLY, y - self.reply_top
        if y < self.height - 1:
            return Part.NOTE, y - self._note_top
        return Part.GAP, 0

    def strip(self, y: int, palette: Palette, selected: tuple[int, int] | None = None) -> Strip:
        """Line `y` in colours; `selected` are the first and the last column, -1 for the end."""
        if selected is None and (strip := self._strips.get(y)) is not None:
            return strip
        segments = self._segments(y, palette)
        if selected is not None:
            return Strip(_highlight(segments, selected, palette.selection))
        strip = self._strips[y] = Strip(segments)
        return strip

    def _segments(self, y: int, palette: Palette) -> list[Segment]:
        part, row = self.place(y)
        if part is Part.YOU:
            return [Segment(_BAR, palette.bar), Segment("You", palette.you)]
        if part is Part.PROMPT:
            return [Segment(_BAR, palette.bar), Segment(_row_text(self.prompt, row), palette.prompt)]
        if part is Part.LABEL:
            return [Segment("  "), Segment("Octavo", palette.label)]
        if part is Part.REPLY:
            return self._reply_segments(row, palette)
        if part is Part.NOTE:
            style = palette.failure if self.turn.status in ("failed", "interrupted") else palette.note
            return [Segment("  "), Segment(_row_text(self._note, row), style)]
        return []

    def _reply_segments(self, row: int, palette: Palette) -> list[Segment]:
        kind = self.reply.rows[row].kind
        text = _row_text(self.reply, row)
        if kind is RowKind.PROSE:
            segments = [Segment("  "), Segment(text, palette.reply)]
        else:
            style = palette.code if kind is RowKind.CODE else palette.fence
            pad = " " * (self.reply.width - cell_len(text))
            segments = [Segment("  "), Segment(text, style), Segment(pad, palette.code)]
        if self._is_live and row == len(self.reply.rows) - 1:
            segments[2:] = [Segment(_CURSOR, palette.cursor)]
        return segments


def _row_text(text: GrowingText, row: int) -> str:
    start, end, _ = text.rows[row]
    return text.text[start:end]


def _highlight(segments: list[Segment], selected: tuple[int, int], style: Style) -> list[Segment]:
    """Give the characters from the first to the last column another style."""
    first, last = selected
    result, at = [], 0
    for text, own, _ in segments:
        a = min(max(first - at, 0), len(text))
        b = len(text) if last < 0 else min(max(last - at, a), len(text))
        marked = (own or Style.null()) + style
        parts = ((text[:a], own), (text[a:b], marked), (text[b:], own))
        result += [Segment(piece, look) for piece, look in parts if piece]
        at += len(text)
    return result
