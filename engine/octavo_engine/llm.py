"""The plain call: an engine in the caller's own process, for scripts and tests."""

from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

from octavo_engine.config import EngineConfig
from octavo_engine.engine import reply_ids
from octavo_engine.errors import EngineError, ModelError
from octavo_engine.events import Delta, Event, Finished, StopReason, Timings, TokenLogprobs, Usage
from octavo_engine.loaded import Loaded
from octavo_engine.messages import Message
from octavo_engine.params import SamplingParams

TextOrIds = str | Sequence[int]


@dataclass(slots=True)
class Completion:
    """One reply: its text, its exact ids, why it ended, and its counts and times."""

    text: str = ""
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[TokenLogprobs] = field(default_factory=list)
    stop_reason: StopReason | None = None
    usage: Usage | None = None
    timings: Timings | None = None


@dataclass(slots=True)
class RequestOutput:
    """A prompt and its replies, `SamplingParams.n` of them."""

    prompt_token_ids: list[int]
    outputs: list[Completion]


class LLM:
    """Runs a model folder here and now, without host or store.

    `settings` are the fields of EngineConfig. Raises ModelError for a folder that cannot run.

        llm = LLM("path/to/model")
        for output in llm.generate(["One", "Two"], SamplingParams(temperature=0.8, top_p=0.95)):
            print(output.outputs[0].text)
    """

    def __init__(self, model: str | Path, **settings: Any) -> None:
        from octavo_engine.runner.load import load_engine  # torch, only when somebody asks for a model

        folder = Path(model).expanduser()
        if not folder.is_dir():
            raise ModelError(f"{model} is not a folder; 'octavo models path NAME' prints the folder of a pulled model")
        self._loaded: Loaded = load_engine(folder, EngineConfig(**settings))
        self._numbers = count()

    def generate(
        self, prompts: TextOrIds | Sequence[TextOrIds], params: SamplingParams | None = None
    ) -> list[RequestOutput]:
        """Complete one prompt or many, texts or token ids, all in one batch; results in the order of the prompts.

        Raises RequestRefusedError for a prompt that can never fit, before anything runs.
        """
        return self._complete([self._encode(prompt) for prompt in as_list(prompts)], params or SamplingParams())

    def chat(self, messages: Sequence[Message], params: SamplingParams | None = None) -> RequestOutput:
        """Reply to messages through the model's chat template."""
        prompt = self._loaded.chat_format.prompt(messages)
        return self._complete([list(prompt.token_ids)], params or SamplingParams())[0]

    def stream(self, prompt: TextOrIds, params: SamplingParams | None = None) -> Generator[str, None, None]:
        """Complete one prompt, piece by piece; leaving the loop early aborts the request."""
        request_id = self._add(self._encode(prompt), params or SamplingParams())
        try:
            for event in self._events():
                if isinstance(event, Delta) and event.text:
                    yield event.text
        finally:
            self._loaded.engine.abort(request_id)
            self._drain()

    def _complete(self, prompts: list[list[int]], params: SamplingParams) -> list[RequestOutput]:
        for ids in prompts:
            self._loaded.engine.check(ids, params)
        results: dict[str, Completion] = {}
        outputs = []
        for ids in prompts:
            replies = {reply_id: Completion() for reply_id in reply_ids(self._add(ids, params), params.n)}
            results |= replies
            outputs.append(RequestOutput(ids, list(replies.values())))
        for event in self._events():
            record(event, results)
        return outputs

    def _add(self, ids: list[int], params: SamplingParams) -> str:
        request_id = str(next(self._numbers))
        self._loaded.engine.add(request_id, ids, params)
        return request_id

    def _events(self) -> Iterator[Event]:
        while self._loaded.engine.has_work:
            yield from self._loaded.engine.step()

    def _drain(self) -> None:
        for _ in self._events():
            pass

    def _encode(self, prompt: TextOrIds) -> list[int]:
        return self._loaded.chat_format.encode(prompt) if isinstance(prompt, str) else list(prompt)


def as_list(prompts: TextOrIds | Sequence[TextOrIds]) -> list[TextOrIds]:
    """One prompt or many as a list of prompts; a list of ints is one prompt."""
    if isinstance(prompts, str):
        return [prompts]
    items: list[Any] = list(prompts)
    return [items] if items and isinstance(items[0], int) else items


def record(event: Event, results: dict[str, Completion]) -> None:
    """Write an event into the reply that it belongs to. Raises EngineError when a step failed."""
    if isinstance(event, Delta):
        reply = results[event.request_id]
        reply.text += event.text
        reply.token_ids += event.token_ids
        reply.logprobs += event.logprobs
    elif isinstance(event, Finished):
        if event.stop_reason is StopReason.FAILED:
            raise EngineError(f"the engine failed: {event.error}")
        reply = results[event.request_id]
        reply.stop_reason, reply.usage, reply.timings = event.stop_reason, event.usage, event.timings
