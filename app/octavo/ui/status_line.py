"""The two lines at the bottom: how host and reply fare, and the keys."""

from textual.content import Content
from textual.reactive import reactive
from textual.timer import Timer
from textual.widget import Widget

from octavo.ui.plain import one_line
from octavo.ui.words import HOST_LOOKS, host_word
from octavo.workspace import HostView

KEYS = (("ctrl+n", "new"), ("alt+↑↓", "switch"), ("esc", "stop"), ("ctrl+q", "quit"), ("ctrl+y", "copy reply"))
NOTICE_S = 3.0
_GAP = "   "


class StatusLine(Widget):
    """The host's state, then the figures that fit, the most wanted first."""

    host: reactive[HostView] = reactive(HostView())
    rate: reactive[str] = reactive("")
    cached: reactive[str] = reactive("")
    blocks: reactive[str] = reactive("")

    def render(self) -> Content:
        look = HOST_LOOKS[self.host.state]
        shown = Content.assemble((look.glyph, look.color), " ", (host_word(self.host), "$text-muted"))
        parts = [(one_line(self.host.model), "$foreground"), (self.rate, "$accent")]
        for text, style in [*parts, (self.cached, "$text-muted"), (self.blocks, "$text-muted")]:
            more = Content.assemble(shown, _GAP, (text, style))
            if text and more.cell_length <= self.content_size.width:
                shown = more
        return shown


class KeyLine(Widget):
    """The keys, or for a moment what a key has done."""

    notice: reactive[str] = reactive("")
    _timer: Timer | None = None

    def say(self, text: str) -> None:
        """Show `text` for some seconds."""
        if self._timer is not None:
            self._timer.stop()
        self.notice = text
        self._timer = self.set_timer(NOTICE_S, self.hush)

    def hush(self) -> None:
        """Show the keys again."""
        self.notice = ""

    def watch_notice(self, notice: str) -> None:
        self.set_class(bool(notice), "-notice")

    def render(self) -> Content:
        if self.notice:
            return Content.styled(one_line(self.notice), "$accent")
        shown = Content("")
        for key, what in KEYS:
            more = Content.assemble(shown, _GAP if shown else "", (key, "$text-muted bold"), " ", (what, "$text-muted"))
            if more.cell_length <= self.content_size.width:
                shown = more
        return shown
