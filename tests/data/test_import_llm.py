"""Laws of the import of llm's logs.db."""

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.data.exchange_stage import MODEL, refusal, skipped, texts

from octavo_data import Store
from octavo_data.exchange.errors import ImportFileError
from octavo_data.exchange.importing import read_file

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
