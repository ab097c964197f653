"""What the UI calls things: the look of a state, the note below a turn, the figures of a status line."""

from collections.abc import Sequence
from dataclasses import dataclass

from octavo.session import UNTITLED, Session, SessionState, TurnView
from octavo.ui.plain import one_line
from octavo.workspace import HostState, HostView


@dataclass(frozen=True, slots=True)
class Look:
    """A sign, a word and a colour, so that no state is told by its colour alone."""

    glyph: str
    word: str
    color: str  # a variable of the theme


LOOKS = {
    SessionState.IDLE: Look("○", "idle", "$text-muted"),
    SessionState.QUEUED: Look("◌", "queued", "$warning"),
    SessionState.ANSWERING: Look("●", "answering", "$success"),
    SessionState.FAILED: Look("✗", "failed", "$error"),
}
UNREAD = Look("◆", "new reply", "$accent")
DRAFT = Look("○", "draft", "$text-muted")

HOST_LOOKS = {
    HostState.STARTING: Look("◌", "starting the engine…", "$warning"),
    HostState.LOADING: Look("◌", "loading model…", "$warning"),
    HostState.READY: Look("●", "ready", "$success"),
    HostState.FAILED: Look("✗", "failed", "$error"),
    HostState.LOST: Look("✗", "engine gone", "$error"),
}

_CUT_OFF = {
    "length": "cut off: the token limit or the end of the context was reached",
    "kv_full": "cut off: the KV cache is full",
}


def title_of(session: Session) -> str:
    """One line that names the chat."""
    return one_line(session.title) or UNTITLED


def look_of(session: Session, *, is_unread: bool, is_current: bool) -> Look:
    """How the list shows a session."""
    if session.state is SessionState.IDLE:
        if is_unread:
            return UNREAD
        if session.draft.strip() and not is_current:
            return DRAFT
    return LOOKS[session.state]


def note_of(turn: TurnView, state: SessionState, host: HostState) -> str:
    """The dim line below a turn, "" when nothing is to be said."""
    if turn.status == "running":
        return "" if turn.reply else _waiting(state, host)
    if turn.status == "done":
        return _CUT_OFF.get(turn.stop_reason, "")
    return one_line(f"{turn.status}: {turn.error}" if turn.error else turn.status)


def host_word(host: HostView) -> str:
    """How the host fares, for the status line: while it loads, what it does and how much of that is done."""
    is_known = host.state is HostState.LOADING and host.loading
    return f"loading: {one_line(host.loading)}" if is_known else HOST_LOOKS[host.state].word


def host_words(host: HostView) -> str:
    """What is the matter with the host, and the remedy; "" while it is well."""
    if host.state not in (HostState.FAILED, HostState.LOST):
        return ""
    return sentences(host.error or HOST_LOOKS[host.state].word, host.remedy)


def sentences(error: str, remedy: str) -> str:
    """A reason and its remedy in one line."""
    error = one_line(error)
    return f"{error.rstrip('.')}. {one_line(remedy)}" if remedy else error


def cached_words(turns: Sequence[TurnView]) -> str:
    """How much of the last prompt came from shared blocks; of how many is known when its turn is over."""
    last = turns[-1] if turns else None
    if last is None or last.cached_tokens is None:
        return ""
    total = f"/{last.usage.prompt_tokens:,}" if last.usage else ""
    return f"{last.cached_tokens:,}{total} tok cached"


def _waiting(state: SessionState, host: HostState) -> str:
    if host in (HostState.STARTING, HostState.LOADING):
        return "waiting for the model…"
    return "queued…" if state is SessionState.QUEUED else "reading the prompt…"
