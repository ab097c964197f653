"""A simple model of what must come out of an engine, with a rule for everything that can happen to it."""

import sys
from collections.abc import Sequence as SequenceOf
from dataclasses import replace
from functools import partial

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.engine.asked import PARAMS, PROMPTS, SHARED, Asked
from tests.engine.memory_files import MemoryFiles
from tests.engine.memory_runner import TOLD_TO_FAIL, hashed_id
from tests.engine.memory_stage import Stage

from octavo_engine.engine import reply_ids
from octavo_engine.errors import RequestRefusedError
from octavo_engine.events import StopReason
from octavo_engine.params import SamplingParams


class EngineMachine(RuleBasedStateMachine):
    """The model: which requests were accepted. Everything else is checked against what the events say."""

    block_size = 4
    enable_prefix_caching = True

    def __init__(self) -> None:
        super().__init__()
        self.make_stage = partial(Stage)
        self.stage = Stage()
        self.files: MemoryFiles | None = None
        self.asked: dict[str, Asked] = {}
        self.aborted: set[str] = set()

    @initialize(
        pool=st.integers(8, 72),
        max_num_seqs=st.integers(1, 6),
        extra=st.integers(0, 30),
        context=st.integers(20, 70),
        num_decode_steps=st.sampled_from((1, 1, 2, 5)),
        most_ahead=st.sampled_from((None, 0, 1, 3)),
    )
    def start(
        self, pool: int, max_num_seqs: int, extra: int, context: int, num_decode_steps: int, most_ahead: int | None
    ) -> None:
        self.make_stage = partial(
            Stage,
            num_blocks=max(2, pool // self.block_size),
            block_size=self.block_size,
            max_num_seqs=max_num_seqs,
            max_num_batched_tokens=max_num_seqs + extra,
            num_decode_steps=num_decode_steps,
            max_model_len=context,
            enable_prefix_caching=self.enable_prefix_caching,
            max_pinned_share=0.5,
            next_id=hashed_id,
            files=self.files,
            most_ahead=most_ahead,
        )
        self.stage = self.make_stage()

    @rule(prompt=PROMPTS, params=PARAMS, session=st.sampled_from("abc"), priority=st.integers(0, 1))
    def add(self, prompt: list[int], params: SamplingParams, session: str, priority: int) -> None:
        self._add(prompt, params, session, priority)

    @precondition(lambda self: self.asked)
    @rule(data=st.data(), more=st.lists(st.integers(1, 5), max_size=3), params=PARAMS)
    def go_on(self, data: st.DataObject, more: list[int], params: SamplingParams) -> None:
        """The next turn of a chat: the ids of an earlier one, finished or not, and some more."""
        request_id = data.draw(st.sampled_from(sorted(self.asked)))
        self._add([*self._ids(request_id), *more], params, "a", 0)

    @rule(num_steps=st.integers(1, 8))
    def step(self, num_steps: int) -> None:
        for _ in range(num_steps):
            self.stage.step()

    @rule()
    def wait(self) -> None:
        """The step in flight is computed; what follows finds it so."""
        self.stage.engine.wait()

    @rule(how=st.sampled_from(("launch", "before", "halfway")), prompt=PROMPTS, params=PARAMS)
    def fail(self, how: str, prompt: list[int], params: SamplingParams) -> None:
        """A step goes wrong as somebody begins, who then tries again, perhaps before it is known."""
        self._add(prompt, params, "a", 0)
        self.stage.runner.fails = how
        self.stage.step()
        self.stage.runner.fails = ""
        self._add(prompt, params, "a", 0)

    @rule(num_bytes=st.sampled_from((20, 48, 64, 100, 200, sys.maxsize)))
    def squeeze(self, num_bytes: int) -> None:
        """Somebody else takes memory of the device, or gives it back."""
        self.stage.runner.num_bytes = num_bytes

    @precondition(lambda self: self._unfinished())
    @rule(data=st.data(), params=PARAMS)
    def fork(self, data: st.DataObject, params: SamplingParams) -> None:
        request_id, fork_id = data.draw(st.sampled_from(self._unfinished())), f"{len(self.asked)}f"
        prompt = self._ids(request_id)
        try:
            self.stage.engine.fork(request_id, fork_id, replace(params, n=1))
        except RequestRefusedError:
            assert not self._fits(prompt)
        else:
            self.asked[fork_id] = Asked(tuple(prompt), params, params.seed or 0)

    @precondition(lambda self: self._unfinished())
    @rule(data=st.data(), times=st.integers(1, 2))
    def abort(self, data: st.DataObject, times: int) -> None:
        request_id = data.draw(st.sampled_from(self._unfinished()))
        self.aborted.add(request_id)
        for _ in range(times):
            self.stage.engine.abort(request_id)

    @rule(name=st.sampled_from("xy"), length=st.integers(0, 40))
    def pin(self, name: str, length: int) -> None:
        assert 0 <= self.stage.engine.pin(name, SHARED[:length]) <= length
        assert self.stage.engine.counts().pinned <= self.stage.manager.max_pinned_blocks

    @rule(name=st.sampled_from("xy"))
    def unpin(self, name: str) -> None:
        self.stage.engine.unpin(name)

    @rule(num_blocks=st.integers(1, 4))
    def evict(self, num_blocks: int) -> None:
        """What the pressure of other requests would do: the least recently used blocks lose their content."""
        manager = self.stage.manager
        num_taken = min(manager.pool.num_available, manager.pool.num_free + num_blocks)
        for block in [manager._take() for _ in range(num_taken)]:
            manager._release(block)

    @invariant()
    def blocks_are_whole(self) -> None:
        self.stage.engine.check_integrity()

    def teardown(self) -> None:
        self._check_end()

    def _check_end(self) -> None:
        self.stage.run()
        if self.files:
            self.stage.serve()
        counts = self.stage.engine.counts()
        assert counts.free + counts.cached + counts.used == counts.total
        assert (counts.used, counts.running, counts.waiting) == (counts.pinned, 0, 0)
        assert self.stage.outcomes.keys() == self.asked.keys()
        for request_id, asked in self.asked.items():
            self._check_outcome(request_id, asked)
        for name in "xy":
            self.stage.engine.unpin(name)
        assert self.stage.engine.counts().used == 0

    def _check_outcome(self, request_id: str, asked: Asked) -> None:
        outcome = self.stage.outcomes[request_id]
        assert outcome.finished is not None
        reason, usage = outcome.finished.stop_reason, outcome.finished.usage
        reply, own_reason = asked.reply(self.stage.scheduler.max_model_len)
        if reason in (StopReason.STOP, StopReason.LENGTH):
            assert (outcome.token_ids, reason) == (reply, own_reason)
        assert outcome.token_ids == reply[: len(outcome.token_ids)]
        assert outcome.text == asked.text(outcome.token_ids)
        if reason is StopReason.FAILED:  # of what a rule did; what the runner asserts fails the step as well
            assert any(cause in str(outcome.finished.error) for cause in (TOLD_TO_FAIL, "has no memory")), (
                outcome.finished
            )
        assert reason is not StopReason.ABORTED or request_id in self.aborted
        assert reason is not StopReason.KV_FULL or len(asked.prompt) + usage.completion_tokens == self._pool + 1
        assert usage.completion_tokens == len(outcome.token_ids)
        assert usage.cached_tokens + usage.computed_tokens in (0, len(asked.prompt))

    def _add(self, prompt: list[int], params: SamplingParams, session: str, priority: int) -> None:
        request_id = str(len(self.asked))
        try:
            self.stage.engine.add(request_id, prompt, params, session=session, priority=priority)
        except RequestRefusedError:
            assert not self._fits(prompt)
            return
        for number, reply_id in enumerate(reply_ids(request_id, params.n)):
            self.asked[reply_id] = Asked(tuple(prompt), params, (params.seed or 0) + number)

    @property
    def _pool(self) -> int:
        return self.stage.manager.pool.num_blocks * self.block_size

    def _fits(self, prompt: SequenceOf[int]) -> bool:
        return 0 < len(prompt) < min(self._pool, self.stage.scheduler.max_model_len)

    def _ids(self, request_id: str) -> list[int]:
        outcome = self.stage.outcomes.get(request_id)
        return [*self.asked[request_id].prompt, *(outcome.token_ids if outcome else ())]

    def _unfinished(self) -> list[str]:
        outcomes = self.stage.outcomes
        return sorted(i for i in self.asked if i not in outcomes or outcomes[i].finished is None)


class DiskMachine(EngineMachine):
    """The same with a disk that is slow, loses and damages blocks, and outlives the engine."""

    def __init__(self) -> None:
        super().__init__()
        self.disk = self.files = MemoryFiles()

    @rule(num_things=st.integers(1, 9))
    def serve(self, num_things: int) -> None:
        self.disk.serve(num_things)

    @precondition(lambda self: self.disk.blocks)
    @rule(data=st.data(), is_dropped=st.booleans())
    def damage(self, data: st.DataObject, is_dropped: bool) -> None:
        """A block is found to be damaged when it is read, or goes to make room."""
        name = data.draw(st.sampled_from(sorted(self.disk.blocks)))
        if is_dropped:
            self.disk.drop(name)
        else:
            self.disk.lost.add(name)

    @rule(is_killed=st.booleans())
    def restart(self, is_killed: bool) -> None:
        """The engine ends, in the midst of its work or after it, and another one begins with what the disk has."""
        if not is_killed:
            self._check_end()
        self.asked.clear()
        self.aborted.clear()
        self.stage = self.make_stage()
