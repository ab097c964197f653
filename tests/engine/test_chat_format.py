"""Prompts grow by exact ids; where a template stands in the way, that is said."""

from pathlib import Path
from typing import Any

import pytest
from transformers import AutoTokenizer, PreTrainedTokenizerBase

from octavo_engine.errors import ChatFormatError
from octavo_engine.messages import Message
from octavo_engine.runner.chat_format import NO_SYSTEM, NO_TEMPLATE, TransformersFormat

pytestmark = pytest.mark.model
USER = Message("user", "Count to three.")
MORE = Message("user", "And backwards?")
CHATML = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ CONTENT }}<|im_end|>\n{% endfor %}<|im_start|>assistant\n"
STRIPS_THINKING = CHATML.replace("CONTENT", "m.content.split('</think>')[-1]")
REFUSES_SYSTEM = (
    "{% if messages[0].role == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}"
    + CHATML.replace("CONTENT", "m.content")
)
ALTERNATES = (
    "{% for m in messages %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('Roles must alternate') }}{% endif %}{% endfor %}" + CHATML.replace("CONTENT", "m.content")
)


@pytest.fixture(scope="module")
def folder(model_folder: Path) -> Path:
    return model_folder


def tokenizer(folder: Path, template: str | None = "own") -> Any:
    made = AutoTokenizer.from_pretrained(folder)
    assert isinstance(made, PreTrainedTokenizerBase)
    if template != "own":
        made.chat_template = template
    return made


def test_the_next_prompt_is_the_known_ids_and_the_new_fragment(folder: Path) -> None:
    made = tokenizer(folder)
    chat_format = TransformersFormat(made)
    first = chat_format.prompt([USER])
    # " t" + "wo" is not how the tokenizer would write " two": the ids are the truth, not the text
    reply = [*made.encode("One,"), *made.encode(" t"), *made.encode("wo"), made.eos_token_id]
    known = [*first.token_ids, *reply]
    text = chat_format.decode(reply)
    second = chat_format.prompt([USER, Message("assistant", text), MORE], known)
    assert second.token_ids[: len(known)] == tuple(known)
    assert (second.kept_tokens, second.note) == (len(known), "")
    assert made.decode(second.token_ids) == made.apply_chat_template(
        [
            {"role": "user", "content": USER.text},
            {"role": "assistant", "content": text},
            {"role": "user", "content": MORE.text},
        ],
        add_generation_prompt=True,
        tokenize=False,
    )


def test_a_reply_cut_in_the_middle_is_closed_before_the_next_message(folder: Path) -> None:
    made = tokenizer(folder)
    chat_format = TransformersFormat(made)
    first = chat_format.prompt([USER])
    known = [*first.token_ids, *made.encode("One, two")]
    second = chat_format.prompt([USER, Message("assistant", "One, two"), MORE], known)
    assert second.kept_tokens == len(known)
    assert made.decode(second.token_ids[len(known) :]).startswith("<|im_end|>\n<|im_start|>user\n")


def test_a_template_that_rewrites_history_is_reported_with_the_token(folder: Path) -> None:
    made = tokenizer(folder, STRIPS_THINKING)
    chat_format = TransformersFormat(made)
    first = chat_format.prompt([USER])
    reply = made.encode("<think>hm</think>One")
    known = [*first.token_ids, *reply]
    second = chat_format.prompt([USER, Message("assistant", "<think>hm</think>One"), MORE], known)
    assert second.kept_tokens == len(first.token_ids)
    assert second.note == f"the chat template rewrote the history at token {second.kept_tokens} of {len(known)}"
    assert "think" not in made.decode(second.token_ids)


def test_a_refused_system_message_goes_before_the_first_user_message(folder: Path) -> None:
    made = tokenizer(folder, REFUSES_SYSTEM)
    prompt = TransformersFormat(made).prompt([Message("system", "Be brief."), USER])
    assert prompt.note == NO_SYSTEM
    assert "user\nBe brief.\n\nCount to three.<|im_end|>" in made.decode(prompt.token_ids)


def test_two_user_messages_in_a_row_are_an_error_with_the_templates_own_reason(folder: Path) -> None:
    with pytest.raises(ChatFormatError, match="Roles must alternate"):
        TransformersFormat(tokenizer(folder, ALTERNATES)).prompt([USER, MORE])


def test_without_a_template_plain_lines_are_used_and_said(folder: Path) -> None:
    made = tokenizer(folder, None)
    chat_format = TransformersFormat(made)
    first = chat_format.prompt([USER])
    assert first.note == NO_TEMPLATE
    assert made.decode(first.token_ids) == "User: Count to three.\n\nAssistant:"
    known = [*first.token_ids, *made.encode(" One")]
    assert chat_format.prompt([USER, Message("assistant", " One"), MORE], known).kept_tokens == len(known)


def test_markup_of_the_template_in_a_message_is_kept_as_it_is(folder: Path) -> None:
    chat_format = TransformersFormat(tokenizer(folder))
    text = "{{ 1 + 1 }} {% raw %} </s> [INST] \u202e 日本 🙂"
    assert text in tokenizer(folder).decode(chat_format.prompt([Message("user", text)]).token_ids)
