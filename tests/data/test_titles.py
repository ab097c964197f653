"""Laws of titles: one line that says what the chat is about, never empty, never half a character."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from octavo_data.titles import MAX_CHARS, MAX_MODEL_CHARS, first_words, from_model

FAMILY = "👨‍👩‍👧‍👦"


@pytest.mark.parametrize(
    ("prompt", "title"),
    [
        ("What is it?", "What is it?"),
        ("  two\n\nlines\t", "two lines"),
        ("", "Untitled"),
        (" \n\t\x00", "Untitled"),
        ("Tell me about the blocks of a paged KV cache, please", "Tell me about the blocks of a paged KV…"),
        ("x" * 100, "x" * 39 + "…"),
        ("Please review this function:\n\ndef f(x):\n    return x", "Please review this function:"),
        ("Fix:\n```python\ndef f(x):\n```\nIt fails for None.", "Fix: It fails for None."),
        ("```python\nimport os\n\nprint(os.name)\n```", "import os print(os.name)"),
        ("diff --git a/x.py b/x.py\n--- a/x.py\n+++ b/x.py\n\nWrite a commit message.", "Write a commit message."),
        ("def f(x): return x + 1\n\nWhy is this slow?", "Why is this slow?"),
        ("{\"a\": 1}\n\nこれは何ですか", "これは何ですか"),
        ("Please look at this:\n\nERROR [12:00] no such file", "Please look at this:"),
        ("def f(x):\n    return x\n\nprint(f(1))", "def f(x): return x"),
        ("def f(x):\n    return x", "def f(x): return x"),
        ("# The plan\n\n- buy milk\n- sleep", "The plan buy milk"),
        ("1. First point of the list\n2. Second", "First point of the list"),
        ("今日は最長の川について話してください。" * 4, ("今日は最長の川について話してください。" * 4)[:39] + "…"),
        ("a" * 37 + FAMILY, "a" * 37 + "…"),
        ("a" * 38 + "e\u0301\u0301", "a" * 38 + "…"),
        ("a" * 37 + "👍🏽!", "a" * 37 + "👍🏽!"),
        ("a" * 38 + "👍🏽!", "a" * 38 + "…"),
        ("a" * 36 + "🇩🇪🇫🇷🇮🇹", "a" * 36 + "🇩🇪…"),
        ("word " * 100_000, "word word word word word word word word…"),
        ("\x1b[2Jclear\u202e", "[2Jclear\u202e"),
    ],
)  # fmt: skip
def test_a_title_is_the_first_words(prompt: str, title: str) -> None:
    assert first_words(prompt) == title


@given(st.text(max_size=200))
def test_a_title_is_one_short_line_and_never_empty(prompt: str) -> None:
    title = first_words(prompt)
    assert 0 < len(title) <= MAX_CHARS
    assert title == " ".join(title.split())
    assert not any(unicodedata.category(char) == "Cc" for char in title)


@pytest.mark.parametrize(
    ("reply", "title"),
    [
        ("The longest rivers", "The longest rivers"),
        ('"The longest rivers."', "The longest rivers"),
        ("Title: **Rivers of Asia**\n\nIt is fitting because …", "Rivers of Asia"),
        ("\n\n## Rivers\n", "Rivers"),
        ("「最長の川」", "最長の川"),
        ("", ""),
        ("...", ""),
        ("word " * 40, "word " * 11 + "word…"),
    ],
)
def test_a_models_title_is_cleaned(reply: str, title: str) -> None:
    assert from_model(reply) == title
    assert len(title) <= MAX_MODEL_CHARS
