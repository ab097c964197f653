"""The settings of one engine, read once; the names are those that vLLM's users know."""

from dataclasses import dataclass

from octavo_engine.errors import ParameterError

COUNTS = (
    "block_size",
    "max_num_seqs",
    "max_num_batched_tokens",
    "max_model_len",
    "kv_cache_memory_bytes",
    "num_decode_steps",
)
DEFAULT_BLOCK_SIZE = 16
DEFAULT_BATCHED_TOKENS = 2048
MAX_DECODE_STEPS, MAX_ROWS_OF_STEPS = 64, 256
"""Ids of a row, and rows, in one launch of several decode steps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineConfig:
    """Sizes and switches of an engine. Raises ParameterError for a value out of range.

    block_size: token slots of one KV block, None for the attention backend's own (16; 256 with flash-attn).
    max_num_seqs: sequences that run at once; more wait.
    max_num_batched_tokens: the token budget of one step, decoding rows included, None for what fits the device (8,192
        on a GPU; 256 on the CPU, where more would make other chats wait for seconds).
    max_model_len: context in tokens, None for the model's own.
    dtype: "auto", "float32", "bfloat16" or "float16"; auto is float32 on the CPU, bfloat16 on a GPU that has it, else
        float16.
    kv_cache_memory_bytes: memory of the KV pool, one full context at least; None to derive it from what is free.
    gpu_memory_utilization: share of the device's memory that weights and pool may take together.
    max_pinned_share: share of the pool's blocks that pinned prefixes may hold.
    num_decode_steps: tokens that every decoding sequence computes before the host looks again; a sequence that ends
        earlier drops the rest. None lets the runner choose (1; more where launching costs as much as computing).
    """

    block_size: int | None = None
    max_num_seqs: int = 256
    max_num_batched_tokens: int | None = None
    max_model_len: int | None = None
    dtype: str = "auto"
    attention: str = "auto"
    enable_prefix_caching: bool = True
    kv_cache_memory_bytes: int | None = None
    gpu_memory_utilization: float = 0.9
    max_pinned_share: float = 0.25
    num_decode_steps: int | None = None

    def __post_init__(self) -> None:
        for name in COUNTS:
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ParameterError(f"{name} is {value}; it must be 1 or more")
        if self.num_decode_steps is not None and self.num_decode_steps > MAX_DECODE_STEPS:
            raise ParameterError(f"num_decode_steps is {self.num_decode_steps}; it must be 1 to {MAX_DECODE_STEPS}")
        if self.max_num_batched_tokens is not None and self.max_num_batched_tokens < self.max_num_seqs:
            raise ParameterError(
                f"max_num_batched_tokens is {self.max_num_batched_tokens}; it must be at least max_num_seqs, "
                f"{self.max_num_seqs}: every running sequence needs one token a step"
            )
        if not 0.0 < self.gpu_memory_utilization <= 1.0:
            raise ParameterError(
                f"gpu_memory_utilization is {self.gpu_memory_utilization}; it must be above 0, up to 1"
            )
        if not 0.0 <= self.max_pinned_share <= 1.0:
            raise ParameterError(f"max_pinned_share is {self.max_pinned_share}; it must be 0 to 1")
        _require_one_of("dtype", self.dtype, ("auto", "float32", "bfloat16", "float16"))
        _require_one_of("attention", self.attention, ("auto", "flash", "sdpa"))


def _require_one_of(name: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise ParameterError(f"{name} is {value!r}; it must be one of {', '.join(allowed)}")
