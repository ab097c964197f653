"""The chat in view: heading, transcript or welcome, banner and composer; it looks at one session at a time."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.message import Message

from octavo.session import Session, SessionState, TurnView
from octavo.ui.composer import BUSY_HINT, IDLE_HINT, Composer
from octavo.ui.panels import Banner, Heading, Welcome
from octavo.ui.sturdy import Sturdy
from octavo.ui.transcript import Transcript
from octavo.ui.words import LOOKS, host_words, note_of, title_of
from octavo.workspace import HostView

HostOf = Callable[[], HostView]


class ChatView(Sturdy, Vertical):
    """Shows `session`; what is typed is its draft, and what went wrong in a chat stays with that chat."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("pageup", "page(-1)", priority=True),
        Binding("pagedown", "page(1)", priority=True),
        Binding("ctrl+home", "home", priority=True),
        Binding("ctrl+end", "follow", priority=True),
    ]

    @dataclass
    class PromptEntered(Message):
        """Somebody sends a message; it has left the composer."""

        session: Session
        text: str

    @dataclass
    class PromptHeldBack(Message):
        """Somebody sends a message to a chat that is still answering; it stays in the composer."""

    def __init__(self, host_of: HostOf, notice: str = "") -> None:
        """`notice` is said whenever nothing else is the matter."""
        super().__init__(id="main")
        self.session: Session | None = None
        self._host_of = host_of
        self._notice = notice
        self._troubles: dict[Session, str] = {}
        self._kept = ""  # what of the composer is in the session's draft
        self.heading = Heading(id="heading")
        self.welcome = Welcome(id="welcome")
        self.transcript = Transcript(self._note_of)
        self.banner = Banner(id="banner")
        self.composer = Composer(self._send)

    def compose(self) -> ComposeResult:
        yield self.heading
        yield self.welcome
        yield self.transcript
        yield self.banner
        yield self.composer

    def show(self, session: Session) -> None:
        """Bring `session` into view, with its draft in the composer."""
        self._keep_draft()
        self.session = session
        self.transcript.show(session)
        self._show_draft(session)

    def draw(self) -> None:
        """Take over whatever has changed; call it at most once a frame."""
        session = self.session
        if session is None:
            return
        self.heading.chat = title_of(session)
        self.heading.look = None if session.state is SessionState.IDLE else LOOKS[session.state]
        self.composer.placeholder = BUSY_HINT if session.is_busy else IDLE_HINT
        self.welcome.display = not session.turns
        self.transcript.display = bool(session.turns)
        self.transcript.sync()
        self.banner.say(self._troubles.get(session) or host_words(self._host_of()) or self._notice)

    def trouble(self, session: Session, text: str) -> None:
        """Say `text` whenever `session` is in view, "" for nothing any more; its draft may be another one."""
        self._troubles[session] = text
        if session is self.session and text:
            self._keep_draft()
            self._show_draft(session)

    def _keep_draft(self) -> None:
        """Take what was typed into the draft; a refused prompt that the session has put before it stays there."""
        if (session := self.session) is None:
            return
        put_before = session.draft.removesuffix(self._kept) if session.draft != self._kept else ""
        self._kept = self.composer.text
        session.draft = put_before + self._kept

    def _show_draft(self, session: Session) -> None:
        self.composer.show_text(session.draft)
        self._kept = session.draft

    def on_text_area_changed(self) -> None:
        self._keep_draft()

    def _send(self, text: str) -> None:
        session = self.session
        if session is None or not text.strip():
            return
        if session.is_busy:
            self.post_message(self.PromptHeldBack())
            return
        session.draft = ""
        self._show_draft(session)
        self.trouble(session, "")
        self.transcript.follow()
        self.post_message(self.PromptEntered(session, text))

    def on_composer_end_pressed(self) -> None:
        self.action_follow()

    def action_page(self, step: int) -> None:
        self.transcript.scroll_relative(y=step * max(1, self.transcript.size.height - 2), animate=False)

    def action_home(self) -> None:
        self.transcript.scroll_home(animate=False)

    def action_follow(self) -> None:
        self.transcript.follow()

    def _note_of(self, session: Session, turn: TurnView) -> str:
        return note_of(turn, session.state, self._host_of().state)
