"""What sessions and the workspace tell, on its way through the UI's own queue of messages."""

from dataclasses import dataclass

from textual.message import Message

from octavo.session import Change, Session
from octavo.workspace import WorkspaceChange


@dataclass
class SessionChanged(Message):
    """A session tells of a change that may be visible."""

    session: Session
    change: Change


@dataclass
class HandlerFailed(Message):
    """A handler of some message raised: a bug of ours."""

    error: Exception


@dataclass
class WorkspaceChanged(Message):
    """The list of chats or the host is another one."""

    change: WorkspaceChange
