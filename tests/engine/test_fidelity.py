"""Greedy ids of our engine equal those of transformers' own `generate` on the real default model."""

import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationMixin, PreTrainedModel

from octavo_engine.config import EngineConfig
from octavo_engine.events import Delta
from octavo_engine.loaded import Loaded
from octavo_engine.params import SamplingParams
from octavo_engine.runner.load import load_engine

pytestmark = [pytest.mark.model, pytest.mark.slow]
NUM_NEW = 48
LENGTHS = (5, 9, 15, 16, 17, 31, 32, 33, 48, 64, 65, 100, 128, 200, 300, 400)
CLEAR_MARGIN = 1e-3
GREEDY = SamplingParams(temperature=0.0, max_tokens=NUM_NEW, ignore_eos=True)
CONFIG = EngineConfig(dtype="float32", kv_cache_memory_bytes=1 << 29)


@pytest.fixture(scope="module")
def reference(model_folder: Path) -> PreTrainedModel:
    model = AutoModelForCausalLM.from_pretrained(model_folder, dtype=torch.float32)
    assert isinstance(model, PreTrainedModel)
    return model


@pytest.fixture(scope="module")
def prompts(model_folder: Path) -> list[list[int]]:
    """Real text cut to 16 lengths, so that the margins between logits are those of real use."""
    tokenizer = AutoTokenizer.from_pretrained(model_folder)
    text = Path(__file__).parents[2].joinpath("LICENSE").read_text()
    ids = tokenizer.encode(text)
    starts = random.Random(0).sample(range(len(ids) - max(LENGTHS)), len(LENGTHS))
    return [ids[start : start + length] for start, length in zip(starts, LENGTHS, strict=True)]


@pytest.fixture(scope="module")
def expected(reference: PreTrainedModel, prompts: list[list[int]]) -> list[list[int]]:
    return [generate(reference, prompt) for prompt in prompts]


@torch.inference_mode()
def generate(model: PreTrainedModel, prompt: list[int]) -> list[int]:
    assert isinstance(model, GenerationMixin)
    ids = torch.tensor([prompt])
    out = model.generate(
        ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=NUM_NEW, eos_token_id=None
    )
    return [int(i) for i in out[0, len(prompt) :]]


def run(loaded: Loaded, prompts: list[list[int]]) -> list[list[int]]:
    """Ask for all prompts at once and return the reply's ids of each."""
    replies: dict[str, list[int]] = {str(n): [] for n in range(len(prompts))}
    for number, prompt in enumerate(prompts):
        loaded.engine.add(str(number), prompt, GREEDY)
    while loaded.engine.has_work:
        for event in loaded.engine.step():
            if isinstance(event, Delta):
                replies[event.request_id] += event.token_ids
    loaded.engine.check_integrity()
    return list(replies.values())


@torch.inference_mode()
def assert_same_or_tied(model: PreTrainedModel, prompt: list[int], ours: list[int], theirs: list[int]) -> None:
    """Equal ids; or, at the first difference, two logits of the reference within CLEAR_MARGIN of each other.

    After a tie the two replies go on from different words, so nothing more is compared.
    """
    assert len(ours) == len(theirs) == NUM_NEW
    for position, (our_id, their_id) in enumerate(zip(ours, theirs, strict=True)):
        if our_id != their_id:
            logits = model(torch.tensor([prompt + theirs[:position]])).logits[0, -1]
            margin = float(logits[their_id] - logits[our_id])
            assert margin < CLEAR_MARGIN, f"token {position}: {our_id} for {their_id}, margin {margin}"
            return


def alone(folder: Path, prompts: list[list[int]]) -> list[list[list[int]]]:
    loaded = load_engine(folder, replace(CONFIG, enable_prefix_caching=False))
    return [[run(loaded, [prompt])[0] for prompt in prompts]]


def in_one_batch_and_again_from_the_cache(folder: Path, prompts: list[list[int]]) -> list[list[list[int]]]:
    loaded = load_engine(folder, CONFIG)
    return [run(loaded, prompts), run(loaded, prompts)]


def in_chunks_of_64(folder: Path, prompts: list[list[int]]) -> list[list[list[int]]]:
    return [run(load_engine(folder, replace(CONFIG, max_num_seqs=16, max_num_batched_tokens=64)), prompts)]


@pytest.mark.parametrize("way", [alone, in_one_batch_and_again_from_the_cache, in_chunks_of_64])
def test_greedy_ids_equal_those_of_generate(
    way: Callable[[Path, list[list[int]]], list[list[list[int]]]],
    model_folder: Path,
    prompts: list[list[int]],
    reference: PreTrainedModel,
    expected: list[list[int]],
) -> None:
    for replies in way(model_folder, prompts):
        for prompt, ours, theirs in zip(prompts, replies, expected, strict=True):
            assert_same_or_tied(reference, prompt, ours, theirs)
