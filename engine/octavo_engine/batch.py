"""One step's plan and what comes of it: plain lists of ints between the scheduler and a model runner."""

from collections.abc import Callable
from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass, field
from itertools import chain
from typing import Protocol

from octavo_engine.events import TokenLogprobs
from octavo_engine.params import SamplingParams
from octavo_engine.sequence import Sequence


@dataclass(slots=True)
class Batch:
    """The rows of one step, decoding rows first.

    Row r computes the next `query_lens[r]` tokens of `sequences[r]`, of which the first `context_lens[r]` tokens then
    have KV. `token_ids` are flat over all rows, in row order. `samples[r]` says that the row's last token is the
    sequence's last, so that a next id is drawn from it. `copies` (source, destination) of whole blocks run before
    anything is written. The block tables are the sequences' own lists, not copies: planning stays flat in context
    length. `num_steps` above 1, only for rows that all decode, asks for so many tokens in a row: each step's id is the
    next one's input, and the tables have room for all of them.
    """

    sequences: list[Sequence] = field(default_factory=list)
    query_lens: list[int] = field(default_factory=list)
    context_lens: list[int] = field(default_factory=list)
    samples: list[bool] = field(default_factory=list)
    token_ids: list[int] = field(default_factory=list)
    copies: list[tuple[int, int]] = field(default_factory=list)
    num_steps: int = 1

    def add(self, sequence: Sequence, num_tokens: int) -> None:
        """Append a row that computes the next `num_tokens` tokens of a sequence whose table covers them."""
        start, end = sequence.num_computed, sequence.num_computed + num_tokens
        self.sequences.append(sequence)
        self.query_lens.append(num_tokens)
        self.context_lens.append(end)
        self.samples.append(end == len(sequence.token_ids))
        self.token_ids.extend(sequence.token_ids[start:end])

    @property
    def positions(self) -> list[int]:
        """Of each token in its sequence; not kept, since not every runner wants those of a long prompt."""
        rows = zip(self.query_lens, self.context_lens, strict=True)
        return list(chain.from_iterable(range(end - length, end) for length, end in rows))

    def slots(self, block_size: int) -> list[int]:
        """Where the KV of each token goes: slot s is offset s % block_size of block s // block_size."""
        slots: list[int] = []
        for sequence, length, end in zip(self.sequences, self.query_lens, self.context_lens, strict=True):
            while length:  # a run of slots for each block, as prompts are long
                number, offset = divmod(end - length, block_size)
                first, run = sequence.block_table[number] * block_size + offset, min(length, block_size - offset)
                slots += range(first, first + run)
                length -= run
        return slots

    @property
    def num_tokens(self) -> int:
        return len(self.token_ids)

    @property
    def is_decode(self) -> bool:
        """Whether every row computes its newest token and samples: no row is a piece of a prompt, however short."""
        return len(self.token_ids) == len(self.sequences) and all(self.samples)

    @property
    def num_decodes(self) -> int:
        """How many leading rows compute one token each."""
        count = 0
        while count < len(self.query_lens) and self.query_lens[count] == 1:
            count += 1
        return count


@dataclass(frozen=True, slots=True)
class StepOutput:
    """One sampled id for each row with `samples` true, in row order, step after step.

    `logprobs` likewise, if any row asked for them.
    """

    token_ids: SequenceOf[int]
    logprobs: SequenceOf[TokenLogprobs | None] = ()


Said = tuple[Sequence, SequenceOf[int], SequenceOf[TokenLogprobs | None]]
"""What a step gave one row: the ids sampled, none behind the end of the reply, and logprobs if any row asked."""


@dataclass(frozen=True, slots=True)
class PendingStep:
    """A step in flight: `wait` blocks until it is computed, once, and raises what went wrong."""

    wait: Callable[[], StepOutput]


class ModelRunner(Protocol):
    """Whatever can run a batch: the real model, or the echo of the demo."""

    def check(self, params: SamplingParams) -> None:
        """Raise ParameterError for what this runner cannot do, before anything is queued."""
        ...

    def launch(self, batch: Batch) -> PendingStep:
        """Begin to compute a batch, whose KV is written and whose next ids are drawn, and do not wait for it.

        On a device with a queue of its own everything is put there; elsewhere nothing is computed before `wait`, so
        that what is known of the step before can be told first. The engine has one step in flight at most, and changes
        neither the batch nor its sequences' ids and tables before `wait` returned. Either call raises DeviceMemoryError
        for a batch that is too large, and may be asked again for the same tokens, in this or another batch.
        """
        ...
