"""Laws of the import: what is taken and what is left is counted, and a bad file gives its place and nothing else."""

import io
import json
import sqlite3
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.data.exchange_stage import chat_of

from octavo_data import Store
from octavo_data.exchange.entries import ChatEntry, path_to_tip
from octavo_data.exchange.errors import ImportFileError
from octavo_data.exchange.exporting import EXPORTERS
from octavo_data.exchange.foreign import Taken
from octavo_data.exchange.importing import read_file
from octavo_data.exchange.trees import Added, add_chats, read_chat

MODEL = "smollm2-135m"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "a file of any name"


def taken_of(file: Path, content: object) -> Taken:
    """What the import makes of this text, these bytes, or this value as JSON."""
    if not isinstance(content, bytes):
        content = (content if isinstance(content, str) else json.dumps(content)).encode()
    file.write_bytes(content)
    return read_file(file, MODEL)


def refusal(file: Path, content: object) -> str:
    with pytest.raises(ImportFileError) as caught:
        taken_of(file, content)
    assert caught.value.message.startswith(f"{file}: ")
    return caught.value.message.removeprefix(f"{file}: ")


def texts(entry: ChatEntry) -> list[tuple[str, str]]:
    return [(turn.prompt, turn.reply) for turn in path_to_tip(entry)]


def skipped(taken: Taken) -> dict[str, int]:
    return dict(+taken.skipped)


# ---- our own ----


def own(*entries: ChatEntry) -> dict[str, Any]:
    document: dict[str, Any] = json.loads("".join(EXPORTERS["json"](entries)))
    return document


def test_a_chat_with_other_content_comes_under_new_ids(store: Store) -> None:
    entry = chat_of(("one", "1"), ("two", "2"))
    add_chats(store, [entry])
    store.rename_chat(entry.id, "Renamed")
    assert add_chats(store, [entry]) == Added(num_chats=1, num_turns=2, num_renamed=1)
    copy, original = store.chats()
    assert {original.title, copy.title} == {"Renamed", "Rivers"}
    ids = {turn.id for chat in store.chats() for turn in store.turns(chat.id)}
    assert len(ids) == 4


def test_a_chat_whose_turns_are_here_in_another_comes_under_new_ids(store: Store) -> None:
    entry = chat_of(("one", "1"))
    other = ChatEntry(**{name: getattr(entry, name) for name in entry.__struct_fields__} | {"id": "0" * 26})
    assert add_chats(store, [entry, other]) == Added(num_chats=2, num_turns=2, num_renamed=1)


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        ((), {"version": 2}, "/version: is 2, and this octavo reads 1; update it"),
        ((), {"extra": 1}, "Object contains unknown field `extra`"),
        (("chats", 0), {"title": 7}, "/chats/0/title: Expected `str`, got `int`"),
        (("chats", 0), {"id": "../x"}, "/chats/0/id: Expected `str` matching regex"),
        (("chats", 0), {"tip_id": "0" * 26}, "/chats/0/tip_id: no turn"),
        (("chats", 0), {"updated_at": 1}, "/chats/0/updated_at: is before created_at"),
        (("chats", 0, "turns", 0), {"kept_tokens": 1}, "/chats/0/turns/0/kept_tokens: is 1, of a parent that has 0"),
        (("chats", 0, "turns", 1), {"kept_tokens": 4}, "/chats/0/turns/1/kept_tokens: is 4, of a parent that has 3"),
        (("chats", 0, "turns", 1), {"parent_id": "0" * 26}, "/chats/0/turns/1/parent_id: no turn"),
        (("chats", 0, "turns", 1), {"status": "running"}, "/chats/0/turns/1/ended_at: does not fit the status"),
        (("chats", 0, "turns", 1), {"status": "merry"}, "/chats/0/turns/1/status: Invalid enum value 'merry'"),
        (("chats", 0, "turns", 1), {"reply_ids": [2**32]}, "/chats/0/turns/1/reply_ids/0: Expected `int`"),
        (("chats", 0, "turns", 1, "timings"), {"total_ms": float("inf")}, "Infinity is no number of JSON"),
    ],
)
def test_a_damaged_export_is_refused_with_the_place(
    file: Path, path: tuple[str | int, ...], value: dict[str, Any], said: str
) -> None:
    document = own(chat_of(("one", "1"), ("two", "2")))
    at: Any = document
    for step in path:
        at = at[step]
    at |= value
    assert refusal(file, document).startswith(said) or not said.startswith("/")
    assert said in refusal(file, document)


