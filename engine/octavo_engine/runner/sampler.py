"""Picks the next ids from logits, all rows at once, each row with its own parameters and its own random stream."""

import torch
from transformers import PreTrainedTokenizerBase

from octavo_engine.batch import StepOutput
from octavo_engine.errors import ParameterError
from octavo_engine.events import TokenLogprobs
from octavo_engine.params import SamplingParams
from octavo_engine.runner.adjustments import TokenCounts, add_biases
from octavo_engine.runner.filters import RowParams, draw
from octavo_engine.runner.grammar import Grammars
from octavo_engine.sequence import Sequence


class Sampler:
    """Grammar, then penalties, then biases, then temperature and filters, then the draw."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase, vocabulary: int, device: torch.device) -> None:
        self.vocabulary = vocabulary
        self._counts = TokenCounts(vocabulary, device)
        self._grammars = Grammars(tokenizer, vocabulary)
        self._sequences: list[Sequence] = []
        self._rows = RowParams.of([], torch.device("cpu"))
        self._penalised: list[int] = []  # numbers of the rows with penalties
        self._is_adjusted = False

    def check(self, params: SamplingParams) -> None:
        """Raise ParameterError for ids outside the vocabulary and for a schema that cannot be kept."""
        for name, ids in (("logit_bias", params.logit_bias), ("stop_token_ids", params.stop_token_ids)):
            if unknown := [i for i in ids if not 0 <= i < self.vocabulary]:
                raise ParameterError(f"{name} names id {unknown[0]}; the model's ids are 0 to {self.vocabulary - 1}")
        if params.json_schema is not None:
            self._grammars.check(params.json_schema)

    def sample(self, logits: torch.Tensor, sequences: list[Sequence]) -> StepOutput:
        """Draw one id for each row of logits, (rows, vocabulary), which belong to `sequences`."""
        if sequences != self._sequences:  # the parameters of a row never change, so unchanged rows cost nothing
            self._begin(sequences, logits.device)
        adjusted = self._adjust(logits.float(), sequences) if self._is_adjusted else logits.float()
        position = torch.tensor([s.num_replied for s in sequences], device=logits.device)
        ids = draw(adjusted, self._rows, position)
        return StepOutput(ids.tolist(), token_logprobs(logits, ids, sequences))

    def _begin(self, sequences: list[Sequence], device: torch.device) -> None:
        """Remember what follows from the parameters of these rows."""
        self._sequences, self._rows = list(sequences), RowParams.of(sequences, device)
        self._penalised = [row for row, s in enumerate(sequences) if s.params.has_penalties]
        self._is_adjusted = any(s.params.changes_logits for s in sequences)

    def _adjust(self, logits: torch.Tensor, sequences: list[Sequence]) -> torch.Tensor:
        logits = logits.clone()
        self._grammars.constrain(logits, sequences)
        if self._penalised:
            self._counts.penalise(logits, self._penalised, [sequences[row] for row in self._penalised])
        add_biases(logits, sequences)
        return logits


def token_logprobs(logits: torch.Tensor, ids: torch.Tensor, sequences: list[Sequence]) -> list[TokenLogprobs | None]:
    """The model's own log-probabilities, for the rows that asked; empty when none did."""
    wanted = [s.params.logprobs for s in sequences]
    if all(count is None for count in wanted):
        return []
    all_logprobs = logits.float().log_softmax(-1)
    chosen = all_logprobs.gather(-1, ids[:, None])[:, 0].tolist()
    values, top_ids = all_logprobs.topk(max(count or 0 for count in wanted))
    tops = [list(zip(*pair, strict=True)) for pair in zip(top_ids.tolist(), values.tolist(), strict=True)]
    return [
        None if count is None else TokenLogprobs(logprob, tuple(top[:count]))
        for count, logprob, top in zip(wanted, chosen, tops, strict=True)
    ]
