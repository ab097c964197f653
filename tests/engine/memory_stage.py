"""An engine over a memory runner for tests, its parts in reach, and what its events said of each request."""

from collections.abc import Callable
from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass, field

from tests.engine.ahead_runner import AheadRunner
from tests.engine.memory_files import MemoryFiles
from tests.engine.memory_runner import END_ID, MemoryRunner, NextId, counted_id

from octavo_engine.block_manager import BlockManager
from octavo_engine.checks import MAX_IDS
from octavo_engine.config import EngineConfig
from octavo_engine.engine import Engine
from octavo_engine.events import Delta, Event, Finished
from octavo_engine.params import SamplingParams
from octavo_engine.scheduler import Scheduler


@dataclass(slots=True)
class Outcome:
    """What the events said of one request."""

    token_ids: list[int] = field(default_factory=list)
    text: str = ""
    finished: Finished | None = None


class Stage:
    """An engine over a MemoryRunner, its parts in reach, and the outcome of each request so far."""

    def __init__(
        self,
        *,
        num_blocks: int = 64,
        block_size: int = 4,
        max_num_seqs: int = 8,
        max_num_batched_tokens: int = 64,
        num_decode_steps: int = 1,
        max_model_len: int = 1024,
        enable_prefix_caching: bool = True,
        max_pinned_share: float = 0.25,
        next_id: NextId = counted_id,
        vocabulary: int = MAX_IDS,
        decode: Callable[[SequenceOf[int]], str] | None = None,
        files: MemoryFiles | None = None,
        fingerprint: str = "memory",
        most_ahead: int | None = None,
    ) -> None:
        config = EngineConfig(
            block_size=block_size,
            max_num_seqs=max_num_seqs,
            max_num_batched_tokens=max_num_batched_tokens,
            num_decode_steps=num_decode_steps,
        )
        self.manager = BlockManager(
            num_blocks,
            block_size,
            fingerprint=fingerprint,
            enable_prefix_caching=enable_prefix_caching,
            max_pinned_share=max_pinned_share,
        )
        self.scheduler = Scheduler(self.manager, config, max_model_len)
        self.runner = (
            MemoryRunner(self.scheduler, next_id, vocabulary)
            if most_ahead is None
            else AheadRunner(self.scheduler, next_id, vocabulary, most_ahead)
        )
        self.engine = Engine(self.scheduler, self.runner, decode or spell, [END_ID])
        self.files = files
        if files:
            files.attach(self.engine, self.runner)
        self.events: list[Event] = []
        self.outcomes: dict[str, Outcome] = {}

    def add(
        self,
        request_id: str,
        token_ids: SequenceOf[int],
        max_tokens: int | None = 4,
        *,
        session: str = "",
        priority: int = 0,
        is_kept: bool = True,
    ) -> None:
        params = SamplingParams(max_tokens=max_tokens, seed=0)
        self.engine.add(request_id, token_ids, params, session=session, priority=priority, is_kept=is_kept)

    def step(self) -> list[Event]:
        """One step, after which every law of the blocks holds."""
        events = self.engine.step()
        self.engine.check_integrity()
        self.events += events
        for event in events:
            self._record(event)
        return events

    def run(self, max_steps: int = 10_000) -> dict[str, Outcome]:
        """Step until nothing is left."""
        while self.engine.has_work:
            max_steps -= 1
            assert max_steps, "the engine does not come to an end"
            if self.engine.awaits_disk:
                self.serve()
            self.step()
        return self.outcomes

    def serve(self) -> None:
        """Let the disk do all that it was asked for, and see that every law of the blocks still holds."""
        assert self.files is not None
        self.files.serve()
        self.engine.check_integrity()

    def usage(self, request_id: str) -> tuple[int, int]:
        """Cached and computed prompt tokens of a finished request."""
        finished = self.outcomes[request_id].finished
        assert finished is not None
        return finished.usage.cached_tokens, finished.usage.computed_tokens

    def reason(self, request_id: str) -> str:
        outcome = self.outcomes.get(request_id)
        return outcome.finished.stop_reason.value if outcome and outcome.finished else ""

    def _record(self, event: Event) -> None:
        outcome = self.outcomes.setdefault(event.request_id, Outcome())
        assert outcome.finished is None, f"{event} comes after the end"
        if isinstance(event, Delta):
            outcome.token_ids += event.token_ids
            outcome.text += event.text
        elif isinstance(event, Finished):
            assert "AssertionError" not in event.error, event.error  # the engine reports what the runner asserts
            outcome.finished = event


def spell(token_ids: SequenceOf[int]) -> str:
    """Id 1 is "a", 2 is "b"; the end token has no text."""
    return "".join(chr(96 + i % 26) for i in token_ids if i != END_ID)


def rows(stage: Stage) -> dict[str, int]:
    """The requests of the last step and how many tokens each computed."""
    step = stage.runner.steps[-1]
    return dict(zip(step.rows, step.query_lens, strict=True))


def prompt(start: int, length: int) -> list[int]:
    """Ids that count on from `start`."""
    return list(range(start, start + length))
