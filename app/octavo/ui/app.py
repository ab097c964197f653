"""The terminal UI: the list of chats, the chat in view, and what the keys do."""

import logging
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, ClassVar

from textual import work
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.widgets import Static
from textual.worker import Worker, WorkerState

from octavo.errors import OctavoError
from octavo.session import Noticed, Session, SessionState, TextAppended, TurnEnded, TurnRefused, TurnsReplaced
from octavo.ui.chat_list import ChatList
from octavo.ui.chat_view import ChatView
from octavo.ui.frame_clock import FrameClock
from octavo.ui.hearing import Hearing
from octavo.ui.messages import HandlerFailed, SessionChanged, WorkspaceChanged
from octavo.ui.plain import encodable
from octavo.ui.status_line import KeyLine, StatusLine
from octavo.ui.sturdy import Sturdy
from octavo.ui.theme import LAMPLIGHT
from octavo.ui.words import cached_words, sentences
from octavo.workspace import HostChanged, HostView, Workspace

log = logging.getLogger(__name__)

POLL_S = 1.0
QUIT_NOTICE = "Press ctrl+c again to quit"


class OctavoApp(Sturdy, App[int]):
    """Looks at the sessions of a workspace; all generation belongs to them."""

    TITLE = "Octavo"
    CSS_PATH = "octavo.tcss"
    ENABLE_COMMAND_PALETTE = False
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (64, "-medium"), (96, "-wide")]  # noqa: RUF012 - Textual's own type
    VERTICAL_BREAKPOINTS = [(0, "-tiny"), (14, "-short"), (22, "-tall")]  # noqa: RUF012
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+n", "new_chat", priority=True),
        Binding("alt+up", "switch(-1)", priority=True),
        Binding("alt+down", "switch(1)", priority=True),
        Binding("escape", "stop", priority=True),
        Binding("ctrl+c", "interrupt", priority=True),
        Binding("ctrl+y", "copy_reply", priority=True),
        Binding("ctrl+q", "quit", priority=True),
    ]

    def __init__(self, workspace: Workspace, chat_id: str | None = None, log_file: Path | None = None) -> None:
        super().__init__()
        self._log_file = log_file
        self.register_theme(LAMPLIGHT)
        self.theme = LAMPLIGHT.name
        self.workspace = workspace
        self._first_chat_id = chat_id
        self._hearing = Hearing(workspace, self.post_message, lambda session: session is self.view.session)
        self._frames = FrameClock(self, self._draw_or_report)
        self._is_list_due = True
        self._is_poll_due = False
        self.chats = ChatList()
        self.view = ChatView(self._host, workspace.notice)
        self.status = StatusLine(id="status")
        self.keys = KeyLine(id="keys")

    def compose(self) -> ComposeResult:
        with Horizontal(id="body"):
            with Vertical(id="side"):
                yield Static(Content("Octavo"), id="side-title")
                yield self.chats
            yield self.view
        yield self.status
        yield self.keys

    def on_mount(self) -> None:
        self.view.composer.focus()
        self._hearing.begin()
        self._show_first()
        self._work(self.workspace.start())
        self.set_interval(POLL_S, self._poll)

    async def on_unmount(self) -> None:
        await self.workspace.aclose()

    # ---- what happens elsewhere ----

    def on_session_changed(self, message: SessionChanged) -> None:
        session, change = message.session, message.change
        if isinstance(change, TurnRefused):
            self.view.trouble(session, sentences(change.error, change.remedy))
        elif isinstance(change, Noticed):
            self.view.trouble(session, sentences(change.text, change.remedy))
        elif isinstance(change, TurnsReplaced) and session is self.view.session:
            self.view.transcript.rebuild()
        elif isinstance(change, TurnEnded):
            self._is_poll_due = True
            if session is not self.view.session:
                self.chats.unread.add(session)
        self._is_list_due |= not isinstance(change, TextAppended)
        self._frames.ask()

    def on_workspace_changed(self, message: WorkspaceChanged) -> None:
        self._hearing.listen_to_new()
        self._is_poll_due |= isinstance(message.change, HostChanged)
        self._is_list_due = True
        self._frames.ask()

    # ---- drawing, at most once a frame ----

    def _draw_or_report(self) -> None:
        try:
            self._draw()
        except Exception as error:
            self._report(error)

    def _draw(self) -> None:
        session = self.view.session
        if self._is_list_due:
            self._is_list_due = False
            self.chats.update_sessions(self.workspace.sessions, session)
        self.view.draw()
        self.status.host = self._host()
        if session is not None:
            self.status.rate = f"{session.tokens_per_s:.1f} tok/s" if session.tokens_per_s else ""
            self.status.cached = cached_words(session.turns)

    def _host(self) -> HostView:
        """The host of the chat in view."""
        return self.workspace.host_of(self.view.session)

    def _poll(self) -> None:
        is_busy = self._hearing.is_anybody_busy
        if is_busy or self._is_poll_due:
            self._is_poll_due = is_busy
            self._ask_status()

    @work(exclusive=True, group="poll", exit_on_error=False)
    async def _ask_status(self) -> None:
        status = await self.workspace.engine_status(self.view.session)
        self.status.blocks = f"{status.blocks.used:,}/{status.blocks.total:,} blocks" if status else ""

    # ---- which chat is shown ----

    def _show_first(self) -> None:
        if self._first_chat_id is not None:
            self._open(self._first_chat_id)
        if self.view.session is None:
            self.action_new_chat()

    def _open(self, chat_id: str) -> None:
        try:
            self._show(self.workspace.open(chat_id))
        except OctavoError as error:
            self._report(error)

    def _switch_to(self, session: Session) -> None:
        if session.chat_id is not None and not session.turns:
            self._open(session.chat_id)
        elif session is not self.view.session:
            self._show(session)

    def _show(self, session: Session) -> None:
        self._hearing.listen_to_new()
        self.chats.unread.discard(session)
        self.keys.hush()  # what was said of the chat before is not true of this one
        self.view.show(session)
        self._is_list_due = True
        self._frames.draw()

    def on_chat_list_chat_picked(self, message: ChatList.ChatPicked) -> None:
        self._switch_to(message.session)

    def action_new_chat(self) -> None:
        """Show a new chat: one that was opened before and never written to, if there is one."""
        for session in self.workspace.sessions:
            is_idle = session.state is SessionState.IDLE
            if is_idle and session.chat_id is None and not session.turns and not session.draft:
                self._switch_to(session)
                return
        self._show(self.workspace.new())

    def action_switch(self, step: int) -> None:
        sessions = list(self.workspace.sessions)
        if self.view.session in sessions:
            index = sessions.index(self.view.session) + step
            if 0 <= index < len(sessions):
                self._switch_to(sessions[index])

    # ---- asking and stopping ----

    def on_chat_view_prompt_entered(self, message: ChatView.PromptEntered) -> None:
        self._work(self._ask(message.session, message.text))

    def on_chat_view_prompt_held_back(self) -> None:
        self.keys.say("This chat is still answering; esc stops it")

    async def _ask(self, session: Session, text: str) -> None:
        try:
            await session.ask(text)
        except OctavoError as error:
            self.view.trouble(session, sentences(error.message, error.remedy))
            self._frames.ask()

    def action_stop(self) -> None:
        session = self.view.session
        if session is not None and session.is_busy:
            self.keys.hush()
            self._work(session.stop())
        else:
            self.screen.clear_selection()

    # ---- copying and leaving ----

    def action_copy_reply(self) -> None:
        session = self.view.session
        replies = [turn.reply for turn in session.turns if turn.reply] if session else []
        if replies:
            self._copy(replies[-1], "the last reply")
        else:
            self.keys.say("There is no reply to copy yet")

    def _copy(self, text: str, what: str) -> None:
        self.copy_to_clipboard(encodable(text))
        self.keys.say(f"Copied {what} ({len(text):,} characters)")

    def action_interrupt(self) -> None:
        """Copy a selection, else stop the reply, else clear the composer, else ask once more, else quit."""
        composer, session = self.view.composer, self.view.session
        selected = self.screen.get_selected_text() or composer.selected_text
        if selected:
            self._copy(selected, "the selection")
            self.screen.clear_selection()
        elif session is not None and session.is_busy:
            self.action_stop()
        elif composer.text:
            composer.clear()
            self.keys.say("Cleared; ctrl+z brings it back")
        elif self.keys.notice == QUIT_NOTICE:
            self.exit(0)
        else:
            self.keys.say(QUIT_NOTICE)

    # ---- the border ----

    def _work(self, coroutine: Coroutine[Any, Any, None]) -> None:
        self.run_worker(coroutine, exit_on_error=False)

    def on_worker_state_changed(self, event: Worker.StateChanged) -> None:
        if event.state is WorkerState.ERROR and event.worker.error is not None:
            self._report(event.worker.error)

    def on_handler_failed(self, message: HandlerFailed) -> None:
        self._report(message.error)

    def _report(self, error: BaseException) -> None:
        """Whatever went wrong, the app stays usable and says so."""
        if isinstance(error, OctavoError):
            text = sentences(error.message, error.remedy)
        else:
            log.error("in the terminal UI", exc_info=error)
            where = f" The log has the details: {self._log_file}" if self._log_file else ""
            text = f"Something went wrong in Octavo itself ({error!r}).{where}"
        if self.view.session is not None:
            self.view.trouble(self.view.session, text)
        self.view.banner.say(text)
