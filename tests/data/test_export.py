"""Laws of the export: nothing of a text is lost or obeyed, in any format."""

import json
import re
from html.parser import HTMLParser
from pathlib import Path

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from tests.data.exchange_stage import ANY_TEXT, chat_of, chats

from octavo_data import Chat, Store, TurnStatus
from octavo_data.exchange.entries import ChatEntry, path_to_tip
from octavo_data.exchange.exporting import EXPORTERS, num_left_out
from octavo_data.exchange.importing import read_file
from octavo_data.exchange.page import escaped
from octavo_data.exchange.trees import Added, add_chats, read_chats


def exported(kind: str, *entries: ChatEntry) -> str:
    return "".join(EXPORTERS[kind](entries))


def one_of(store: Store, chat_id: str) -> ChatEntry:
    (entry,) = read_chats(store, [chat_id])
    return entry


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("exchange")


@settings(max_examples=60)
@given(st.lists(chats(), max_size=3))
def test_our_json_brings_any_trees_back_as_they_were(folder: Path, entries: list[ChatEntry]) -> None:
    file = folder / "chats.json"
    file.write_bytes(exported("json", *entries).encode())
    taken = read_file(file, "another")
    assert taken.chats == entries
    num_turns = sum(len(entry.turns) for entry in entries)
    with Store(folder / "octavo.db") as store:
        assert add_chats(store, taken.chats) == Added(num_chats=len(entries), num_turns=num_turns)
        assert list(read_chats(store, [entry.id for entry in entries])) == entries
        num_trashed = sum(entry.trashed_at is not None for entry in entries)
        assert add_chats(store, taken.chats) == Added(num_known=len(entries), num_trashed=num_trashed)


def test_what_a_host_wrote_comes_back_with_its_ids(store: Store, chat: Chat, tmp_path: Path) -> None:
    first = store.begin_turn(chat.id, prompt="one", host="h", kept_tokens=0, prompt_ids=[1, 2])
    store.flush_turn(first.id, reply="1", reply_ids=[3])
    store.interrupt_turns("h")
    second = store.begin_turn(chat.id, prompt="two", host="h", kept_tokens=3, prompt_ids=[4])
    store.flush_turn(second.id, reply="2", reply_ids=[5])
    store.interrupt_turns("h")
    (tmp_path / "chats.json").write_text(exported("json", one_of(store, chat.id)))
    with Store(tmp_path / "other.db") as other:
        add_chats(other, read_file(tmp_path / "chats.json", "m").chats)
        assert other.chat(chat.id) == store.chat(chat.id)
        assert other.turns(chat.id) == store.turns(chat.id)
        assert other.token_ids(second.id) == store.token_ids(second.id) == [1, 2, 3, 4, 5]


def test_a_running_turn_is_taken_as_interrupted(store: Store, chat: Chat, tmp_path: Path) -> None:
    turn = store.begin_turn(chat.id, prompt="one", host="h", kept_tokens=0, prompt_ids=[])
    (tmp_path / "chats.json").write_text(exported("json", one_of(store, chat.id)))
    taken = read_file(tmp_path / "chats.json", "m")
    assert taken.num_closed == 1
    (entry,) = taken.chats[0].turns
    assert (entry.status, entry.ended_at) == (TurnStatus.INTERRUPTED, turn.created_at)


def test_a_fork_is_exported_with_the_turns_that_it_shares(store: Store, chat: Chat) -> None:
    root = store.begin_turn(chat.id, prompt="one", host="h", kept_tokens=0, prompt_ids=[])
    fork = store.create_chat(title="Fork", model="m")
    own = store.begin_turn(fork.id, prompt="two", host="h", kept_tokens=0, prompt_ids=[], parent_id=root.id)
    assert [turn.id for turn in one_of(store, fork.id).turns] == [root.id, own.id]


# ---- Markdown ----


@settings(max_examples=150)
@given(prompt=ANY_TEXT, reply=ANY_TEXT, system=ANY_TEXT)
@example(prompt="```python\nx = 1", reply="~~~\n```\n", system="<!-- ")
@example(prompt="```\n    ```", reply="<script>\n\nalert()", system="````\n```")
@example(prompt="- ```\n  x", reply="> ```\n> x", system="<pre>")
def test_no_text_swallows_the_heading_that_follows_it(prompt: str, reply: str, system: str) -> None:
    markdown = exported("md", chat_of((prompt, reply), ("LAST", "END"), system=system))
    for text in (prompt, reply, system):
        assert text in markdown
    lines = re.split("\r\n|\n|\r", markdown)
    headings = {token.map[0] for token in MarkdownIt().parse(markdown) if token.type == "heading_open" and token.map}
    ours = [index for index, line in enumerate(lines) if line in ("## You", "## smollm2-135m", "## System")]
    assert headings.issuperset(ours)
    assert len(ours) == 4 + bool(system)


