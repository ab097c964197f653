"""A workspace and sessions without host and store, whose changes a test makes itself."""

from collections.abc import Callable, Sequence

from octavo.errors import RequestRejectedError
from octavo.protocol import BlockCounts, DiskCounts, EngineStatus, RequestCounts
from octavo.session import (
    Callback,
    Change,
    Session,
    SessionState,
    StateChanged,
    TextAppended,
    TurnAdded,
    TurnEnded,
    TurnRefused,
    TurnView,
)
from octavo.workspace import HostChanged, HostState, HostView, SessionsChanged, Workspace, WorkspaceChange
from octavo_engine.events import Timings, Usage
from octavo_engine.params import SamplingParams

READY = HostView(state=HostState.READY, model="smollm2-135m", device="cpu", max_model_len=8192)


class FakeSession(Session):
    """A session whose replies are spoken by the test: `begin`, `say`, `end`."""

    def __init__(self, title: str = "", chat_id: str | None = None) -> None:
        self.title = title
        self.chat_id = chat_id
        self.state = SessionState.IDLE
        self.draft = ""
        self.system = ""
        self.params = SamplingParams()
        self.error = self.remedy = ""
        self.updated_at = 0.0
        self.rate = 0.0
        self.asked: list[str] = []
        self.refusal: tuple[str, str] | None = None
        self.crash: Exception | None = None
        self._fake_turns: list[TurnView] = []
        self._callbacks: list[Callback] = []

    @property
    def turns(self) -> Sequence[TurnView]:
        return self._fake_turns

    @property
    def is_busy(self) -> bool:
        return self.state in (SessionState.QUEUED, SessionState.ANSWERING)

    @property
    def tokens_per_s(self) -> float:
        return self.rate

    async def ask(self, prompt: str) -> TurnView:
        self.asked.append(prompt)
        if self.crash is not None:
            raise self.crash
        turn = self.begin(prompt)
        if self.refusal is not None:
            self._fake_turns.remove(turn)
            self.draft = prompt + self.draft
            self.set_state(SessionState.FAILED)
            self.tell(TurnRefused(len(self._fake_turns), prompt, *self.refusal))
            raise RequestRejectedError(*self.refusal)
        return turn

    async def stop(self) -> None:
        self.end(status="stopped", stop_reason="aborted")

    def subscribe(self, callback: Callback) -> Callable[[], None]:
        self._callbacks.append(callback)
        return lambda: self._callbacks.remove(callback)

    def tell(self, change: Change) -> None:
        for callback in self._callbacks:
            callback(change)

    def set_state(self, state: SessionState) -> None:
        self.state = state
        self.tell(StateChanged(state))

    def add_turn(self, prompt: str, reply: str = "", status: str = "done", error: str = "") -> TurnView:
        usage = Usage(prompt_tokens=430, cached_tokens=412, computed_tokens=18, completion_tokens=64)
        turn = TurnView(prompt=prompt, reply=reply, status=status, error=error, usage=usage, timings=Timings())
        turn.cached_tokens = usage.cached_tokens
        self._fake_turns.append(turn)
        return turn

    def begin(self, prompt: str) -> TurnView:
        turn = TurnView(prompt=prompt)
        self._fake_turns.append(turn)
        if not self.title:
            self.title = prompt.splitlines()[0]
        self.set_state(SessionState.QUEUED)
        self.tell(TurnAdded(len(self._fake_turns) - 1))
        return turn

    def say(self, text: str) -> None:
        if self.state is not SessionState.ANSWERING:
            self._fake_turns[-1].cached_tokens = 412
            self.set_state(SessionState.ANSWERING)
        self._fake_turns[-1].reply += text
        self.tell(TextAppended(len(self._fake_turns) - 1, text))

    def end(self, status: str = "done", stop_reason: str = "stop", error: str = "") -> None:
        turn = self._fake_turns[-1]
        turn.status, turn.stop_reason, turn.error = status, stop_reason, error
        turn.usage = Usage(prompt_tokens=430, cached_tokens=412, computed_tokens=18, completion_tokens=64)
        self.set_state(SessionState.FAILED if status in ("failed", "interrupted") else SessionState.IDLE)
        self.tell(TurnEnded(len(self._fake_turns) - 1))


class FakeWorkspace(Workspace):
    """Sessions in a list, and a host that is whatever the test says."""

    notice = ""

    def __init__(self, *sessions: FakeSession, host: HostView = READY) -> None:
        self.fake_host = host
        self._fake_sessions = list(sessions)
        self._hearers: list[Callable[[WorkspaceChange], None]] = []
        self.is_closed = False

    @property
    def sessions(self) -> Sequence[Session]:
        return self._fake_sessions

    def new(self, *, system: str = "") -> FakeSession:
        session = FakeSession()
        session.system = system
        self._fake_sessions.insert(0, session)
        self.tell(SessionsChanged())
        return session

    def open(self, chat_id: str) -> Session:
        return next(session for session in self._fake_sessions if session.chat_id == chat_id)

    async def start(self) -> None:
        pass

    async def aclose(self) -> None:
        self.is_closed = True

    def host_of(self, session: Session | None) -> HostView:
        return self.fake_host

    async def engine_status(self, session: Session | None = None) -> EngineStatus | None:
        if self.host.state is not HostState.READY:
            return None
        blocks = BlockCounts(total=512, free=400, cached=64, used=48, shared=12)
        return EngineStatus(
            model=self.host.model,
            device="cpu",
            attention="sdpa",
            dtype="float32",
            block_size=16,
            blocks=blocks,
            requests=RequestCounts(running=1, waiting=0),
            disk=DiskCounts(blocks=0, bytes=0),
            kv_bytes_per_token=0,
        )

    def subscribe(self, callback: Callable[[WorkspaceChange], None]) -> Callable[[], None]:
        self._hearers.append(callback)
        return lambda: self._hearers.remove(callback)

    def tell(self, change: WorkspaceChange) -> None:
        for callback in self._hearers:
            callback(change)

    def set_host(self, host: HostView) -> None:
        self.fake_host = host
        self.tell(HostChanged(host))