def test_turns_in_a_circle_are_refused(file: Path) -> None:
    document = own(chat_of(("one", "1"), ("two", "2")))
    one, two = document["chats"][0]["turns"]
    one["parent_id"] = two["id"]
    assert "is its own ancestor" in refusal(file, document)


def test_children_may_come_before_their_parents(file: Path) -> None:
    entry = chat_of(("one", "1"), ("two", "2"))
    document = own(entry)
    document["chats"][0]["turns"].reverse()
    assert taken_of(file, document).chats == [entry]


# ---- OpenAI JSONL ----


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


# ---- ChatGPT ----


def node(parent: str | None, role: str = "", *parts: object, kind: str = "text", **more: object) -> dict[str, Any]:
    if not role:
        return {"parent": parent, "message": None, "children": []}
    content = {"content_type": kind, "parts": list(parts)}
    return {"parent": parent, "children": [], "message": {"author": {"role": role}, "content": content, **more}}


def conversation(current: str, **nodes: dict[str, Any]) -> dict[str, Any]:
    return {"title": "Rivers", "conversation_id": "c1", "create_time": 1.7e9, "current_node": current, "mapping": nodes}


BRANCHED = conversation(
    "a2",
    root=node(None),
    s=node("root", "system", ""),
    q1=node("s", "user", "One?", create_time=1_700_000_100.25),
    a1=node("q1", "assistant", "1."),
    b1=node("q1", "assistant", "Uno."),
    call=node("a1", "assistant", "search()", recipient="browser"),
    found=node("call", "tool", "found"),
    think=node("found", "assistant", kind="thoughts"),
    more=node("think", "assistant", "And a half."),
    q2=node("more", "user", "Two?", {"content_type": "image_asset_pointer"}, kind="multimodal_text"),
    a2=node("q2", "assistant", "2."),
    hidden=node("q2", "user", "context", kind="user_editable_context"),
    q3=node("b1", "user", "Due?"),
    a3=node("q3", "assistant", "Due."),
    end=node("a3", "assistant", ""),
)


def test_a_tree_of_chatgpt_keeps_its_branches_and_its_current_node(file: Path, store: Store) -> None:
    taken = taken_of(file, [BRANCHED])
    (entry,) = taken.chats
    assert texts(entry) == [("One?", "1.\n\nAnd a half."), ("Two?", "2.")]
    by_id = {turn.id: turn.prompt for turn in entry.turns} | {None: ""}
    assert sorted((by_id[turn.parent_id], turn.prompt, turn.reply) for turn in entry.turns) == [
        ("", "One?", "1.\n\nAnd a half."), ("", "One?", "Uno."), ("One?", "Due?", "Due."), ("One?", "Two?", "2.")
    ]  # fmt: skip
    assert (entry.title, entry.created_at) == ("Rivers", 1_700_000_000_000)
    assert skipped(taken) == {
        "system message": 1, "tool message": 2, "reasoning message": 1, "image": 1, "custom instruction": 1,
        "empty node": 1,
    }  # fmt: skip
    assert add_chats(store, taken.chats) == Added(num_chats=1, num_turns=4)
    assert read_chat(store, entry.id) == entry
    assert [turn.reply for turn in store.turns(entry.id)] == ["1.\n\nAnd a half.", "2."]
    assert store.token_ids(entry.tip_id or "") == []
    assert add_chats(store, read_file(file, MODEL).chats) == Added(num_known=1)


def test_a_long_conversation_needs_no_deep_stack(file: Path) -> None:
    nodes = {"n0": node(None)}
    for index in range(1, 6001):
        nodes[f"n{index}"] = node(f"n{index - 1}", "user" if index % 2 else "assistant", f"{index}")
    (entry,) = taken_of(file, [conversation("n6000", **nodes)]).chats
    assert len(path_to_tip(entry)) == 3000


def test_a_conversation_without_words_is_counted(file: Path) -> None:
    taken = taken_of(file, [conversation("root", root=node(None), s=node("root", "system", "You are"))])
    assert (taken.chats, skipped(taken)) == ([], {"system message": 1, "empty chat": 1})


def zipped(**files: object) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name.replace("_", ".").replace("of", "-00"), json.dumps(content))
    return packed.getvalue()


def test_a_zip_gives_all_its_files(file: Path) -> None:
    second = conversation("q", q=node(None, "user", "Alone?")) | {"conversation_id": "c2"}
    content = zipped(user_json={"id": 1}, conversationsof0_json=[BRANCHED], conversationsof1_json=[second])
    assert [len(entry.turns) for entry in taken_of(file, content).chats] == [4, 1]
    assert [len(entry.turns) for entry in taken_of(file, zipped(conversations_json=[BRANCHED])).chats] == [4]


