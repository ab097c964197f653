"""A demo engine without a model: the real planning over a runner that answers with the prompt's own words."""

import time
from collections.abc import Callable
from collections.abc import Sequence as SequenceOf
from functools import partial

from octavo_engine.batch import Batch, PendingStep, StepOutput
from octavo_engine.block_manager import BlockManager
from octavo_engine.config import DEFAULT_BLOCK_SIZE, EngineConfig
from octavo_engine.engine import Engine
from octavo_engine.errors import ParameterError
from octavo_engine.loaded import Loaded, ModelInfo
from octavo_engine.messages import Message, Prompt
from octavo_engine.params import SamplingParams
from octavo_engine.scheduler import Scheduler
from octavo_engine.sequence import Sequence

END_ID = 256
USER_ID = 257
ASSISTANT_ID = 258
SYSTEM_ID = 259
ROLE_IDS = {"system": SYSTEM_ID, "user": USER_ID, "assistant": ASSISTANT_ID}


class EchoFormat:
    """UTF-8 bytes as tokens, one role token before each message and one end token after it."""

    def prompt(self, messages: SequenceOf[Message], known_ids: SequenceOf[int] = ()) -> Prompt:
        ids = [i for message in messages for i in self._render(message)] + [ASSISTANT_ID]
        kept = 0
        while kept < min(len(known_ids), len(ids)) and known_ids[kept] == ids[kept]:
            kept += 1
        return Prompt(tuple(ids), kept)

    def encode(self, text: str) -> list[int]:
        return [USER_ID, *text.encode()]

    def decode(self, token_ids: SequenceOf[int]) -> str:
        return bytes(i for i in token_ids if i < END_ID).decode("utf-8", errors="replace")

    def _render(self, message: Message) -> list[int]:
        return [ROLE_IDS[message.role], *message.text.encode(), END_ID]


class EchoRunner:
    """Answers each sequence with the bytes of its last user message; `step_ms` simulates the time of a step."""

    def __init__(self, step_ms: float = 0.0, sleep: Callable[[float], None] = time.sleep) -> None:
        self.step_ms = step_ms
        self._sleep = sleep

    def check(self, params: SamplingParams) -> None:
        if params.json_schema is not None:
            raise ParameterError("json_schema is set; the echo engine has no vocabulary to constrain")

    def launch(self, batch: Batch) -> PendingStep:
        """See ModelRunner."""
        return PendingStep(partial(self._compute, batch))

    def _compute(self, batch: Batch) -> StepOutput:
        if self.step_ms:
            self._sleep(self.step_ms / 1e3)
        sampling = (s for s, samples in zip(batch.sequences, batch.samples, strict=True) if samples)
        return StepOutput([self._next_id(sequence) for sequence in sampling])

    def _next_id(self, sequence: Sequence) -> int:
        prompt = sequence.token_ids[: sequence.num_prompt]
        start = len(prompt) - 1 - prompt[::-1].index(USER_ID) if USER_ID in prompt else -1
        echoed = [*prompt[start + 1 : -1], END_ID]
        return echoed[min(sequence.num_replied, len(echoed) - 1)]


def load_echo(config: EngineConfig | None = None, *, num_blocks: int = 4096, step_ms: float = 0.0) -> Loaded:
    """A ready engine of about 64,000 token slots that needs no torch and starts at once."""
    config = config or EngineConfig()
    block_size = config.block_size or DEFAULT_BLOCK_SIZE
    max_model_len = config.max_model_len or 16_384
    manager = BlockManager(
        num_blocks,
        block_size,
        fingerprint="echo",
        enable_prefix_caching=config.enable_prefix_caching,
        max_pinned_share=config.max_pinned_share,
    )
    echo_format = EchoFormat()
    scheduler = Scheduler(manager, config, max_model_len)
    engine = Engine(scheduler, EchoRunner(step_ms), echo_format.decode, [END_ID])
    info = ModelInfo("none", "none", "bytes", block_size, max_model_len, 0, 0, scheduler.num_decode_steps)
    return Loaded(engine, echo_format, info)
