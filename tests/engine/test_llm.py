"""The plain call on the real default model: text, ids, counts, stops, schemas, and what is refused."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from octavo_engine import LLM, SamplingParams
from octavo_engine.errors import ModelError, ParameterError, RequestRefusedError
from octavo_engine.events import StopReason
from octavo_engine.messages import Message

pytestmark = [pytest.mark.model, pytest.mark.slow]
GREEDY = SamplingParams(temperature=0.0, max_tokens=8)
FRANCE = [Message("user", "What is the capital of France?")]


@pytest.fixture(scope="module")
def llm(model_folder: Path) -> LLM:
    return LLM(model_folder, kv_cache_memory_bytes=1 << 29)


@pytest.fixture(autouse=True)
def _integrity(llm: LLM) -> Iterator[None]:
    yield
    llm._loaded.engine.check_integrity()


def test_a_chat_is_answered_and_counted(llm: LLM) -> None:
    output = llm.chat(FRANCE, SamplingParams(temperature=0.0))
    reply = output.outputs[0]
    assert "Paris" in reply.text
    assert reply.stop_reason is StopReason.STOP
    assert reply.usage is not None
    assert (reply.usage.prompt_tokens, reply.usage.completion_tokens) == (
        len(output.prompt_token_ids),
        len(reply.token_ids),
    )
    assert reply.timings is not None
    assert 0 < reply.timings.first_token_ms < reply.timings.total_ms


def test_many_prompts_give_what_each_gives_alone(llm: LLM) -> None:
    prompts: list[str | list[int]] = ["The capital of France is", "One, two, three,", [504, 260, 1041]]
    together = [output.outputs[0].token_ids for output in llm.generate(prompts, GREEDY)]
    alone = [llm.generate(prompt, GREEDY)[0].outputs[0].token_ids for prompt in prompts]
    assert together == alone


def test_a_warm_prompt_gives_the_logits_of_a_cold_one(llm: LLM) -> None:
    prompt = "A prompt that nobody else in this file asks, long enough to fill a few blocks and to end inside of one."
    params = SamplingParams(temperature=0.0, max_tokens=1, logprobs=20)
    cold, warm = (llm.generate(prompt, params)[0].outputs[0] for _ in range(2))
    assert cold.usage is not None
    assert warm.usage is not None
    assert (cold.usage.cached_tokens < 16, warm.usage.computed_tokens) == (True, 1)
    seen = [dict(reply.logprobs[0].top) for reply in (cold, warm)]
    shared = seen[0].keys() & seen[1].keys()
    assert len(shared) >= 19  # the last of twenty may tie
    assert all(abs(seen[0][i] - seen[1][i]) < 1e-3 for i in shared)


def test_n_replies_come_from_one_prefill_and_differ(llm: LLM) -> None:
    params = SamplingParams(temperature=1.5, top_p=1.0, n=4, seed=1, max_tokens=8)
    replies = llm.generate("It was a dark and stormy night, and the old man", params)[0].outputs
    assert [reply.usage.computed_tokens for reply in replies if reply.usage][1:] == [1, 1, 1]
    assert len({tuple(reply.token_ids) for reply in replies}) == 4


def test_a_seeded_reply_is_the_same_alone_and_beside_busy_neighbours(llm: LLM) -> None:
    seeded = SamplingParams(temperature=1.0, top_p=0.9, seed=5, max_tokens=12)
    alone = llm.generate("The sea was", seeded)[0].outputs[0].token_ids
    llm._loaded.engine.add("neighbour-1", range(300, 400), SamplingParams(temperature=2.0, top_k=5, max_tokens=30))
    llm._loaded.engine.add("neighbour-2", range(500, 900), SamplingParams(frequency_penalty=1.0, max_tokens=30))
    for _ in range(3):
        llm._loaded.engine.step()
    request_id = llm._add(llm._encode("The sea was"), seeded)
    ids = [i for event in llm._events() if getattr(event, "token_ids", ()) for i in _ids_of(event, request_id)]
    assert ids == alone


def _ids_of(event: object, request_id: str) -> tuple[int, ...]:
    ids: tuple[int, ...] = getattr(event, "token_ids", ())
    return ids if getattr(event, "request_id", "") == request_id else ()


def test_a_stop_string_is_cut_off_and_ends_the_reply(llm: LLM) -> None:
    whole = llm.chat(FRANCE, SamplingParams(temperature=0.0)).outputs[0].text
    cut = llm.chat(FRANCE, SamplingParams(temperature=0.0, stop=(" Par",))).outputs[0]
    assert cut.text == whole[: whole.index(" Par")]
    assert cut.stop_reason is StopReason.STOP


def test_logprobs_name_the_sampled_id_first_when_greedy(llm: LLM) -> None:
    reply = llm.generate("The capital of France is", SamplingParams(temperature=0.0, max_tokens=4, logprobs=3))[
        0
    ].outputs[0]
    assert [entry.top[0][0] for entry in reply.logprobs] == reply.token_ids
    assert all(entry.logprob == entry.top[0][1] < 0 for entry in reply.logprobs)


def test_a_bias_makes_an_id_come_and_min_tokens_holds_the_end_back(llm: LLM) -> None:
    biased = llm.generate("Hello", SamplingParams(temperature=0.0, max_tokens=3, logit_bias={504: 100.0}))[0].outputs[0]
    assert biased.token_ids == [504, 504, 504]
    longer = llm.chat(FRANCE, SamplingParams(temperature=0.0, min_tokens=20, max_tokens=25)).outputs[0]
    assert len(longer.token_ids) >= 20


def test_a_reply_keeps_to_its_json_schema(llm: LLM) -> None:
    schema = {
        "type": "object",
        "properties": {"city": {"type": "string", "maxLength": 12}, "big": {"type": "boolean"}},
        "required": ["city", "big"],
        "additionalProperties": False,
    }
    params = SamplingParams(temperature=1.0, seed=2, max_tokens=120, json_schema=json.dumps(schema), n=2)
    replies = llm.chat([Message("user", "Name a city.")], params).outputs
    for value in (json.loads(reply.text) for reply in replies):
        assert set(value) == {"city", "big"}
        assert isinstance(value["big"], bool)


@pytest.mark.parametrize("schema", ["{not json", '{"type": "nonsense"}'])
def test_a_bad_schema_is_refused_before_anything_runs(llm: LLM, schema: str) -> None:
    with pytest.raises(ParameterError, match="json_schema is "):
        llm.generate("x", SamplingParams(json_schema=schema))
    assert not llm._loaded.engine.has_work


def test_ids_outside_the_vocabulary_are_refused(llm: LLM) -> None:
    with pytest.raises(ParameterError, match="logit_bias names id 49152; the model's ids are 0 to 49151"):
        llm.generate("x", SamplingParams(logit_bias={49152: 1.0}))
    with pytest.raises(RequestRefusedError, match="token 1 of the prompt is id 49152; the model's ids are 0 to 49151"):
        llm.generate([[5], [5, 49152]], GREEDY)
    assert not llm._loaded.engine.has_work


def test_a_prompt_that_cannot_fit_is_refused_with_the_three_numbers_and_runs_nothing(llm: LLM) -> None:
    with pytest.raises(RequestRefusedError, match=r"the prompt has 9000 tokens .* context holds 8192 .* pool \d+"):
        llm.generate([llm._encode("short"), [5] * 9000], GREEDY)
    assert not llm._loaded.engine.has_work


def test_leaving_a_stream_early_aborts_it(llm: LLM) -> None:
    stream = llm.stream("Once upon a time", SamplingParams(temperature=0.0, max_tokens=500))
    next(stream)
    stream.close()
    assert not llm._loaded.engine.has_work


def test_a_missing_folder_is_an_error_that_names_it() -> None:
    with pytest.raises(ModelError, match="/nowhere is not a folder"):
        LLM("/nowhere")
