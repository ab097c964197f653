"""Where a graph of decoding rows stands: it goes on by itself, and a little further than the host has asked.

So the device has work while the host takes in the ids of one look and asks for the next. What it computes too much,
because a row has ended or a new one has come, lies behind all tokens of its rows, in blocks that they had to themselves
when it was put into the queue, before anything that may come to use those blocks.
"""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from octavo_engine.batch import Batch, StepOutput
from octavo_engine.sequence import Sequence

if TYPE_CHECKING:
    from octavo_engine.runner.fast.graphs import DecodeGraph


@dataclass(slots=True)
class Course:
    """A graph that was filled with a batch, whose row order[n] is its row n.

    Of its steps since then, the host has asked for `num_asked`, after which it knows the ids `newest`, and `num_queued`
    are in the device's queue. Up to `room` steps have blocks, context and places for their ids; up to `num_wanted` no
    row surely ends. `tables` are the sequences' own lists, `blocks` what the graph knows of them.
    """

    graph: "DecodeGraph"
    order: list[int]
    sequences: list[Sequence]
    tables: list[list[int]]
    blocks: list[list[int]]
    context_lens: list[int]
    block_size: int
    max_model_len: int
    num_wanted: int
    newest: list[int] = field(default_factory=list)
    num_asked: int = 0
    num_queued: int = 0

    @classmethod
    def of(cls, graph: "DecodeGraph", order: list[int], batch: Batch, block_size: int, max_model_len: int) -> "Course":
        """At the first step of a batch of decoding rows."""
        sequences, tables = list(batch.sequences), [s.block_table for s in batch.sequences]
        num_wanted = min(s.most - len(s.token_ids) for s in sequences)
        blocks, lengths = [list(table) for table in tables], list(batch.context_lens)
        return cls(graph, order, sequences, tables, blocks, lengths, block_size, max_model_len, num_wanted)

    @property
    def room(self) -> int:
        graph, covered = self.graph, [min(len(known) * self.block_size, self.max_model_len) for known in self.blocks]
        num_places = len(graph.out) if len(self.order) == graph.num_rows else len(graph.out) // 2  # idle rows read, too
        return min(num_places, *(end - length + 1 for end, length in zip(covered, self.context_lens, strict=True)))

    def goes_on(self, batch: Batch) -> bool:
        """As `continues`, for rows that may have been given blocks behind those that the graph knows: it is told."""
        has_grown = self._learn_blocks()
        if not self.continues(batch):
            return False
        if has_grown:
            self.graph.set_tables([self.tables[row] for row in self.order])
        return True

    def _learn_blocks(self) -> bool:
        pairs = list(zip(self.tables, self.blocks, strict=True))
        has_grown = any(len(table) > len(known) for table, known in pairs)
        if not has_grown or any(table[: len(known)] != known for table, known in pairs):
            return False
        self.blocks = [list(table) for table in self.tables]
        return True

    def continues(self, batch: Batch) -> bool:
        """Whether a batch of decoding rows asks for the next steps of these, over the blocks that the graph knows."""
        return (
            not batch.copies
            and self.num_asked + batch.num_steps <= self.room
            and batch.sequences == self.sequences
            and batch.token_ids == self.newest
            and batch.context_lens == [length + self.num_asked for length in self.context_lens]
            and all(s.block_table is table for s, table in zip(self.sequences, self.tables, strict=True))
            and all(table[: len(b)] == b for table, b in zip(self.tables, self.blocks, strict=True))
        )

    def ask(self, num_steps: int) -> slice:
        """Which of the graph's ids are those of the next `num_steps` steps; whoever asks then queues them."""
        first, self.num_asked = self.num_asked, self.num_asked + num_steps
        self.newest = []  # until the host is told
        return slice(first, self.num_asked)

    def told(self, output: StepOutput) -> StepOutput:
        """What the host gets to know of the steps that it asked for last."""
        self.newest = list(output.token_ids[-len(self.sequences) :])
        return output

    def queue(self, until: int) -> None:
        """Put all steps before number `until` into the device's queue that are not there."""
        while self.num_queued < until:
            self.num_queued += self.graph.replay(until - self.num_queued)

    def num_ahead(self, num_steps: int, most: int) -> int:
        """How many more steps, up to `most`, are likely to be asked for, if the next look asks for `num_steps`, too."""
        if self.num_asked + num_steps > self.room:
            return 0
        return max(0, min(most, num_steps, self.num_wanted - self.num_asked))
