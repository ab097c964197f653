"""What the engine refuses before it takes a request, and what it does not believe after a step."""

from collections.abc import Sequence as SequenceOf
from typing import Protocol, runtime_checkable

from octavo_engine.batch import Batch, ModelRunner, StepOutput
from octavo_engine.errors import EngineError, ParameterError, RequestRefusedError
from octavo_engine.params import SamplingParams
from octavo_engine.sequence import Sequence

MAX_IDS = 2**32
"""The digest of a chain packs an id into four bytes."""


@runtime_checkable
class HasVocabulary(Protocol):
    """A runner whose ids are 0 to `vocabulary` - 1."""

    vocabulary: int


def num_ids(runner: ModelRunner) -> int:
    """How many ids there are for a runner; one without a vocabulary takes all that a digest can name."""
    return runner.vocabulary if isinstance(runner, HasVocabulary) else MAX_IDS


def check_length(num_prompt_tokens: int, max_model_len: int, num_pool_tokens: int) -> None:
    """Raise RequestRefusedError for a prompt that could never run, with the three sizes in tokens."""
    if num_prompt_tokens == 0:
        raise RequestRefusedError("the prompt is empty; it needs at least one token")
    if num_prompt_tokens >= max_model_len or num_prompt_tokens >= num_pool_tokens:
        raise RequestRefusedError(
            f"the prompt has {num_prompt_tokens} tokens and its reply needs room too; "
            f"the context holds {max_model_len} and the KV pool {num_pool_tokens}"
        )


def check_ids(token_ids: SequenceOf[int], limit: int) -> None:
    """Raise RequestRefusedError for an id outside 0 to `limit` - 1: it would fail the step, its neighbours with it."""
    if min(token_ids) < 0 or max(token_ids) >= limit:
        place, wrong = next((place, i) for place, i in enumerate(token_ids) if not 0 <= i < limit)
        raise RequestRefusedError(f"token {place} of the prompt is id {wrong}; the model's ids are 0 to {limit - 1}")


def check_fork(parent: Sequence, params: SamplingParams) -> None:
    """Raise ParameterError for what a fork of this sequence cannot do."""
    if params.n != 1:
        raise ParameterError(f"n is {params.n}; it must be 1 for a fork, which is one reply: fork again for more")
    if params.json_schema is not None and parent.params.json_schema is not None and parent.num_replied:
        raise ParameterError("json_schema is set; a fork would begin new JSON inside what its parent has begun")


def check_output(batch: Batch, output: StepOutput) -> None:
    """Raise EngineError for a runner that answered with too few or too many ids: rows would be mixed up."""
    expected, given, num_logprobs = sum(batch.samples) * batch.num_steps, len(output.token_ids), len(output.logprobs)
    if given != expected or num_logprobs not in (0, expected):
        raise EngineError(f"the runner gave {given} ids and {num_logprobs} logprobs where {expected} were due")
