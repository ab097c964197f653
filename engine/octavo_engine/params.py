"""What a caller may ask of one request: sampling, limits and stops, checked once at the border."""

from dataclasses import dataclass

from octavo_engine.errors import ParameterError


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingParams:
    """How the next token is drawn and when the reply ends; names and ranges are vLLM's.

    `temperature` 0 is greedy. `top_k` 0 and `top_p` 1 switch the filter off. `max_tokens` None means "until the
    context is full". Raises ParameterError where a value is out of its range.
    """

    temperature: float = 0.8
    top_k: int = 0
    top_p: float = 0.95
    seed: int | None = None
    max_tokens: int | None = None
    ignore_eos: bool = False

    def __post_init__(self) -> None:
        _require("temperature", self.temperature, 0.0 <= self.temperature <= 10.0, "0 to 10")
        _require("top_k", self.top_k, self.top_k >= 0, "0 (off) or more")
        _require("top_p", self.top_p, 0.0 < self.top_p <= 1.0, "above 0, up to 1")
        _require("seed", self.seed, self.seed is None or 0 <= self.seed < 2**63, "0 to 2^63 - 1")
        _require("max_tokens", self.max_tokens, self.max_tokens is None or self.max_tokens >= 1, "1 or more")


def _require(name: str, value: object, is_in_range: bool, allowed: str) -> None:
    if not is_in_range:
        raise ParameterError(f"{name} is {value}; it must be {allowed}")
