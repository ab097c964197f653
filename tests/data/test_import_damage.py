"""Law of the import: whatever is damaged in a file, it is taken whole or refused by name."""

import json
import sqlite3
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.data.exchange_stage import MODEL, chat_of
from tests.data.test_import_chatgpt import BRANCHED, zipped
from tests.data.test_import_llm import LLM, THREADS

from octavo_data import Store
from octavo_data.exchange.errors import ImportFileError
from octavo_data.exchange.exporting import EXPORTERS
from octavo_data.exchange.importing import read_file
from octavo_data.exchange.trees import add_chats, read_chats

CHAT = chat_of(("one", "1"), ("two", "2"), system="s")
KINDS = ("json", "jsonl", "chatgpt", "zip", "llm")
DAMAGE = st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.integers(0, 255)), min_size=1, max_size=5)


@pytest.fixture(scope="module")
def wholes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """One good file of each kind."""
    database = tmp_path_factory.mktemp("llm") / "logs.db"
    conn = sqlite3.connect(database)
    conn.executescript(LLM + THREADS)
    conn.close()
    texts = {kind: "".join(EXPORTERS[kind]([CHAT])) for kind in ("json", "jsonl")} | {"chatgpt": json.dumps([BRANCHED])}
    return {name: text.encode() for name, text in texts.items()} | {
        "zip": zipped(conversations_json=[BRANCHED]),
        "llm": database.read_bytes(),
    }


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("damage")


@settings(max_examples=200)
@given(kind=st.sampled_from(KINDS), damage=DAMAGE, end=st.none() | st.floats(0, 1))
def test_a_damaged_file_is_taken_whole_or_refused(
    wholes: dict[str, bytes], folder: Path, kind: str, damage: list[tuple[float, int]], end: float | None
) -> None:
    content = bytearray(wholes[kind])
    for place, byte in damage:
        content[int(place * len(content))] = byte
    (folder / "file").write_bytes(content if end is None else content[: int(end * len(content))])
    (folder / "octavo.db").unlink(missing_ok=True)
    with Store(folder / "octavo.db") as store:
        try:
            taken = read_file(folder / "file", MODEL)
        except ImportFileError:
            return
        added = add_chats(store, taken.chats)
        assert added.num_chats + added.num_known == len(taken.chats)
        assert len(list(read_chats(store, [chat.id for chat in store.chats()]))) == added.num_chats
