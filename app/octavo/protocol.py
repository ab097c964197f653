"""The frames between a client and the host: msgpack over a Unix socket, each behind a 4-byte big-endian length.

A client numbers its own requests (`request`); the host answers with frames of the same number. The numbers mean
nothing outside their connection.
"""

import msgspec

from octavo_engine.events import StopReason, Timings, Usage
from octavo_engine.params import SamplingParams

VERSION = 2
MAX_FRAME_BYTES = 64 * 1024 * 1024


class Frame(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """The base of all frames; the tag on the wire is the name of the class."""


# ---- client to host ----


class Hello(Frame, frozen=True):
    """The first frame of every connection."""

    version: int = VERSION


class Submit(Frame, frozen=True):
    """One user turn. Without `chat_id` a stored turn opens a new chat, with `system` as its system prompt.

    An unstored turn (`store` false) carries no chat and is aborted when its client goes.
    """

    request: int
    prompt: str
    chat_id: str | None = None
    system: str | None = None
    store: bool = True
    params: SamplingParams = SamplingParams()


class Watch(Frame, frozen=True):
    """Follow the running turn of a chat like a request of ours; its text so far comes as one delta after Accepted.

    Answered by Rejected when no turn of the chat is running in this host.
    """

    request: int
    chat_id: str


class Stop(Frame, frozen=True):
    """End a request, or the watched turn, and keep what was said; harmless when it is over already.

    A request that is not Accepted yet (its model loads) is Rejected and nothing of it is stored.
    """

    request: int


class GetStatus(Frame, frozen=True):
    """Ask for a Status frame with this number."""

    request: int


class GiveWay(Frame, frozen=True):
    """Another model needs the memory: a host without work ends, one that is at work answers with Rejected."""

    request: int
    model: str


class Shutdown(Frame, frozen=True):
    """Stop the host: running turns are closed as interrupted, then the process ends and the connection closes."""


# ---- host to client ----


class Welcome(Frame, frozen=True):
    """The answer to Hello; the model may still be loading: requests then wait, Loading frames tell how far it is, and
    Ready brings the last two.
    """

    version: int
    model: str
    pid: int
    is_ready: bool
    device: str = ""
    max_model_len: int = 0


class Loading(Frame, frozen=True):
    """What loading the model does now; `percent` of that is done, where it is known."""

    label: str
    percent: int | None = None

    def __str__(self) -> str:
        return self.label if self.percent is None else f"{self.label} {self.percent} %"


class Ready(Frame, frozen=True):
    """The model is loaded (sent to everybody who was welcomed before that)."""

    device: str
    max_model_len: int


class HostFailed(Frame, frozen=True):
    """The host cannot serve and is about to exit; `error` says why, `remedy` what to do."""

    error: str
    remedy: str


class Accepted(Frame, frozen=True):
    """A request is stored (unless unstored) and queued; the first answer to Submit and Watch unless Rejected.

    The ids are None for an unstored request, and when the store failed (a Notice says so).
    """

    request: int
    chat_id: str | None
    turn_id: str | None
    prompt_tokens: int


class Rejected(Frame, frozen=True):
    """A request will not run; nothing was stored. `error` has the numbers, `remedy` what to do."""

    request: int
    error: str
    remedy: str


class TurnStarted(Frame, frozen=True):
    """A request left the queue and its prompt is being computed."""

    request: int
    cached_tokens: int


class TurnPreempted(Frame, frozen=True):
    """The blocks ran out and a request waits in the queue again; its text stays, its next TurnDelta says it goes on."""

    request: int


class TurnDelta(Frame, frozen=True):
    """Newly visible text; coalesced to one each 30 ms and request, the first at once."""

    request: int
    text: str
    num_tokens: int


class Notice(Frame, frozen=True):
    """Something a person should know about a request that goes on: it could not be stored, its prompt was rewritten."""

    request: int
    text: str
    remedy: str = ""


class TurnFinished(Frame, frozen=True):
    """A request is over; all its text was sent before. `token_ids` are the reply's exact ids.

    `error` is empty unless `stop_reason` is "failed", or "aborted" because the host stops: then it says why.
    """

    request: int
    stop_reason: StopReason
    usage: Usage
    timings: Timings
    token_ids: tuple[int, ...] = ()
    error: str = ""


class BlockCounts(msgspec.Struct, frozen=True):
    """Blocks of the KV pool by state; `shared` of the used ones serve two sequences or more."""

    total: int
    free: int
    cached: int
    used: int
    shared: int


class RequestCounts(msgspec.Struct, frozen=True):
    """Requests in the engine."""

    running: int
    waiting: int


class DiskCounts(msgspec.Struct, frozen=True):
    """KV blocks on disk."""

    blocks: int
    bytes: int


class EngineStatus(msgspec.Struct, frozen=True):
    """What `octavo engine status --json` prints, field by field."""

    model: str
    device: str
    attention: str
    dtype: str
    block_size: int
    blocks: BlockCounts
    requests: RequestCounts
    disk: DiskCounts
    kv_bytes_per_token: int


class Status(Frame, frozen=True):
    """The answer to GetStatus (or it is Rejected); None while the model is loading."""

    request: int
    engine: EngineStatus | None


ClientFrame = Hello | Submit | Watch | Stop | GetStatus | GiveWay | Shutdown
RequestFrame = Accepted | Rejected | TurnStarted | TurnPreempted | TurnDelta | Notice | TurnFinished
HostFrame = Welcome | Loading | Ready | HostFailed | RequestFrame | Status
