"""A step while it is planned: the batch that comes of it, and whose state changes."""

from dataclasses import dataclass, field
from operator import attrgetter

from octavo_engine.batch import Batch
from octavo_engine.block_manager import BlockManager
from octavo_engine.config import MAX_ROWS_OF_STEPS
from octavo_engine.sequence import Sequence

FEW_ROWS = 4
"""Up to so many rows a step is short, and all of `num_decode_steps` are taken at once; half of them with more rows."""
MOST_ROWS_AHEAD = 8
"""With so many a device may be ahead of the host."""
EARLY_SHARE = 4
"""Rows get blocks early while a quarter of the pool is left for those who need theirs now."""
LOOK_STEPS = 0.05
"""What a look of the host takes, in steps of a large model with many rows: 1.5 of 30 ms; of small ones it is more."""


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


def add_steps(batch: Batch, num_decode_steps: int, max_model_len: int, manager: BlockManager) -> None:
    """Let rows that all decode go on for several steps, as far as contexts and blocks allow."""
    if num_decode_steps == 1 or not batch.is_decode or not 0 < len(batch.sequences) <= MAX_ROWS_OF_STEPS:
        return
    if any(map(is_watched, batch.sequences)):
        return
    wanted = num_decode_steps if len(batch.sequences) <= FEW_ROWS else max(num_decode_steps // 2, 1)
    room = max_model_len - max(batch.context_lens)
    steps = most_useful([s.most - len(s.token_ids) for s in batch.sequences], min(wanted, room))
    while steps > 1 and not manager.can_extend(batch.sequences, steps):
        steps //= 2
    if steps > 1:
        for sequence in batch.sequences:
            manager.extend(sequence, steps)
        batch.num_steps = steps


def add_blocks_ahead(batch: Batch, manager: BlockManager) -> None:
    """Give rows the blocks of the next look now, where there are many: a device that is ahead of the host need not wait
    for them."""
    if batch.num_steps == 1 or len(batch.sequences) > MOST_ROWS_AHEAD:
        return
    for sequence in batch.sequences:
        num_tokens = min(2 * batch.num_steps, sequence.most - 1 - sequence.num_computed)  # the last one has no KV
        if manager.can_extend([sequence], num_tokens, manager.pool.num_blocks // EARLY_SHARE):
            manager.extend(sequence, num_tokens)


def is_watched(sequence: Sequence) -> bool:
    """Whether the host must look after one step: the first token is awaited, or it has a say in each."""
    params = sequence.params
    return sequence.num_replied == 0 or params.changes_logits or params.logprobs is not None


def most_useful(lefts: list[int], wanted: int) -> int:
    """How many steps, up to `wanted`, give the most tokens for their time, where rows surely end after `lefts` tokens.

    A row that ends earlier drops the rest: with many rows that costs less than a look for each end. Between two ends
    the rate only rises or only falls, so the ends and `wanted` are all there is to compare.
    """
    ending = [left for left in lefts if left < wanted]
    num_others = len(lefts) - len(ending)

    def tokens_for_time(steps: int) -> float:
        return (num_others * steps + sum(min(left, steps) for left in ending)) / (steps + LOOK_STEPS)

    return max(sorted({*ending, wanted}), key=tokens_for_time)
