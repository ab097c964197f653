"""Greedy ids of our engine are those that transformers' own forward pass finds likeliest, on the real default model."""

import random
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from octavo_engine.config import EngineConfig
from octavo_engine.events import Delta
from octavo_engine.loaded import Loaded
from octavo_engine.params import SamplingParams
from octavo_engine.runner.load import load_engine

pytestmark = [pytest.mark.model, pytest.mark.slow]
NUM_NEW = 18  # all but the last are computed: more than a block, so that every reply goes over the edge of one
LENGTHS = (5, 9, 15, 16, 17, 31, 32, 33, 48, 64, 65, 100, 128, 200, 300, 400)
LENGTHS_ALONE = (5, 15, 16, 17, 100, 400)  # fewer, since all weights are read for each id
CLEAR_MARGIN = 1e-3
GREEDY = SamplingParams(temperature=0.0, max_tokens=NUM_NEW, ignore_eos=True)
CONFIG = EngineConfig(dtype="float32", kv_cache_memory_bytes=1 << 29)
Asked = list[tuple[list[int], list[int]]]
"""Prompts with their replies."""

Regret = Callable[[tuple[int, ...], tuple[int, ...]], float]


@pytest.fixture(scope="module")
def regret(model_folder: Path) -> Regret:
    """By how much, in logits, the reference likes some other id better than a reply's own, where that is most.

    One pass over prompt and reply asks for all positions. Where it is nothing, the reply is that of `generate`, each id
    being the likeliest after those before it.
    """
    model = AutoModelForCausalLM.from_pretrained(model_folder, dtype=torch.float32)

    @cache
    @torch.inference_mode()
    def regret(prompt: tuple[int, ...], reply: tuple[int, ...]) -> float:
        logits = model(torch.tensor([prompt + reply[:-1]]), logits_to_keep=len(reply), use_cache=False).logits[0]
        own = logits.gather(1, torch.tensor(reply)[:, None])[:, 0]  # (reply,)
        return float((logits.amax(1) - own).max())

    return regret


@pytest.fixture(scope="module")
def prompts(model_folder: Path) -> list[list[int]]:
    """Real text cut to 16 lengths, so that the margins between logits are those of real use."""
    tokenizer = AutoTokenizer.from_pretrained(model_folder)
    text = Path(__file__).parents[2].joinpath("LICENSE").read_text()
    ids = tokenizer.encode(text)
    starts = random.Random(0).sample(range(len(ids) - max(LENGTHS)), len(LENGTHS))
    return [ids[start : start + length] for start, length in zip(starts, LENGTHS, strict=True)]


def run(loaded: Loaded, prompts: list[list[int]]) -> Asked:
    """Ask for all prompts at once."""
    replies: dict[str, list[int]] = {str(n): [] for n in range(len(prompts))}
    for number, prompt in enumerate(prompts):
        loaded.engine.add(str(number), prompt, GREEDY)
    while loaded.engine.has_work:
        for event in loaded.engine.step():
            if isinstance(event, Delta):
                replies[event.request_id] += event.token_ids
    loaded.engine.check_integrity()
    return list(zip(prompts, replies.values(), strict=True))


def alone(folder: Path, prompts: list[list[int]]) -> Asked:
    loaded = load_engine(folder, replace(CONFIG, enable_prefix_caching=False))
    return [run(loaded, [prompt])[0] for prompt in prompts if len(prompt) in LENGTHS_ALONE]


def in_one_batch_and_again_from_the_cache(folder: Path, prompts: list[list[int]]) -> Asked:
    loaded = load_engine(folder, CONFIG)
    return run(loaded, prompts) + run(loaded, prompts)


def in_chunks_of_64(folder: Path, prompts: list[list[int]]) -> Asked:
    return run(load_engine(folder, replace(CONFIG, max_num_seqs=16, max_num_batched_tokens=64)), prompts)


@pytest.mark.parametrize("way", [alone, in_one_batch_and_again_from_the_cache, in_chunks_of_64])
def test_greedy_ids_are_the_likeliest_of_transformers(
    way: Callable[[Path, list[list[int]]], Asked], model_folder: Path, prompts: list[list[int]], regret: Regret
) -> None:
    for prompt, reply in way(model_folder, prompts):
        assert len(reply) == NUM_NEW
        assert regret(tuple(prompt), tuple(reply)) < CLEAR_MARGIN, f"the prompt of {len(prompt)} ids"