def test_whole_code_blocks_stay_as_they_are() -> None:
    text = "See:\n\n```python\nprint()\n```\n\n<!-- done -->"
    assert f"## smollm2-135m\n\n{text}\n\n## You" in exported("md", chat_of(("?", text), ("!", "")))


@given(ANY_TEXT)
def test_front_matter_values_are_strings_of_one_line(text: str) -> None:
    markdown = exported("md", chat_of(("a", "b"), title=text, system=text))
    head = re.match(r"---\n(.*?)\n---\n", markdown, re.S)
    assert head
    fields = dict(line.split(": ", 1) for line in head[1].split("\n"))
    assert list(fields) == ["title", "id", "model", "created", "system"]
    assert json.loads(fields["title"]) == json.loads(fields["system"]) == text


def test_each_reply_is_headed_by_the_model_that_gave_it_and_tags_are_a_list() -> None:
    entry = chat_of(("a", "1"), ("b", "2"))
    other = msgspec.structs.replace(entry.turns[1], model="echo")
    entry = msgspec.structs.replace(entry, turns=(entry.turns[0], other), tags=("c++", "été"))
    markdown = exported("md", entry)
    assert re.findall("^## (?!You)(.*)$", markdown, re.M) == ["smollm2-135m", "echo"]
    assert '\ntags: ["c++", "été"]\n---\n' in markdown
    assert ">echo</h2>" in exported("html", entry)


# ---- JSONL ----


@given(st.lists(st.tuples(ANY_TEXT, ANY_TEXT), min_size=1, max_size=4), ANY_TEXT)
def test_jsonl_is_one_line_a_chat_with_every_text(texts: list[tuple[str, str]], system: str) -> None:
    lines = exported("jsonl", chat_of(*texts, system=system), chat_of(("a", "b"))).split("\n")
    assert len(lines) == 3
    messages = json.loads(lines[0])["messages"]
    said = [
        ("user", prompt) if side == 0 else ("assistant", pair[1]) for pair in texts for side, prompt in enumerate(pair)
    ]
    expected = [("system", system), *said]
    assert [(one["role"], one["content"]) for one in messages] == [
        (role, text) for role, text in expected if text or role == "user"
    ]


def test_branches_are_left_out_and_counted() -> None:
    entry = chat_of(("a", "b"), ("c", "d"))
    fork = ChatEntry(**{name: getattr(entry, name) for name in entry.__struct_fields__} | {"tip_id": entry.turns[0].id})
    assert [turn.prompt for turn in path_to_tip(fork)] == ["a"]
    assert num_left_out(fork) == 1
    assert len(json.loads(exported("jsonl", fork))["messages"]) == 2


# ---- HTML ----


class Reader(HTMLParser):
    """Collects the tags, and the text of each element of class "text"."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.texts: list[str] = []
        self._is_text = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self._is_text = "text" in (dict(attrs).get("class") or "").split()
        if self._is_text:
            self.texts.append("")

    def handle_endtag(self, tag: str) -> None:
        self._is_text = False

    def handle_data(self, data: str) -> None:
        if self._is_text:
            self.texts[-1] += data


def shown(text: str) -> str:
    """Control characters are shown, not obeyed."""
    pictures = {code: 0x2400 + code for code in range(32) if chr(code) not in "\t\n\r"}
    return text.translate(pictures | {127: 0x2421} | dict.fromkeys(range(128, 160), 0xFFFD))


@given(title=ANY_TEXT, prompt=ANY_TEXT, reply=ANY_TEXT, system=ANY_TEXT.filter(bool))
@example(title="</title><script>", prompt="<b onclick='x'>", reply="</div></article>", system="&lt;\0")
def test_html_shows_any_text_and_obeys_none(title: str, prompt: str, reply: str, system: str) -> None:
    page = exported("html", chat_of((prompt, reply), title=title, system=system))
    reader = Reader()
    reader.feed(page)
    reader.close()
    assert reader.texts == [shown(text) for text in (title, system, prompt, reply)]
    plain = Reader()
    plain.feed(exported("html", chat_of(("a", "b"), title="t", system="s")))
    assert reader.tags == plain.tags


@given(ANY_TEXT)
def test_escaped_text_has_no_markup_and_no_control_character(text: str) -> None:
    assert not re.search("[<>\"'\0-\x08\x0b-\x1f\x7f-\x9f]", escaped(text))


def test_the_page_needs_nothing_else() -> None:
    page = exported("html", chat_of(("a", "b")))
    assert page.startswith("<!DOCTYPE html>")
    assert "prefers-color-scheme: dark" in page
    assert not re.search("<script|<link|<img|src=|href=|url\\(|@import", page)
