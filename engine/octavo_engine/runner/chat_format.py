"""Prompts in exact token ids from a transformers tokenizer and its chat template."""

from collections.abc import Sequence
from dataclasses import replace

from jinja2 import TemplateError
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

from octavo_engine.errors import ChatFormatError
from octavo_engine.messages import Message, Prompt
from octavo_engine.prefix_index import common_prefix

PLAIN_TEMPLATE = (
    "{% for message in messages %}{{ message['role'].capitalize() + ':' }}"
    "{{ '' if message['content'][:1] in ' \n' else ' ' }}{{ message['content'] + '\n\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ 'Assistant:' }}{% endif %}"
)
"""A reply to "Assistant:" brings its own leading space, which must not be doubled when it is history."""

NO_TEMPLATE = "the model has no chat template; plain 'User:' and 'Assistant:' lines are used"
NO_SYSTEM = "the model's chat template takes no system message; it was put before the first user message"


class TransformersFormat:
    """The ids that a conversation already has are never decoded and encoded again; see `prompt`."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        self._tokenizer = tokenizer
        self._note = "" if tokenizer.chat_template else NO_TEMPLATE

    def prompt(self, messages: Sequence[Message], known_ids: Sequence[int] = ()) -> Prompt:
        """See ChatFormat. Raises ChatFormatError when the template refuses the messages, with its own reason."""
        text, note = self._render(messages)
        prompt = self._append(text, known_ids) or self._anew(text, known_ids)
        return replace(prompt, note=" ".join(filter(None, (self._note, note, prompt.note))))

    def encode(self, text: str) -> list[int]:
        """See ChatFormat."""
        ids: list[int] = self._tokenizer.encode(text)
        return ids

    def decode(self, token_ids: Sequence[int]) -> str:
        """The visible text: special tokens are skipped, nothing is cleaned up."""
        return self._decode(token_ids, skip_special_tokens=True)

    def _append(self, text: str, known_ids: Sequence[int]) -> Prompt | None:
        """Known ids plus the tokenised rest, if the rendered text goes on from exactly the known text."""
        known_text = self._decode(known_ids, skip_special_tokens=False)
        if not known_ids or not text.startswith(known_text):
            return None
        ids = (*known_ids, *self._encode_rendered(text[len(known_text) :]))
        return Prompt(ids, len(known_ids)) if self._decode(ids, skip_special_tokens=False) == text else None

    def _anew(self, text: str, known_ids: Sequence[int]) -> Prompt:
        ids = self._encode_rendered(text)
        kept = common_prefix(ids, list(known_ids))
        note = f"the chat template rewrote the history at token {kept} of {len(known_ids)}" if known_ids else ""
        return Prompt(tuple(ids), kept, note)

    def _render(self, messages: Sequence[Message]) -> tuple[str, str]:
        try:
            return self._apply(messages), ""
        except TemplateError as error:
            if messages[0].role != "system":
                raise ChatFormatError(f"the model's chat template refuses these messages: {error}") from error
        return self._render(fold_system(messages))[0], NO_SYSTEM

    def _apply(self, messages: Sequence[Message]) -> str:
        entries = [{"role": message.role, "content": message.text} for message in messages]
        template = None if self._tokenizer.chat_template else PLAIN_TEMPLATE
        text = self._tokenizer.apply_chat_template(
            entries, chat_template=template, add_generation_prompt=True, tokenize=False
        )
        assert isinstance(text, str)
        return text

    def _encode_rendered(self, text: str) -> list[int]:
        """A chat template writes its own special tokens."""
        ids: list[int] = self._tokenizer.encode(text, add_special_tokens=False)
        return ids

    def _decode(self, token_ids: Sequence[int], *, skip_special_tokens: bool) -> str:
        ids = list(token_ids)
        if isinstance(self._tokenizer, PreTrainedTokenizerFast):  # called for every token, and its wrapper is slow
            decoded: str = self._tokenizer.backend_tokenizer.decode(ids, skip_special_tokens=skip_special_tokens)
            return decoded
        text = self._tokenizer.decode(ids, skip_special_tokens=skip_special_tokens, clean_up_tokenization_spaces=False)
        assert isinstance(text, str)
        return text


def fold_system(messages: Sequence[Message]) -> list[Message]:
    """The same messages with the system text put before the first user message."""
    system, first, *rest = messages
    return [Message("user", f"{system.text}\n\n{first.text}"), *rest]
