"""A memory runner that decodes as FastRunner does: by a graph that goes on by itself, further than it was asked."""

from typing import TYPE_CHECKING, cast

from tests.engine.memory_runner import MemoryRunner, NextId

from octavo_engine.batch import Batch, PendingStep
from octavo_engine.runner.fast.course import Course
from octavo_engine.scheduler import Scheduler

if TYPE_CHECKING:
    from octavo_engine.runner.fast.graphs import DecodeGraph

SEVERAL, NUM_PLACES = 3, 24
"""Steps at once, and those for whose ids there are places before a graph is filled again."""


class MemoryGraph:
    """The device's side of a DecodeGraph: it knows of its rows what it was filled with, and reads all else in slots."""

    def __init__(self, runner: "AheadRunner", batch: Batch) -> None:
        self.num_rows = len(batch.sequences)
        self.out: list[list[int]] = [[] for _ in range(NUM_PLACES)]
        self._runner, self._ids, self._positions = runner, list(batch.token_ids), [n - 1 for n in batch.context_lens]
        self._tables = [list(s.block_table) for s in batch.sequences]
        self._seeds, self._num_steps = [s.seed for s in batch.sequences], 0

    def set_tables(self, tables: list[list[int]]) -> None:
        self._tables = [list(table) for table in tables]

    def replay(self, most: int) -> int:
        """Several steps at once where so many are wanted."""
        count = SEVERAL if most >= SEVERAL else 1
        for _ in range(count):
            self._step()
        return count

    def _step(self) -> None:
        for row, (token_id, position) in enumerate(zip(self._ids, self._positions, strict=True)):
            self._ids[row] = self._runner.decode(token_id, position, self._tables[row], self._seeds[row])
            self._positions[row] += 1
        self.out[self._num_steps] = list(self._ids)
        self._num_steps += 1


class AheadRunner(MemoryRunner):
    """Goes up to `most_ahead` steps ahead; `num_continued` looks did not fill a graph."""

    def __init__(self, scheduler: Scheduler, next_id: NextId, vocabulary: int, most_ahead: int) -> None:
        super().__init__(scheduler, next_id, vocabulary)
        self._most_ahead = most_ahead
        self._course: Course | None = None
        self._in_flight: Course | None = None
        self._asked = slice(0)
        self.num_continued = self.num_ahead = 0

    def launch(self, batch: Batch) -> PendingStep:
        course, self._course, self._in_flight = self._course, None, None
        pending = super().launch(batch)
        if not batch.is_decode:
            return pending
        if course and course.goes_on(batch):
            self.num_continued += 1
        else:
            graph = cast("DecodeGraph", MemoryGraph(self, batch))
            order = list(range(len(batch.sequences)))
            course = Course.of(graph, order, batch, self._size, self._scheduler.max_model_len)
        self._asked, self._in_flight, self._course = course.ask(batch.num_steps), course, course
        return PendingStep(lambda: course.told(pending.wait()))

    def _ids(self, batch: Batch) -> list[int]:
        course = self._in_flight
        if course is None:
            return super()._ids(batch)
        course.queue(course.num_asked)
        num_ahead = course.num_ahead(batch.num_steps, self._most_ahead)
        course.queue(course.num_asked + num_ahead)
        self.num_ahead += num_ahead
        return [token_id for step in cast("MemoryGraph", course.graph).out[self._asked] for token_id in step]

    def decode(self, token_id: int, position: int, table: list[int], seed: int) -> int:
        """Write a token to its slot, and say what follows on all that lie before it."""
        block, offset = table[position // self._size], position % self._size
        assert self._manager.pool.ref_counts[block], "a step ahead writes to a block that nobody holds"
        assert self._manager.index.num_tokens(block) <= offset
        self._memory[block * self._size + offset] = token_id
        size = self._size
        return self._next_id([self._memory[table[p // size] * size + p % size] for p in range(position + 1)], seed)
