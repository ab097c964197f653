"""The engine's side of a request: its token ids, its block table, and how far its KV is computed."""

import sys
from collections.abc import Sequence as SequenceOf
from enum import Enum

from octavo_engine.events import StopReason
from octavo_engine.params import SamplingParams


class SequenceState(Enum):
    """Where a sequence stands; preempted ones wait again, with their tokens kept."""

    WAITING = "waiting"
    RUNNING = "running"
    FINISHED = "finished"


class Sequence:
    """One request inside the engine.

    `token_ids` is the prompt and then every sampled id; the KV of the first `num_computed` of them lies in the
    blocks of `block_table`, position p in slot p % block_size of block p // block_size. `digests` are the chained
    hashes of the blocks indexed so far, `coming` those of the blocks behind them, as far as they are known. Lower
    `priority` numbers go first. The reply may end from `least` tokens on, prompt included, with one of `stop_ids`, and
    ends at `most`; `end` says that it did. `is_kept`: its blocks may be written to disk.
    """

    __slots__ = (
        "__weakref__",  # a runner may keep what it knows of a sequence exactly as long as the sequence lives
        "block_table",
        "coming",
        "digests",
        "end",
        "is_kept",
        "least",
        "most",
        "num_cached",
        "num_computed",
        "num_prompt",
        "params",
        "priority",
        "request_id",
        "seed",
        "session",
        "state",
        "stop_ids",
        "token_ids",
    )

    def __init__(
        self,
        request_id: str,
        prompt: SequenceOf[int],
        params: SamplingParams,
        *,
        seed: int = 0,
        session: str = "",
        priority: int = 0,
        stop_ids: frozenset[int] = frozenset(),
        max_model_len: int = sys.maxsize,
    ) -> None:
        self.request_id = request_id
        self.token_ids = list(prompt)
        self.num_prompt = len(self.token_ids)
        self.params = params
        self.seed = seed
        self.session = session
        self.priority = priority
        self.stop_ids = stop_ids
        self.least = self.num_prompt + params.min_tokens
        self.most = min(max_model_len, self.num_prompt + (params.max_tokens or max_model_len))
        self.end: StopReason | None = None
        self.is_kept = True
        self.num_computed = 0
        self.num_cached = 0
        self.block_table: list[int] = []
        self.digests: list[bytes] = []
        self.coming: list[bytes] = []
        self.state = SequenceState.WAITING

    def __repr__(self) -> str:
        return f"Sequence({self.request_id!r}, {self.num_computed}/{len(self.token_ids)} computed, {self.state.value})"

    @property
    def num_uncomputed(self) -> int:
        """Tokens whose KV is missing: 1 while decoding, more while the prompt is computed."""
        return len(self.token_ids) - self.num_computed

    @property
    def is_decoding(self) -> bool:
        """Whether only the newest token is missing its KV."""
        return len(self.token_ids) - self.num_computed == 1

    @property
    def num_replied(self) -> int:
        """Tokens sampled so far."""
        return len(self.token_ids) - self.num_prompt

    def take(self, token_ids: SequenceOf[int]) -> SequenceOf[int]:
        """Append sampled ids up to the one that ends the reply; returns those."""
        room = self.most - len(self.token_ids)
        if len(token_ids) < room and self.stop_ids.isdisjoint(token_ids):
            self.token_ids += token_ids
            return token_ids
        return self._take_until_end(token_ids)

    def _take_until_end(self, token_ids: SequenceOf[int]) -> SequenceOf[int]:
        for number, token_id in enumerate(token_ids, 1):
            self.token_ids.append(token_id)
            if token_id in self.stop_ids and len(self.token_ids) >= self.least:
                self.end = StopReason.STOP
            elif len(self.token_ids) >= self.most:
                self.end = StopReason.LENGTH
            if self.end:
                return token_ids[:number]
        return token_ids
