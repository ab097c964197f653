"""A step while it is planned: the batch that comes of it, and whose state changes."""

from dataclasses import dataclass, field

from octavo_engine.batch import Batch
from octavo_engine.sequence import Sequence


@dataclass(frozen=True, slots=True)
class Plan:
    """A step: its batch, and the sequences whose state changes with it.

    `overflowed` ones fill the whole pool by themselves; they end here, and the caller finishes them.
    """

    batch: Batch = field(default_factory=Batch)
    admitted: list[Sequence] = field(default_factory=list)
    preempted: list[Sequence] = field(default_factory=list)
    overflowed: list[Sequence] = field(default_factory=list)


def add_decodes(batch: Batch, sequences: list[Sequence], block_size: int) -> None:
    """What `batch.add(sequence, 1, block_size)` does, for many: column by column, which takes half the time."""
    positions = [s.num_computed for s in sequences]
    batch.sequences += sequences
    batch.query_lens += [1] * len(sequences)
    batch.context_lens += [position + 1 for position in positions]
    batch.samples += [True] * len(sequences)
    batch.token_ids += [s.token_ids[-1] for s in sequences]
    batch.positions += positions
    batch.slots += [
        s.block_table[position // block_size] * block_size + position % block_size
        for s, position in zip(sequences, positions, strict=True)
    ]
