"""Listens to the workspace and to all its sessions, and hands on what they tell as messages of the UI's own queue."""

from collections.abc import Callable

from textual.message import Message

from octavo.session import Change, Session, TextAppended
from octavo.ui.messages import SessionChanged, WorkspaceChanged
from octavo.workspace import Workspace, WorkspaceChange


class Hearing:
    """`post` takes the messages; the text of a session that `is_in_view` denies is left out, for it is not drawn."""

    def __init__(
        self, workspace: Workspace, post: Callable[[Message], object], is_in_view: Callable[[Session], bool]
    ) -> None:
        self._workspace = workspace
        self._post = post
        self._is_in_view = is_in_view
        self._heard: set[Session] = set()

    @property
    def is_anybody_busy(self) -> bool:
        """Whether a reply is queued or being written in any chat."""
        return any(session.is_busy for session in self._heard)

    def begin(self) -> None:
        """Listen from now on."""
        self._workspace.subscribe(self._hear_workspace)
        self.listen_to_new()

    def listen_to_new(self) -> None:
        """Listen to the sessions that have come since, too."""
        for session in self._workspace.sessions:
            if session not in self._heard:
                self._heard.add(session)
                session.subscribe(self._hearer_of(session))

    def _hear_workspace(self, change: WorkspaceChange) -> None:
        self._post(WorkspaceChanged(change))

    def _hearer_of(self, session: Session) -> Callable[[Change], None]:
        def hear(change: Change) -> None:
            if self._is_in_view(session) or not isinstance(change, TextAppended):
                self._post(SessionChanged(session, change))

        return hear
