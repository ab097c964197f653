"""What a step tells its caller about each request; plain data that crosses to the host."""

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple


class StopReason(StrEnum):
    """Why a reply ended."""

    STOP = "stop"  # the model said its end-of-turn token
    LENGTH = "length"  # max_tokens, or the context is full
    KV_FULL = "kv_full"  # a lone sequence filled the whole pool
    ABORTED = "aborted"  # somebody stopped it; what was said is kept
    FAILED = "failed"  # a step failed; the request is over, the engine goes on


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Token counts of one request; `cached_tokens` of the prompt came from shared blocks, the rest was computed."""

    prompt_tokens: int
    cached_tokens: int = 0
    computed_tokens: int = 0
    completion_tokens: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Timings:
    """Milliseconds from the arrival of a request; `tokens_per_s` counts decoding alone, not the wait."""

    queue_ms: float = 0.0
    first_token_ms: float = 0.0
    total_ms: float = 0.0
    tokens_per_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Started:
    """A request left the queue: its first step is about to run; `cached_tokens` of its prompt need no computing."""

    request_id: str
    cached_tokens: int


@dataclass(frozen=True, slots=True)
class Preempted:
    """The pool is full and a request waits again; its tokens are kept, and it goes on without being asked."""

    request_id: str


@dataclass(frozen=True, slots=True)
class TokenLogprobs:
    """The log-probability of a sampled id, before temperature and filters, and those of the likeliest ids."""

    logprob: float
    top: tuple[tuple[int, float], ...]


class Delta(NamedTuple):
    """Finished text of one request, newly visible, and the ids sampled since the last delta (text may lag ids).

    `logprobs` has one entry for each of `token_ids`, if the request asked for them. A named tuple, because one is made
    for each token and a frozen dataclass takes more than twice as long.
    """

    request_id: str
    text: str
    token_ids: tuple[int, ...]
    logprobs: tuple[TokenLogprobs, ...] = ()


@dataclass(frozen=True, slots=True)
class Finished:
    """A request is over; its blocks are given back or kept as cached prefix. `error` says why it FAILED."""

    request_id: str
    stop_reason: StopReason
    usage: Usage
    timings: Timings
    error: str = ""


Event = Started | Preempted | Delta | Finished
