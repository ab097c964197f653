"""The fixed workloads and model shapes that every engine is measured on; a name gives the same ids everywhere."""

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Ids = Callable[[int], list[int]]


@dataclass(frozen=True, slots=True)
class Request:
    """A prompt and the length of its reply; end-of-sequence is ignored and sampling is greedy."""

    prompt: list[int]
    num_output: int


@dataclass(frozen=True, slots=True)
class Chats:
    """Chats under one system prompt, asked together, turn after turn.

    The prompt of turn k is the system prompt, then every earlier fragment with the engine's own reply to it, then
    fragment k of `fragments[chat]`; a turn starts when all chats have ended the one before.
    """

    system: list[int]
    fragments: list[list[list[int]]]
    num_output: int


def _ids(rng: random.Random) -> Ids:
    return lambda count: [rng.randint(100, 30_000) for _ in range(count)]


def _shared100(ids: Ids) -> list[Request]:
    prefix = ids(1024)
    return [Request(prefix + ids(64), 64) for _ in range(100)]


def _mixed256(ids: Ids, rng: random.Random) -> list[Request]:
    return [Request(ids(rng.randint(100, 1024)), rng.randint(100, 1024)) for _ in range(256)]


WORKLOADS: dict[str, Callable[[Ids, random.Random], list[Request]]] = {
    "single": lambda ids, _: [Request(ids(128), 256)],  # one person, one chat: decode latency
    "eight": lambda ids, _: [Request(ids(128), 256) for _ in range(8)],  # eight chats at once
    "long1": lambda ids, _: [Request(ids(8192), 128)],  # a long paste
    "shared100": lambda ids, _: _shared100(ids),  # 100 requests, one 1,024-token system prompt
    "mixed256": _mixed256,  # nano-vllm's own benchmark: input and output U(100, 1024)
}


def workload(name: str) -> list[Request]:
    """One of WORKLOADS."""
    rng = random.Random(0)
    return WORKLOADS[name](_ids(rng), rng)


def chats(num_chats: int = 8, num_turns: int = 4) -> Chats:
    """The product's own case: in a later turn only 64 new tokens a chat need computing."""
    ids = _ids(random.Random(1))
    return Chats(ids(1024), [[ids(64) for _ in range(num_turns)] for _ in range(num_chats)], 128)


SHAPES: dict[str, tuple[str, dict[str, Any]]] = {
    "qwen3-0.6b": (
        "Qwen3Config",
        {
            "vocab_size": 151936,
            "hidden_size": 1024,
            "intermediate_size": 3072,
            "num_hidden_layers": 28,
            "num_attention_heads": 16,
            "num_key_value_heads": 8,
            "head_dim": 128,
            "max_position_embeddings": 40960,
            "tie_word_embeddings": True,
        },
    ),
    "llama-1b": (
        "LlamaConfig",
        {
            "vocab_size": 128256,
            "hidden_size": 2048,
            "intermediate_size": 8192,
            "num_hidden_layers": 16,
            "num_attention_heads": 32,
            "num_key_value_heads": 8,
            "head_dim": 64,
            "max_position_embeddings": 16384,
            "tie_word_embeddings": True,
        },
    ),
    "llama-7b": (
        "LlamaConfig",
        {
            "vocab_size": 32000,
            "hidden_size": 4096,
            "intermediate_size": 11008,
            "num_hidden_layers": 32,
            "num_attention_heads": 32,
            "num_key_value_heads": 32,
            "head_dim": 128,
            "max_position_embeddings": 4096,
            "tie_word_embeddings": False,
        },
    ),
}
"""Shapes of known models as transformers config class and arguments; weights are random, so only speed is measured."""
