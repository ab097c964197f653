"""Small pieces around the transcript: the chat's heading, the empty state, the banner."""

from textual.content import Content
from textual.reactive import reactive
from textual.widget import Widget

from octavo.ui.plain import one_line, plain
from octavo.ui.words import Look


class Heading(Widget):
    """The title of the chat in view, and its state in words where it is not idle."""

    chat: reactive[str] = reactive("")
    look: reactive[Look | None] = reactive(None)

    def render(self) -> Content:
        look = self.look
        state = Content.styled(f"{look.glyph} {look.word}", look.color) if look else Content("")
        room = max(0, self.content_size.width - state.cell_length - 2)
        title = Content.styled(self.chat, "bold").truncate(room, ellipsis=True)
        return Content.assemble(title, " " * (room + 2 - title.cell_length), state)


class Welcome(Widget):
    """What an empty chat says."""

    def render(self) -> Content:
        key = "$foreground bold"
        return Content.assemble(
            ("Octavo", "$accent bold"),
            "\n\n",
            ("Type a message below and press ", "$text-muted"),
            ("enter", key),
            (".\n", "$text-muted"),
            ("ctrl+n", key),
            (" opens another chat; both answer at once.", "$text-muted"),
        )


class Banner(Widget):
    """Something that went wrong, and what to do; hidden while all is well."""

    text: reactive[str] = reactive("", layout=True)

    def watch_text(self, text: str) -> None:
        self.display = bool(text)

    def render(self) -> Content:
        return Content(plain(self.text)) if self.text else Content("")

    def say(self, text: str) -> None:
        """Show `text`, or nothing for ""."""
        self.text = one_line(text)
