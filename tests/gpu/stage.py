"""Tiny models on the fast path for the tests of CUDA, their prompts, and what "the same reply" means in bfloat16."""

import math

import pytest
import torch
import transformers
from tokenizers import Tokenizer, models
from transformers import AutoModelForCausalLM, PreTrainedModel, PreTrainedTokenizerFast

from octavo_engine.config import EngineConfig
from octavo_engine.engine import Engine
from octavo_engine.events import Delta, Event, TokenLogprobs
from octavo_engine.loaded import Loaded
from octavo_engine.params import SamplingParams
from octavo_engine.runner import load, routing

pytest.importorskip("triton", reason="the fast path needs Triton")
from octavo_engine.runner.fast.fast_runner import FastRunner
from octavo_engine.runner.fast.own_kernels import OLDEST_CAPABILITY

on_hopper = pytest.mark.skipif(
    not torch.cuda.is_available() or torch.cuda.get_device_capability() < OLDEST_CAPABILITY,
    reason="our own kernels need Hopper or newer",
)
"""There they must be taken: a test that looks for them and finds none has failed."""

TINY = {
    "vocab_size": 512,
    "hidden_size": 256,
    "intermediate_size": 512,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 4096,
    "head_dim": 64,
    "eos_token_id": None,
}
KINDS = ["LlamaConfig", "Qwen2Config", "Qwen3Config", "MistralConfig"]
BLOCK = 256
BLOCK_BYTES = 3 * 2 * 2 * 64 * 2 * BLOCK
"""Layers, keys and values, KV heads, head size, bytes of bfloat16, tokens."""
HEAD_SCALE = 10
"""Random heads give logits of 0.3 that nearly tie everywhere; scaled they spread over 3, like a trained model's."""
TOLERANCE = 0.3
"""Of log-probabilities: a tenth of that spread. Two orders of the same bfloat16 sums differ by about a hundredth."""
GREEDY = SamplingParams(temperature=0.0, max_tokens=24, ignore_eos=True, logprobs=5)
Reply = list[tuple[int, TokenLogprobs]]


def build(kind: str, dtype: torch.dtype, attention: str) -> PreTrainedModel:
    """A model of bfloat16 weights, computed in `dtype`; the same weights at every call."""
    torch.manual_seed(0)
    settings = TINY | ({"sliding_window": None} if kind == "MistralConfig" else {})
    config = getattr(transformers, kind)(**settings)
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32, attn_implementation=attention)  # type: ignore[no-untyped-call]
    assert isinstance(model, PreTrainedModel)
    model.get_output_embeddings().weight.data.mul_(HEAD_SCALE)  # type: ignore[no-untyped-call]
    model.train(False)
    torch.nn.Module.to(model, device="cuda", dtype=torch.bfloat16)
    torch.nn.Module.to(model, dtype=dtype)
    return model


def make_engine(kind: str, **settings: object) -> Engine:
    """An engine of a tiny model that took the fast path."""
    return make_loaded(kind, **settings).engine


def make_loaded(kind: str, **settings: object) -> Loaded:
    """The same with the bytes of its blocks."""
    routing.register()
    words = {f"w{number}": number for number in range(512)}
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.WordLevel(words, unk_token="w0")))  # type: ignore[no-untyped-call]
    model = build(kind, torch.bfloat16, routing.ATTENTION_NAME)
    config = EngineConfig(**({"kv_cache_memory_bytes": 64 << 20} | settings))  # type: ignore[arg-type]
    loaded = load.build_engine(model, tokenizer, config, name=kind)
    assert isinstance(loaded.engine._runner, FastRunner)
    return loaded


def prompt(length: int, seed: int = 0) -> list[int]:
    return torch.randint(3, 512, (length,), generator=torch.Generator().manual_seed(seed)).tolist()


def drain(engine: Engine) -> list[Event]:
    """Step until nothing is left to do."""
    events: list[Event] = []
    while engine.has_work:
        events += engine.step()
    engine.check_integrity()
    return events


def reply_of(name: str, events: list[Event]) -> Reply:
    """The ids of one request with their log-probabilities."""
    deltas = [e for e in events if isinstance(e, Delta) and e.request_id == name and e.token_ids]
    return [pair for delta in deltas for pair in zip(delta.token_ids, delta.logprobs, strict=True)]


def run(engine: Engine, **requests: list[int]) -> dict[str, Reply]:
    """Greedy replies of 24 tokens to all of them at once."""
    for name, ids in requests.items():
        engine.add(name, ids, GREEDY)
    events = drain(engine)
    return {name: reply_of(name, events) for name in requests}


def assert_same(ours: Reply, theirs: Reply) -> None:
    """Equal ids and close log-probabilities, up to a first tie: there our id is nearly as likely in their run, too.

    What comes after a tie are replies to different words, so it is not compared.
    """
    assert len(ours) == len(theirs)
    for (our_id, our), (their_id, their) in zip(ours, theirs, strict=True):
        our_top, their_top = dict(our.top), dict(their.top)
        for token in our_top.keys() & their_top.keys():
            assert our_top[token] == pytest.approx(their_top[token], abs=TOLERANCE)
        if our_id != their_id:
            assert their_top[their_id] - their_top.get(our_id, -math.inf) < TOLERANCE
            return
