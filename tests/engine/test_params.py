"""Values out of range are refused by name, with the value and the range."""

from typing import Any

import pytest

from octavo_engine.config import EngineConfig
from octavo_engine.errors import ParameterError
from octavo_engine.params import SamplingParams


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("temperature", -0.1),
        ("temperature", float("nan")),
        ("top_k", -1),
        ("top_p", 0.0),
        ("top_p", 1.1),
        ("min_p", -0.1),
        ("repetition_penalty", 0.0),
        ("presence_penalty", 2.1),
        ("frequency_penalty", -2.1),
        ("seed", -1),
        ("seed", 2**63),
        ("n", 0),
        ("n", 129),
        ("max_tokens", 0),
        ("min_tokens", -1),
        ("stop", ("",)),
        ("stop", "END"),
        ("logprobs", 21),
    ],
)
def test_a_sampling_value_out_of_range_is_refused_by_name(name: str, value: Any) -> None:
    with pytest.raises(ParameterError, match=rf"^{name} is .*{value if value == value else 'nan'}.*; it must be "):
        SamplingParams(**{name: value})


@pytest.mark.parametrize("bias", [{5: 101.0}, {-1: 0.0}, {5: float("inf")}])
def test_a_bias_is_refused_with_its_id(bias: dict[int, float]) -> None:
    with pytest.raises(ParameterError, match=rf"logit_bias\[{next(iter(bias))}\]"):
        SamplingParams(logit_bias=bias)


def test_min_tokens_stay_below_max_tokens() -> None:
    assert SamplingParams(min_tokens=5, max_tokens=5).min_tokens == 5
    with pytest.raises(ParameterError, match="min_tokens is 6; it must be 0 up to max_tokens"):
        SamplingParams(min_tokens=6, max_tokens=5)


def test_the_defaults_are_in_range_and_have_no_penalties() -> None:
    assert not SamplingParams().has_penalties
    assert SamplingParams(presence_penalty=0.1).has_penalties


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("block_size", 0),
        ("max_num_seqs", 0),
        ("max_num_batched_tokens", 0),
        ("max_model_len", 0),
        ("kv_cache_memory_bytes", 0),
        ("gpu_memory_utilization", 0.0),
        ("gpu_memory_utilization", 1.5),
        ("max_pinned_share", -0.1),
        ("max_pinned_share", 1.5),
        ("num_decode_steps", 65),
        ("dtype", "float31"),
        ("attention", "flush"),
    ],
)
def test_a_setting_out_of_range_is_refused_by_name(name: str, value: Any) -> None:
    with pytest.raises(ParameterError, match=rf"^{name} is .*{value}.*; it must be "):
        EngineConfig(**{name: value})


def test_every_running_sequence_has_a_token_in_the_budget() -> None:
    with pytest.raises(ParameterError, match="at least max_num_seqs, 8"):
        EngineConfig(max_num_seqs=8, max_num_batched_tokens=7)
