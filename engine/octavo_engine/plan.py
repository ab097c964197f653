"""A step while it is planned: the batch that comes of it, and whose state changes."""

from dataclasses import dataclass, field
from operator import attrgetter

from octavo_engine.batch import Batch
from octavo_engine.block_manager import BlockManager
from octavo_engine.sequence import Sequence

FEW_ROWS = 4
"""Up to so many rows a step is short, and all of `num_decode_steps` are taken at once; half of them with more rows."""


@dataclass(frozen=True, slots=True)
class Plan:
    """A step: its batch, and the sequences whose state changes with it.

    `overflowed` ones fill the whole pool by themselves; they end here, and the caller finishes them.
    """

    batch: Batch = field(default_factory=Batch)
    admitted: list[Sequence] = field(default_factory=list)
    preempted: list[Sequence] = field(default_factory=list)
    overflowed: list[Sequence] = field(default_factory=list)


def add_decodes(batch: Batch, sequences: list[Sequence]) -> None:
    """What `batch.add(sequence, 1)` does, for many: column by column, which takes half the time."""
    batch.sequences += sequences
    batch.query_lens += [1] * len(sequences)
    batch.context_lens += [s.num_computed + 1 for s in sequences]
    batch.samples += [True] * len(sequences)
    batch.token_ids += [s.token_ids[-1] for s in sequences]


def add_prefills(batch: Batch, sequences: list[Sequence], max_num_tokens: int) -> None:
    """Split what the batch has left of its budget evenly; what a short prompt does not need goes to the longer ones."""
    budget = max_num_tokens - batch.num_tokens
    for number, sequence in enumerate(sorted(sequences, key=attrgetter("num_uncomputed"))):
        share = min(sequence.num_uncomputed, budget // (len(sequences) - number))
        if share:
            batch.add(sequence, share)
            budget -= share


def add_steps(batch: Batch, num_decode_steps: int, manager: BlockManager) -> None:
    """Let rows that all decode go on for several steps, while none of them surely ends and blocks are left."""
    if num_decode_steps == 1 or not batch.is_decode or not batch.sequences:
        return
    wanted = num_decode_steps if len(batch.sequences) <= FEW_ROWS else max(num_decode_steps // 2, 1)
    steps = min(wanted, *map(num_left, batch.sequences))
    if steps > 1 and manager.can_extend(batch.sequences, steps):
        for sequence in batch.sequences:
            manager.extend(sequence, steps)
        batch.num_steps = steps


def num_left(sequence: Sequence) -> int:
    """Tokens until the reply must end; 1 for the first, which is awaited, and where the host has a say in each."""
    params = sequence.params
    if sequence.num_replied == 0 or params.changes_logits or params.logprobs is not None:
        return 1
    return sequence.most - len(sequence.token_ids)
