"""What a chat template eats, and what it gives: messages in, the exact token ids of a prompt out."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

Role = Literal["system", "user", "assistant"]


@dataclass(frozen=True, slots=True)
class Message:
    """One entry of a conversation."""

    role: Role
    text: str


@dataclass(frozen=True, slots=True)
class Prompt:
    """The token ids that go into the engine; the first `kept_tokens` of them are ids the conversation already had.

    `note` is empty, or says in one sentence what the person should know about this prompt.
    """

    token_ids: tuple[int, ...]
    kept_tokens: int
    note: str = ""


class ChatFormat(Protocol):
    """Turns messages into prompts for one model."""

    def prompt(self, messages: Sequence[Message], known_ids: Sequence[int] = ()) -> Prompt:
        """Render `messages` (the last one is the user's) and ask for a reply.

        `known_ids` are the exact ids of the conversation up to and with the last reply; they are kept and only the
        new fragment is tokenised, unless the chat template rewrote what came before.
        """
        ...

    def encode(self, text: str) -> list[int]:
        """The ids of a plain prompt, with the special tokens that the tokenizer puts before a text."""
        ...

    def decode(self, token_ids: Sequence[int]) -> str:
        """The visible text of `token_ids`; special tokens have none."""
        ...
