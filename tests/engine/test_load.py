"""What loading takes from a model's config: its context, its pool, its ends of turn."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedModel

from octavo_engine.config import EngineConfig
from octavo_engine.errors import ModelError
from octavo_engine.runner.kv_cache import KVShape
from octavo_engine.runner.load import pick_context, pick_num_blocks, stop_ids

SHAPE = KVShape(num_layers=2, num_kv_heads=2, head_dim=8, dtype=torch.float32)  # 256 bytes a token


@pytest.fixture(scope="module")
def model() -> PreTrainedModel:
    config = LlamaConfig(
        vocab_size=32,
        hidden_size=16,
        intermediate_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        max_position_embeddings=300,
        eos_token_id=[2, 5],
        pad_token_id=0,
    )
    return LlamaForCausalLM(config)


@pytest.mark.parametrize(("asked", "context"), [(None, 300), (100, 100), (300, 300)])
def test_the_context_is_the_models_own_or_a_smaller_one(
    model: PreTrainedModel, asked: int | None, context: int
) -> None:
    assert pick_context(model, EngineConfig(max_model_len=asked)) == context


def test_a_context_beyond_the_models_own_is_refused_with_both_numbers(model: PreTrainedModel) -> None:
    with pytest.raises(ModelError, match="max_model_len is 301, but the model's context ends at 300 tokens"):
        pick_context(model, EngineConfig(max_model_len=301))


def test_the_pool_is_what_the_setting_says(model: PreTrainedModel) -> None:
    config = EngineConfig(block_size=16, kv_cache_memory_bytes=10 * 16 * 256 + 1)
    assert pick_num_blocks(model, SHAPE, config, 300) == 10


@pytest.mark.parametrize("num_bytes", [16 * 256 - 1, 1 << 60])
def test_a_pool_that_holds_no_block_or_exceeds_the_memory_is_refused_with_the_bytes(
    model: PreTrainedModel, num_bytes: int
) -> None:
    config = EngineConfig(block_size=16, kv_cache_memory_bytes=num_bytes)
    with pytest.raises(ModelError, match=r"300 tokens takes 77824 bytes, a block 4096, and \d+ bytes are free"):
        pick_num_blocks(model, SHAPE, config, 300)


def test_every_end_of_turn_stops(model: PreTrainedModel) -> None:
    tokenizer: Any = SimpleNamespace(eos_token_id=7)
    assert sorted(stop_ids(model, tokenizer)) == [2, 5, 7]
