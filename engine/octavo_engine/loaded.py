"""What loading a model tells on its way, and what it gives: a ready engine and the format of its prompts."""

from collections.abc import Callable
from dataclasses import dataclass

from octavo_engine.disk_tier import BlockMemory
from octavo_engine.engine import Engine
from octavo_engine.messages import ChatFormat


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """What a loaded engine runs, for status lines, `engine status` and benchmarks.

    `kv_bytes_per_token` counts all layers. `weight_bytes` are those that every step reads. After `num_decode_steps`
    tokens of a reply, or half as many with many replies, the host looks at them.
    """

    device: str
    attention: str
    dtype: str
    block_size: int
    max_model_len: int
    kv_bytes_per_token: int
    weight_bytes: int
    num_decode_steps: int


@dataclass(frozen=True, slots=True)
class LoadStep:
    """What loading does now, and how much of it is done in percent where that is known (of the weights' tensors)."""

    label: str
    percent: int | None = None


OnLoadStep = Callable[[LoadStep], None]


def ignore_step(_step: LoadStep) -> None:
    """For those who do not want to know."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """An engine that is ready, the format of its prompts, what it runs, and the bytes of its blocks if it has any."""

    engine: Engine
    chat_format: ChatFormat
    info: ModelInfo
    memory: BlockMemory | None = None
