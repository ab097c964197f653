"""Makes the dumps in `schemas/`: a store of today's code with a few rows, as SQL that builds the same file again."""

import sqlite3
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from octavo_data import Store, TemplateUse, TurnCounts, TurnStatus, TurnTimings, shelves
from octavo_data.kv_files import BlockFile
from octavo_data.kv_index import KVIndex, KVRow

SCHEMAS = Path(__file__).parent / "schemas"
COUNTS = TurnCounts(prompt_tokens=5, cached_tokens=2, computed_tokens=3, completion_tokens=2)
TIMINGS = TurnTimings(queue_ms=0.5, first_token_ms=20.25, total_ms=120.0, tokens_per_s=33.4)
_KV_ROW = KVRow(
    name=b"n" * 32,
    fingerprint="a model",
    parent=b"p" * 32,
    depth=1,
    token_ids=(1, 2, 5),
    where=BlockFile(file="6e.kv", offset=80, num_bytes=4096, checksum=b"c" * 32),
)


def fill(store: Store) -> None:
    """A chat of two turns and a retry, one that was interrupted, one without turns, one in the trash."""
    rivers = store.create_chat(title="Rivers", model="smollm2-135m", system="Be brief.")
    first = store.begin_turn(rivers.id, prompt="Which river is longest?", host="h-1", kept_tokens=0, prompt_ids=[1, 2])
    _end(store, first.id, "The Nile, it's said.")
    second = store.begin_turn(rivers.id, prompt="And 最長の川は?", host="h-1", kept_tokens=4, prompt_ids=[7])
    _end(store, second.id, "O Amazonas 🌊\n")
    retry = store.begin_turn(
        rivers.id,
        prompt="And in Asia?",
        host="h-1",
        kept_tokens=3,
        prompt_ids=[8],
        parent_id=first.id,
        model="smollm2-135m",
        template=TemplateUse(name="geography", content_hash="f00d"),
    )
    _end(store, retry.id, "The Yangtze.")
    half = store.create_chat(title="Half a chat", model="echo")
    running = store.begin_turn(half.id, prompt="Tell a story.", host="dead", kept_tokens=0, prompt_ids=[4_294_967_295])
    store.flush_turn(running.id, reply="Once upon", reply_ids=[0, 9])
    store.interrupt_turns("dead")
    store.create_chat(title="Empty", model="smollm2-135m")
    shelves.pin(store, rivers.id)
    shelves.set_tags(store, rivers.id, add=["geography", "water"])
    shelves.archive(store, half.id)
    shelves.trash(store, store.create_chat(title="Thrown away", model="smollm2-135m").id)
    KVIndex(store).add([_KV_ROW], 1_800_000_000_000)


def dump(conn: sqlite3.Connection) -> Iterator[str]:
    """The statements that make the file again; an FTS5 table is built again from what it indexes."""
    yield "PRAGMA foreign_keys = OFF;"  # rows come before those that they name
    yield f"PRAGMA application_id = {conn.execute('PRAGMA application_id').fetchone()[0]};"
    found = conn.execute("SELECT type, name, sql FROM sqlite_master WHERE sql IS NOT NULL ORDER BY rowid").fetchall()
    virtual = [name for _, name, sql in found if sql.startswith("CREATE VIRTUAL")]
    tables = [(name, sql) for kind, name, sql in found if kind == "table" and not _is_of(name, virtual)]
    yield from (f"{sql};" for _, sql in tables)
    for name, _ in tables:
        yield from _rows(conn, name)
    yield from (f"{sql};" for kind, _, sql in found if kind in ("index", "view"))
    for name in virtual:
        yield f"{next(sql for _, other, sql in found if other == name)};"
        yield f"INSERT INTO {name}({name}) VALUES ('rebuild');"
    yield from (f"{sql};" for kind, _, sql in found if kind == "trigger")


def _rows(conn: sqlite3.Connection, table: str) -> Iterator[str]:
    names = [row[1] for row in conn.execute(f"PRAGMA table_info({table})")]
    quoted = ", ".join(f"quote({name})" for name in names)
    for row in conn.execute(f"SELECT {quoted} FROM {table}"):
        yield f"INSERT INTO {table} ({', '.join(names)}) VALUES ({', '.join(row)});"


def _is_of(name: str, virtual: list[str]) -> bool:
    return any(name == one or name.startswith(f"{one}_") for one in virtual)


def _end(store: Store, turn_id: str, reply: str) -> None:
    store.end_turn(
        turn_id,
        status=TurnStatus.DONE,
        stop_reason="stop",
        reply=reply,
        reply_ids=[5, 6],
        counts=COUNTS,
        timings=TIMINGS,
    )


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder, Store(Path(folder) / "octavo.db") as store:
        fill(store)
        store._conn.row_factory = None
        sys.stdout.write("\n".join(dump(store._conn)) + "\n")
