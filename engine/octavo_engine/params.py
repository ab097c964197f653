"""What a caller may ask of one request: sampling, limits and stops, checked once at the border."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from octavo_engine.errors import ParameterError

MAX_LOGPROBS = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingParams:
    """How the next token is drawn and when the reply ends; names, ranges and meanings are vLLM's.

    temperature: 0 is greedy.
    top_k, top_p, min_p: keep the k likeliest ids (0 keeps all), the smallest set that reaches probability p (1 keeps
        all), the ids at least min_p times as likely as the likeliest (0 keeps all); each after the temperature.
    repetition_penalty: divides positive and multiplies negative logits of ids seen in prompt or reply; 1 is off.
    presence_penalty, frequency_penalty: subtracted from ids of the reply, once, and once per occurrence.
    logit_bias: added to the logits of single ids.
    seed: same seed, same prompt, same reply, whoever shares the batch; None draws one.
    n: replies to one prompt, computed from one prefill.
    stop: texts that end the reply and are cut off it. stop_token_ids: ids that end it.
    max_tokens: None means until the context is full. min_tokens: nothing ends the reply before so many.
    ignore_eos: the model's own end-of-turn token does not end the reply.
    logprobs: so many likeliest ids with each sampled id's log-probability; None gives no log-probabilities.
    json_schema: the reply is JSON that this schema (as JSON text) accepts; needs the extra octavo[grammar].

    Raises ParameterError, naming the range, where a value is out of it.
    """

    temperature: float = 0.8
    top_k: int = 0
    top_p: float = 0.95
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    seed: int | None = None
    n: int = 1
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    max_tokens: int | None = None
    min_tokens: int = 0
    ignore_eos: bool = False
    logprobs: int | None = None
    json_schema: str | None = None

    def __post_init__(self) -> None:
        self._check_sampling()
        self._check_penalties()
        self._check_ends()

    @property
    def has_penalties(self) -> bool:
        """Whether a draw depends on which ids came before."""
        return (self.repetition_penalty, self.presence_penalty, self.frequency_penalty) != (1.0, 0.0, 0.0)

    @property
    def changes_logits(self) -> bool:
        """Whether anything but temperature and filters stands between the model's logits and the draw."""
        return self.has_penalties or bool(self.logit_bias or self.min_tokens or self.json_schema is not None)

    def _check_sampling(self) -> None:
        _require("temperature", self.temperature, 0.0 <= self.temperature <= 10.0, "0 to 10")
        _require("top_k", self.top_k, self.top_k >= 0, "0 (off) or more")
        _require("top_p", self.top_p, 0.0 < self.top_p <= 1.0, "above 0, up to 1")
        _require("min_p", self.min_p, 0.0 <= self.min_p <= 1.0, "0 to 1")
        _require("seed", self.seed, self.seed is None or 0 <= self.seed < 2**63, "0 to 2^63 - 1")
        _require("n", self.n, 1 <= self.n <= 128, "1 to 128")

    def _check_penalties(self) -> None:
        _require("repetition_penalty", self.repetition_penalty, 0.0 < self.repetition_penalty <= 10.0, "above 0, to 10")
        for name in ("presence_penalty", "frequency_penalty"):
            _require(name, getattr(self, name), -2.0 <= getattr(self, name) <= 2.0, "-2 to 2")
        for token_id, bias in self.logit_bias.items():
            _require(
                f"logit_bias[{token_id}]", bias, token_id >= 0 and -100.0 <= bias <= 100.0, "-100 to 100, ids 0 up"
            )

    def _check_ends(self) -> None:
        _require("max_tokens", self.max_tokens, self.max_tokens is None or self.max_tokens >= 1, "1 or more")
        most = self.min_tokens if self.max_tokens is None else self.max_tokens
        _require("min_tokens", self.min_tokens, 0 <= self.min_tokens <= most, "0 up to max_tokens")
        is_texts = isinstance(self.stop, (tuple, list)) and all(self.stop)  # a bare text would stop at its letters
        _require("stop", self.stop, is_texts, "a tuple of texts that are not empty")
        is_logprobs_in_range = self.logprobs is None or 0 <= self.logprobs <= MAX_LOGPROBS
        _require("logprobs", self.logprobs, is_logprobs_in_range, f"0 to {MAX_LOGPROBS}")


def _require(name: str, value: object, is_in_range: bool, allowed: str) -> None:
    if not is_in_range:
        raise ParameterError(f"{name} is {value!r}; it must be {allowed}")