def test_a_bad_zip_is_refused_with_the_file_inside(file: Path) -> None:
    good = zipped(conversations_json=[BRANCHED] * 20)
    assert refusal(file, zipped(user_json={})) == "a zip without a conversations.json in it"
    assert refusal(file, good[: len(good) // 2]).startswith("a damaged zip: ")
    assert refusal(file, good.replace(good[60:64], b"\xff\xff\xff\xff", 1)).startswith("a damaged zip: ")
    bad = zipped(conversationsof0_json=[BRANCHED], conversationsof1_json=[conversation("x", x="y")])  # type: ignore[arg-type]
    assert refusal(file, bad) == "conversations-001.json: /0/mapping/x: not an object"


@pytest.mark.parametrize(
    ("nodes", "said"),
    [
        ({"x/y": {"message": 1}}, "/0/mapping/x~1y/message: not an object"),
        ({"x": {"message": {}}}, "/0/mapping/x/message/author: missing"),
        ({"x": {"message": {"author": {"role": 3}}}}, "/0/mapping/x/message/author/role: not a text"),
        ({"x": {"message": {"author": {"role": "user"}}}}, "/0/mapping/x/message/content: missing"),
        ({"x": node(None, "user", 7)}, "/0/mapping/x/message/content/parts/0: neither text nor an object"),
        ({"x": node("y"), "y": node("x")}, "/0/mapping/x/parent: the node is its own ancestor"),
    ],
)
def test_a_bad_node_is_named(file: Path, nodes: dict[str, Any], said: str) -> None:
    assert refusal(file, [conversation("x") | {"mapping": nodes}]) == said


# ---- llm ----

LLM = """
CREATE TABLE [conversations] ([id] TEXT PRIMARY KEY, [name] TEXT, [model] TEXT);
CREATE TABLE "responses" ([id] TEXT PRIMARY KEY, [model] TEXT, [prompt] TEXT, [system] TEXT, [prompt_json] TEXT,
    [options_json] TEXT, [response] TEXT, [response_json] TEXT,
    [conversation_id] TEXT REFERENCES [conversations]([id]), [duration_ms] INTEGER, [datetime_utc] TEXT,
    [input_tokens] INTEGER, [output_tokens] INTEGER, [token_details] TEXT, [schema_id] TEXT, [resolved_model] TEXT);
CREATE TABLE [attachments] ([id] TEXT PRIMARY KEY, [type] TEXT, [path] TEXT, [url] TEXT, [content] BLOB);
CREATE TABLE [prompt_attachments] ([response_id] TEXT, [attachment_id] TEXT, [order] INTEGER);
CREATE TABLE [fragments] ([id] INTEGER PRIMARY KEY, [hash] TEXT, [content] TEXT, [datetime_utc] TEXT, [source] TEXT);
CREATE TABLE [prompt_fragments] ([response_id] TEXT, [fragment_id] INTEGER, [order] INTEGER);
CREATE TABLE [system_fragments] ([response_id] TEXT, [fragment_id] INTEGER, [order] INTEGER);
CREATE TABLE [tool_calls] ([id] INTEGER PRIMARY KEY, [response_id] TEXT, [tool_id] INTEGER, [name] TEXT);
INSERT INTO conversations VALUES ('c1', 'Rivers', 'gpt-4o'), ('c2', 'Never asked', 'gpt-4o');
INSERT INTO responses (id, prompt, system, response, conversation_id, duration_ms, datetime_utc, input_tokens,
    output_tokens) VALUES
    ('r2', 'Two?', 'Shout.', '2.', 'c1', 900, '2024-05-01T10:00:05.500000+00:00', NULL, NULL),
    ('r1', 'One?', 'Be brief.', '1.', 'c1', 700, '2024-05-01T10:00:00', 12, 34),
    ('r3', 'Alone?', NULL, NULL, NULL, NULL, NULL, NULL, NULL);
INSERT INTO fragments (id, content) VALUES (1, 'A long text.'), (2, 'Another.');
INSERT INTO prompt_fragments VALUES ('r1', 2, 1), ('r1', 1, 0);
INSERT INTO prompt_attachments VALUES ('r2', 'a1', 0);
INSERT INTO tool_calls (response_id, name) VALUES ('r2', 'add');
"""
OLD_LLM = """
CREATE TABLE [conversations] ([id] TEXT PRIMARY KEY, [name] TEXT, [model] TEXT);
CREATE TABLE [responses] ([id] TEXT PRIMARY KEY, [model] TEXT, [prompt] TEXT, [system] TEXT, [prompt_json] TEXT,
    [options_json] TEXT, [response] TEXT, [response_json] TEXT,
    [conversation_id] TEXT REFERENCES [conversations]([id]), [duration_ms] INTEGER, [datetime_utc] TEXT);
INSERT INTO responses (id, prompt, response, conversation_id) VALUES ('1', 'One?', '1.', 'c'), ('2', 'Two?', '2.', 'c');
"""


@pytest.fixture
def llm(file: Path) -> Iterator[sqlite3.Connection]:
    conn = sqlite3.connect(file)
    conn.executescript(LLM)
    yield conn
    conn.close()


def test_conversations_of_llm_come_with_their_fragments_counts_and_times(file: Path, llm: sqlite3.Connection) -> None:
    before = file.read_bytes()
    taken = read_file(file, MODEL)
    rivers, alone = sorted(taken.chats, key=lambda entry: entry.created_at)
    assert texts(rivers) == [("A long text.\nAnother.\nOne?", "1."), ("Two?", "2.")]
    assert texts(alone) == [("Alone?", "")]
    assert (rivers.title, rivers.system, rivers.model, alone.title) == ("Rivers", "Be brief.", MODEL, "Alone?")
    assert (rivers.created_at, rivers.updated_at) == (1714557600000, 1714557605500)
    one = rivers.turns[0]
    assert (one.counts.prompt_tokens, one.counts.completion_tokens, one.timings.total_ms) == (12, 34, 700.0)
    assert skipped(taken) == {"attachment": 1, "tool call": 1, "later system prompt": 1, "empty chat": 1}
    assert file.read_bytes() == before
    assert list(file.parent.iterdir()) == [file]


def test_an_old_database_of_llm_is_read_in_the_order_of_its_rows(file: Path) -> None:
    conn = sqlite3.connect(file)
    conn.executescript(OLD_LLM)
    conn.close()
    assert [texts(entry) for entry in read_file(file, MODEL).chats] == [[("One?", "1."), ("Two?", "2.")]]


def test_turns_that_only_a_newer_llm_logged_are_counted(file: Path, llm: sqlite3.Connection) -> None:
    llm.executescript(
        "CREATE TABLE turns (id TEXT, parent_message_hash TEXT); INSERT INTO turns VALUES ('r1', 'x'), ('r9', 'y')"
    )
    assert skipped(read_file(file, MODEL))["message-store turn"] == 1


def test_a_damaged_database_gives_nothing(file: Path, llm: sqlite3.Connection) -> None:
    llm.execute("UPDATE responses SET response = x'ff00' WHERE id = 'r2'")
    llm.commit()
    with pytest.raises(ImportFileError, match="responses, row r2, response: not a text but bytes"):
        read_file(file, MODEL)
    whole = file.read_bytes()
    assert refusal(file, whole[: len(whole) // 3]).startswith("cannot be read as a database")
    with Store(file.parent / "octavo.db"):
        pass
    with pytest.raises(ImportFileError, match="a database, but not llm's"):
        read_file(file.parent / "octavo.db", MODEL)


# ---- what is none of these ----


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "line 1, column 1: neither Octavo's JSON"),
        (b"Dear diary", "line 1, column 1: neither Octavo's JSON"),
        (b"\xff\xfe\x00", "byte 0: neither Octavo's JSON"),
        (b"[]", "neither Octavo's JSON"),
        (b'{"a": 1}', "neither Octavo's JSON"),
        (b'{"format": "octavo-chats",\n "version": 1, "chats": [', "line 2, column 26: not whole JSON"),
        (b"[" * 100_000, "not JSON that can be read"),
        (b"[1" + b"0" * 5000 + b"]", "not JSON that can be read"),
    ],
)
def test_garbage_is_refused(file: Path, content: bytes, reason: str) -> None:
    assert refusal(file, content).startswith(reason)


@pytest.mark.parametrize("kind", ["json", "chatgpt"])
def test_no_beginning_of_a_file_is_taken_for_the_whole(file: Path, kind: str) -> None:
    whole = (
        json.dumps([BRANCHED]) if kind == "chatgpt" else "".join(EXPORTERS["json"]([chat_of(("one", "1"))])).rstrip()
    )
    for length in range(0, len(whole), 7):
        refusal(file, whole[:length])
    assert taken_of(file, whole).chats


def test_a_failing_write_leaves_nothing_of_the_file(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    good, bad = chat_of(("one", "1")), chat_of(("two", "2"))
    broken = ChatEntry(**{name: getattr(bad, name) for name in bad.__struct_fields__} | {"updated_at": 0})
    with pytest.raises(sqlite3.IntegrityError):
        add_chats(store, [good, broken])
    assert store.chats() == []
