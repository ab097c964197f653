"""The engine: requests in, events out, one step at a time. Not thread-safe: one thread calls all of it."""

import random
import time
from collections.abc import Callable
from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass, replace

from octavo_engine.batch import Batch, ModelRunner, Said
from octavo_engine.checks import check_fork, check_ids, num_ids
from octavo_engine.detokenizer import Decode
from octavo_engine.disk_tier import BlockFiles, BlockMemory, DiskTier
from octavo_engine.errors import DeviceLostError, DeviceMemoryError, RequestRefusedError
from octavo_engine.events import Event, StopReason
from octavo_engine.flight import Flight
from octavo_engine.params import SamplingParams
from octavo_engine.replies import Replies
from octavo_engine.scheduler import Scheduler
from octavo_engine.sequence import Sequence
from octavo_engine.speeds import Speeds
from octavo_engine.step_limits import describe_failure


@dataclass(frozen=True, slots=True)
class Counts:
    """Blocks by state and requests by state.

    Of the used blocks, `shared` have two holders or more and `pinned` belong to pinned prefixes.
    """

    total: int
    free: int
    cached: int
    used: int
    shared: int
    pinned: int
    running: int
    waiting: int


class Engine:
    """Joins a scheduler, a model runner and a tokenizer's `decode`; `stop_ids` are the model's end-of-turn tokens."""

    def __init__(
        self,
        scheduler: Scheduler,
        runner: ModelRunner,
        decode: Decode,
        stop_ids: SequenceOf[int],
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._scheduler = scheduler
        self._runner = runner
        self._num_ids = num_ids(runner)
        self._stop_ids = frozenset(stop_ids)
        self._replies = Replies(scheduler, decode, clock)
        self._flight: Flight | None = None
        self._aborted: dict[str, None] = {}  # in the order of the calls
        self._pending: list[Event] = []

    @property
    def runner(self) -> ModelRunner:
        """What computes the steps. Who launches one by hand does so without work or cached prefixes in the engine."""
        return self._runner

    @property
    def has_work(self) -> bool:
        """Whether `step` has anything to do; true while a step is in flight."""
        return self._scheduler.has_work

    @property
    def awaits_disk(self) -> bool:
        """Whether its work has to wait for blocks from disk: until something else is done here a step does nothing."""
        return self._scheduler.awaits_disk

    def attach_disk(self, memory: BlockMemory, files: BlockFiles, speeds: Speeds) -> DiskTier:
        """Keep blocks in `files` from now on, and look for prompts there; the tier is how `files` answers."""
        self._scheduler.disk = DiskTier(self._scheduler.manager, memory, files, speeds)
        return self._scheduler.disk

    def check(self, token_ids: SequenceOf[int], params: SamplingParams) -> None:
        """Raise what `add` would raise for such a request, without adding anything."""
        self._runner.check(params)
        self._scheduler.check(len(token_ids))
        check_ids(token_ids, self._num_ids)

    def add(
        self,
        request_id: str,
        token_ids: SequenceOf[int],
        params: SamplingParams,
        *,
        session: str = "",
        priority: int = 0,
        is_kept: bool = True,
    ) -> None:
        """Queue a request; its events come from later steps.

        Requests of one `session` are served in order, those of different sessions in turn; lower `priority` numbers
        first (background work asks for 1). With `params.n` above 1 the further replies have the ids of `reply_ids`,
        and seeds that count on from the first one's. With `is_kept` false none of its blocks is written to disk.
        Raises RequestRefusedError with the sizes in tokens or the range of ids, or ParameterError for what the model
        cannot do.
        """
        self.check(token_ids, params)
        seed = random.getrandbits(63) if params.seed is None else params.seed
        for number, reply_id in enumerate(reply_ids(request_id, params.n)):
            sequence = self._sequence(reply_id, token_ids, params, (seed + number) % 2**63, session, priority)
            self._scheduler.add(sequence)
            sequence.is_kept = is_kept
            self._replies.open(sequence)

    def fork(self, request_id: str, fork_id: str, params: SamplingParams | None = None) -> None:
        """Go on from all tokens of an unfinished request a second time, on the same blocks.

        The tokens so far are the fork's prompt: limits, penalties and stop strings count its own reply alone. Without
        `params` it has the parent's and a seed of its own, which follows from the parent's; with `params`, their seed.
        Raises RequestRefusedError for an unknown request and where the tokens leave no room to go on, ParameterError
        for `n` above 1 and for a json_schema whose reply the parent has begun.
        """
        if request_id not in self._replies:
            raise RequestRefusedError(f"request {request_id!r} is unknown or finished; only an unfinished one forks")
        parent, params = self._replies[request_id], params or self._fork_params(request_id)
        check_fork(parent.sequence, params)
        self._runner.check(params)
        seed = random.getrandbits(63) if params.seed is None else params.seed
        sequence = parent.sequence
        child = self._sequence(fork_id, sequence.token_ids, params, seed, sequence.session, sequence.priority)
        is_running = self._scheduler.fork(sequence, child)
        child.is_kept = sequence.is_kept
        self._replies.open(child)
        if is_running:
            self._pending.append(self._replies.start(child))

    def _fork_params(self, request_id: str) -> SamplingParams:
        """The parent's parameters, for one reply, with a seed that no other fork of it has."""
        parent = self._replies[request_id]
        parent.num_forks += 1
        seed = random.Random(f"{parent.sequence.seed} {parent.num_forks}").getrandbits(63)
        return replace(parent.sequence.params, n=1, seed=seed)

    def pin(self, name: str, token_ids: SequenceOf[int]) -> int:
        """Keep the computed part of a prefix from eviction, up to `max_pinned_share`; returns how many tokens.

        On disk it is kept too, and goes last, after this engine has ended as well.
        """
        num_tokens = self._scheduler.manager.pin(name, list(token_ids))
        if self._scheduler.disk:
            self._scheduler.disk.pin(name, token_ids[:num_tokens])
        return num_tokens

    def unpin(self, name: str) -> None:
        """Let a pinned prefix go; unknown names are ignored."""
        self._scheduler.manager.unpin(name)
        if self._scheduler.disk:
            self._scheduler.disk.unpin(name)

    def clear_cache(self) -> None:
        """Forget every computed prefix that nobody uses or pins; the next prompts are cold."""
        self._scheduler.manager.clear_cache()

    def abort(self, request_id: str) -> None:
        """Mark a request; the next step ends it. Unknown and finished ids are ignored."""
        if request_id in self._replies:
            self._aborted[request_id] = None

    def wait(self) -> None:
        """Block until the step in flight is computed, if there is one; the next `step` takes it in.

        Requests that are added or aborted between the two are part of what `step` launches.
        """
        if self._flight is not None and not self._flight.is_over:
            self._scheduler.manager.foresee(self._flight.batch)
            self._flight.wait()

    def step(self) -> list[Event]:
        """Take in the step in flight, launch the next one, and only then make text of what the first one gave."""
        events = [*self._pending, *self._sweep_aborted()]
        self._pending.clear()
        said, failed = self._land()
        plan = self._scheduler.schedule()
        self._flight = Flight(self._runner, plan.batch) if plan.batch.sequences else None
        return [*events, *failed, *self._replies.tell(said), *self._replies.tell_plan(plan)]

    def counts(self) -> Counts:
        """Blocks and requests at this moment."""
        pool, scheduler = self._scheduler.manager.pool, self._scheduler
        return Counts(
            total=pool.num_blocks,
            free=pool.num_free,
            cached=pool.num_cached,
            used=pool.num_used,
            shared=pool.num_shared,
            pinned=scheduler.manager.num_pinned,
            running=len(scheduler.running),
            waiting=len(scheduler.waiting),
        )

    def check_integrity(self) -> None:
        """Assert the laws of the blocks; cheap enough for every idle moment."""
        self._scheduler.check_integrity()
        self._replies.check_integrity()

    def _sequence(
        self,
        request_id: str,
        token_ids: SequenceOf[int],
        params: SamplingParams,
        seed: int,
        session: str,
        priority: int,
    ) -> Sequence:
        assert request_id not in self._replies, f"request id {request_id!r} is taken"
        own_ids = frozenset() if params.ignore_eos else self._stop_ids
        return Sequence(
            request_id,
            token_ids,
            params,
            seed=seed,
            session=session,
            priority=priority,
            stop_ids=own_ids.union(params.stop_token_ids),
            max_model_len=self._scheduler.max_model_len,
        )

    def _sweep_aborted(self) -> list[Event]:
        aborted = [self._replies[request_id].sequence for request_id in self._aborted if request_id in self._replies]
        self._aborted.clear()
        return self._replies.end_all(aborted, StopReason.ABORTED)

    def _land(self) -> tuple[list[Said], list[Event]]:
        """Take in the step in flight: what it gave, or the ends of the requests that it failed."""
        self.wait()
        flight, self._flight = self._flight, None
        if flight is None:
            return [], []
        try:
            output = flight.land()
        except DeviceMemoryError as error:
            is_over = not self._scheduler.retry(flight.batch)
            return [], self._fail(flight.batch, describe_failure(flight.batch, error)) if is_over else []
        except DeviceLostError:
            raise  # every step would fail; whoever runs this process starts another
        except Exception as error:  # a border: one bad step must not take the other chats along
            return [], self._fail(flight.batch, repr(error))
        return self._scheduler.advance(flight.batch, output), []

    def _fail(self, batch: Batch, error: str) -> list[Event]:
        self._scheduler.fail(batch)
        return self._replies.end_all(batch.sequences, StopReason.FAILED, error)


def reply_ids(request_id: str, n: int) -> list[str]:
    """The ids of the n replies to one request: its own, then numbered ones."""
    return [request_id, *(f"{request_id}#{number}" for number in range(1, n))]
