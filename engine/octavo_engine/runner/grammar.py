"""Keeps replies inside a JSON schema, with llguidance.

Chosen over xgrammar: one 3 MB wheel without dependencies (xgrammar brings triton, pydantic and a TVM runtime), no
compile time a schema, and the whole of JSON Schema's everyday keywords. Its masks are made on the CPU for the rows
that ask for them.
"""

import weakref
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

from octavo_engine.errors import ParameterError
from octavo_engine.sequence import Sequence

if TYPE_CHECKING:
    import llguidance

NOT_INSTALLED = "json_schema is set, but llguidance is not installed; run: pip install 'octavo[grammar]'"


@dataclass(slots=True)
class Matcher:
    """Where one reply stands in its grammar."""

    machine: "llguidance.LLMatcher"
    num_consumed: int = 0


class Grammars:
    """The matchers of all sequences that have a schema; the tokenizer is prepared at the first one (about a second)."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase, vocabulary: int) -> None:
        self._tokenizer = tokenizer
        self._vocabulary = vocabulary
        self._prepared: llguidance.LLTokenizer | None = None
        self._matchers: weakref.WeakKeyDictionary[Sequence, Matcher] = weakref.WeakKeyDictionary()

    def check(self, json_schema: str) -> None:
        """Raise ParameterError, with the reason, for a schema that cannot be kept."""
        machine = self._machine(json_schema)
        if machine.is_error():
            raise ParameterError(f"json_schema is refused: {machine.get_error()}")

    def constrain(self, logits: torch.Tensor, sequences: list[Sequence]) -> None:
        """Forbid in logits, (rows, vocabulary), in place, what would leave a row's schema."""
        numbers = [row for row, s in enumerate(sequences) if s.params.json_schema is not None]
        if numbers:
            masks = torch.stack([self._mask(sequences[row]) for row in numbers]).to(logits.device)
            index = torch.tensor(numbers, device=logits.device)
            logits[index] = logits[index].masked_fill(~masks, float("-inf"))

    def _mask(self, sequence: Sequence) -> torch.Tensor:
        """The ids that may come next, (vocabulary,)."""
        matcher = self._matchers.get(sequence)
        if matcher is None:
            assert sequence.params.json_schema is not None
            matcher = self._matchers[sequence] = Matcher(self._machine(sequence.params.json_schema))
        new = sequence.token_ids[sequence.num_prompt + matcher.num_consumed :]
        matcher.machine.consume_tokens(new)
        matcher.num_consumed += len(new)
        words = torch.frombuffer(bytearray(matcher.machine.compute_bitmask()), dtype=torch.int32)
        bits = (words[:, None] >> torch.arange(32)) & 1
        mask = torch.zeros(self._vocabulary, dtype=torch.bool)
        known = bits.flatten()[: self._vocabulary].bool()
        mask[: len(known)] = known
        return mask

    def _machine(self, json_schema: str) -> "llguidance.LLMatcher":
        try:
            import llguidance
            import llguidance.hf
        except ImportError as error:
            raise ParameterError(NOT_INSTALLED) from error
        if not isinstance(self._tokenizer, PreTrainedTokenizerFast):
            raise ParameterError("json_schema is set, but this model's tokenizer is not one that llguidance can read")
        if self._prepared is None:
            self._prepared = llguidance.hf.from_tokenizer(self._tokenizer)
        try:
            grammar = llguidance.LLMatcher.grammar_from_json_schema(json_schema)
        except ValueError as error:
            raise ParameterError(f"json_schema is not JSON: {error}") from error
        return llguidance.LLMatcher(self._prepared, grammar, log_level=0)
