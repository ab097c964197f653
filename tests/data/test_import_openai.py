"""Laws of the import of OpenAI JSONL."""

import json
from pathlib import Path

import pytest
from tests.data.exchange_stage import MODEL, chat_of, refusal, skipped, taken_of, texts

from octavo_data import Store
from octavo_data.exchange.exporting import EXPORTERS
from octavo_data.exchange.importing import read_file
from octavo_data.exchange.trees import Added, add_chats


def said(role: str, content: object, **more: object) -> dict[str, object]:
    return {"role": role, "content": content, **more}


def test_jsonl_becomes_a_chat_a_line(file: Path) -> None:
    picture = [{"type": "text", "text": "What is this?"}, {"type": "image_url", "image_url": {"url": "x"}}]
    first = [
        said("system", "Be brief."), said("user", picture), said("assistant", None, tool_calls=[{"id": "1"}]),
        said("tool", "42"), said("assistant", "A river."), said("system", "Now."), said("user", "Sure?"),
    ]  # fmt: skip
    second = [said("assistant", "Good day!"), said("user", "Hello"), said("assistant", "Hi")]
    lines = [json.dumps({"messages": messages}) for messages in (first, second, [])]
    taken = taken_of(file, "\ufeff" + "\r\n".join(lines) + "\n\n")
    assert [texts(entry) for entry in taken.chats] == [
        [("What is this?", "A river."), ("Sure?", "")], [("", "Good day!"), ("Hello", "Hi")]
    ]  # fmt: skip
    assert [(entry.title, entry.system) for entry in taken.chats] == [("What is this?", "Be brief."), ("Untitled", "")]
    assert skipped(taken) == {
        "image": 1, "tool call": 1, "tool message": 1, "empty message": 1, "later system message": 1, "empty chat": 1
    }  # fmt: skip


def test_our_own_jsonl_comes_back(file: Path) -> None:
    entry = chat_of(("one\u2028\n", "1"), ("two", ""), ("three", "3\0"), system="s")
    taken = taken_of(file, "".join(EXPORTERS["jsonl"]([entry])))
    assert texts(taken.chats[0]) == texts(entry)
    assert (taken.chats[0].system, taken.chats[0].model) == ("s", MODEL)


def test_the_same_file_is_known_the_second_time_and_equal_lines_are_two_chats(file: Path, store: Store) -> None:
    line = json.dumps({"messages": [said("user", "Hello"), said("assistant", "\ud800")]})
    content = f"{line}\n{line}\n"
    assert add_chats(store, taken_of(file, content).chats) == Added(num_chats=2, num_turns=2)
    assert add_chats(store, read_file(file, MODEL).chats) == Added(num_known=2)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ('{"messages": [', "line 3: not JSON"),
        ('["messages"]', 'line 3: no object with a list of "messages"'),
        ('{"messages": {}}', 'line 3: no object with a list of "messages"'),
        ('{"messages": ["x"]}', "line 3, /messages/0: not an object"),
        ('{"messages": [{"role": "king", "content": ""}]}', "line 3, /messages/0/role: unknown role 'king'"),
        ('{"messages": [{"role": "user", "content": 1}]}', "line 3, /messages/0/content: neither text nor a list"),
        ('{"messages": [{"role": "user", "content": [1]}]}', "line 3, /messages/0/content/0: not an object"),
        ("[" * 100_000, "line 3: not JSON"),
    ],
)
def test_a_bad_line_is_named(file: Path, line: str, reason: str) -> None:
    assert refusal(file, '{"messages": [{"role": "user", "content": "x"}]}\n\n' + line).startswith(reason)
