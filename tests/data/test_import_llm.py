"""Laws of the import of llm's logs.db."""

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.data.exchange_stage import MODEL, refusal, skipped, texts

from octavo_data import Store
from octavo_data.exchange.errors import ImportFileError
from octavo_data.exchange.importing import read_file
from octavo_data.exchange.trees import Added, add_chats

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
    assert skipped(taken) == {"attachment": 1, "tool call": 1, "later system message": 1, "empty chat": 1}
    assert file.read_bytes() == before
    assert list(file.parent.iterdir()) == [file]


def test_an_old_database_of_llm_is_read_in_the_order_of_its_rows(file: Path) -> None:
    conn = sqlite3.connect(file)
    conn.executescript(OLD_LLM)
    conn.close()
    assert [texts(entry) for entry in read_file(file, MODEL).chats] == [[("One?", "1."), ("Two?", "2.")]]


THREADS = """
CREATE TABLE "messages" ("hash" TEXT PRIMARY KEY, "parent_hash" TEXT, "role" TEXT, "provider_metadata" TEXT);
CREATE TABLE "parts" ("id" INTEGER PRIMARY KEY, "message_hash" TEXT, "position" INTEGER, "type" TEXT,
    "tool_name" TEXT, "text" TEXT, "payload" TEXT);
CREATE TABLE "threads" ("id" TEXT PRIMARY KEY, "name" TEXT, "tip_message_hash" TEXT, "forked_from" TEXT,
    "datetime_utc" TEXT);
CREATE TABLE "turns" ("id" TEXT PRIMARY KEY, "thread_id" TEXT, "parent_message_hash" TEXT, "tip_message_hash" TEXT,
    "model" TEXT, "resolved_model" TEXT, "options_json" TEXT, "schema_id" TEXT, "input_tokens" INTEGER,
    "output_tokens" INTEGER, "token_details" TEXT, "duration_ms" INTEGER, "datetime_utc" TEXT, "response_json" TEXT);
INSERT INTO messages (hash, parent_hash, role) VALUES ('s', NULL, 'system'), ('q1', 's', 'user'),
    ('a1', 'q1', 'assistant'), ('t1', 'a1', 'tool'), ('b1', 't1', 'assistant'), ('q2', 'b1', 'user'),
    ('a2', 'q2', 'assistant'), ('c2', 'q2', 'assistant'), ('h', NULL, 'user'), ('i', 'h', 'assistant');
INSERT INTO parts (message_hash, position, type, text, payload) VALUES ('s', 0, 'text', 'Be brief.', NULL),
    ('q1', 0, 'text', NULL, '{"text_ref": [{"fragment": 1}, {"literal": "\\nOne?"}]}'),
    ('q1', 1, 'attachment', NULL, '{}'),
    ('a1', 0, 'reasoning', 'Hm.', NULL), ('a1', 1, 'text', 'See', NULL), ('a1', 2, 'tool_call', NULL, '{}'),
    ('t1', 0, 'tool_result', NULL, '{}'), ('b1', 0, 'text', '1.', NULL), ('q2', 0, 'text', 'Two?', NULL),
    ('a2', 0, 'text', '2', NULL), ('a2', 1, 'text', '.', NULL), ('c2', 0, 'text', 'Two.', NULL),
    ('h', 0, 'text', 'Hello', NULL), ('i', 0, 'text', 'Hi', NULL);
INSERT INTO threads (id, name) VALUES ('th1', 'Seas'), ('c1', 'Rivers'), ('th3', 'Empty');
INSERT INTO turns (id, thread_id, tip_message_hash, input_tokens, output_tokens, duration_ms, datetime_utc) VALUES
    ('u1', 'th1', 'b1', 5, 6, 70, '2026-05-01T10:00:00+00:00'), ('u2', 'th1', 'c2', 7, 8, 90, '2026-05-01T10:00:01'),
    ('u3', 'th1', 'a2', 7, 8, 90, '2026-05-01T10:00:02+00:00'), ('u4', 'c1', 'i', 1, 2, 3, '2026-05-01T11:00:00+00:00');
"""


def test_threads_of_a_newer_llm_come_with_their_whole_chains(file: Path, llm: sqlite3.Connection, store: Store) -> None:
    llm.executescript(THREADS)
    taken = read_file(file, MODEL)
    chats = {entry.title: entry for entry in taken.chats if entry.created_at > 1_770_000_000_000}
    seas = chats["Seas"]
    assert texts(seas) == [("A long text.\nOne?", "See\n\n1."), ("Two?", "2.")]
    assert (seas.system, [turn.counts.prompt_tokens for turn in seas.turns]) == ("Be brief.", [5, 7])
    assert (seas.created_at, seas.updated_at) == (1777629600000, 1777629602000)
    assert skipped(taken) == {
        "attachment": 2, "tool call": 2, "tool message": 1, "reasoning message": 1, "later system message": 1,
        "call beside the end of its thread": 1, "empty chat": 2,
    }  # fmt: skip
    assert add_chats(store, taken.chats) == Added(num_chats=4, num_turns=6)
    assert add_chats(store, read_file(file, MODEL).chats) == Added(num_known=4)


def test_a_thread_that_goes_on_with_older_responses_takes_their_place(file: Path, llm: sqlite3.Connection) -> None:
    llm.executescript(THREADS)
    llm.execute("UPDATE turns SET tip_message_hash = 'a2' WHERE thread_id = 'c1'")
    llm.commit()
    rivers = [entry for entry in read_file(file, MODEL).chats if entry.title == "Rivers"]
    assert [texts(entry)[-1] for entry in rivers] == [("Two?", "2.")]


@pytest.mark.parametrize("payload", ['{"text_ref": [{"fragment": 9}]}', '{"text_ref": 1}', "[]", '{"text', "7"])
def test_a_part_that_cannot_be_read_is_named(file: Path, llm: sqlite3.Connection, payload: str) -> None:
    llm.executescript(THREADS)
    llm.execute("UPDATE parts SET payload = ? WHERE id = 2", (payload,))
    llm.commit()
    with pytest.raises(ImportFileError, match=r"parts, row 2, payload: cannot be read: "):
        read_file(file, MODEL)


def test_a_message_store_of_unknown_shape_is_refused(file: Path, llm: sqlite3.Connection) -> None:
    llm.executescript("CREATE TABLE turns (id TEXT, parent_message_hash TEXT); CREATE TABLE threads (id TEXT)")
    with pytest.raises(ImportFileError, match=r"table threads: lacks columns"):
        read_file(file, MODEL)


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
