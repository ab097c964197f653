"""Whole chats out of the store and into it, every turn of their trees with its exact token ids."""

import json
import sqlite3
from collections.abc import Collection, Generator, Iterable, Sequence
from dataclasses import dataclass

import msgspec

from octavo_data.encoding import clean_text, new_id, pack_ids, unpack_ids
from octavo_data.exchange.entries import ChatEntry, CountsEntry, TimingsEntry, TurnEntry
from octavo_data.records import Chat
from octavo_data.store import Store

HOST = "import"

# The turns of the chat, and those of other chats that its turns stand on (a fork shares them).
_TREE = """
WITH RECURSIVE tree(id) AS (
    SELECT id FROM turns WHERE chat_id = :id
    UNION SELECT :tip_id WHERE :tip_id IS NOT NULL
    UNION SELECT turns.parent_id FROM tree CROSS JOIN turns ON turns.id = tree.id WHERE turns.parent_id IS NOT NULL
)
SELECT turns.* FROM tree CROSS JOIN turns ON turns.id = tree.id ORDER BY depth, turns.id
"""
_PLAIN = tuple(
    name for name in TurnEntry.__struct_fields__ if name not in ("counts", "timings", "prompt_ids", "reply_ids")
)


_CHAT_COLUMNS = tuple(name for name in ChatEntry.__struct_fields__ if name not in ("tags", "turns"))


@dataclass(slots=True)
class Added:
    """What became of the chats of a file.

    `known` ones were there already, of these `trashed` ones in the trash; `renamed` ones have new ids.
    """

    num_chats: int = 0
    num_turns: int = 0
    num_known: int = 0
    num_trashed: int = 0
    num_renamed: int = 0


def read_chats(store: Store, chat_ids: Iterable[str]) -> Generator[ChatEntry, None, None]:
    """The chats with their whole trees, all as they were at one moment; close it before the store.

    Raises StoreReadError, ChatNotFoundError.
    """
    with store.reading() as conn:
        for chat_id in chat_ids:
            yield _entry(conn, store.chat(chat_id))


def add_chats(store: Store, chats: Sequence[ChatEntry]) -> Added:
    """Write the chats of one file in one transaction, all or (StoreWriteError) none.

    A chat that is there with the same content is left alone, on whatever shelf it is. A fork shares turns with the chat
    that it is of, as it did, if they have the same content. Where an id has other content the chat gets new ids.
    """
    added = Added()
    with store.writing() as conn:
        for chat in sorted(chats, key=lambda chat: (chat.created_at, chat.id)):  # a fork after what it is of
            _add(store, conn, chat, added)
    return added


def _add(store: Store, conn: sqlite3.Connection, chat: ChatEntry, added: Added) -> None:
    is_taken = bool(conn.execute("SELECT 1 FROM chats WHERE id = ?", (chat.id,)).fetchone())
    if is_taken and _unshelved(known := _entry(conn, store.chat(chat.id))) == _unshelved(chat):
        added.num_known += 1
        added.num_trashed += known.trashed_at is not None
        return
    present = _present(conn, chat)
    if is_taken or any(present.get(turn.id, turn) != turn for turn in chat.turns):
        chat, present = with_new_ids(chat), {}
        added.num_renamed += 1
    added.num_chats += 1
    added.num_turns += len(chat.turns) - len(present)
    _insert(conn, chat, present.keys())


def with_new_ids(chat: ChatEntry) -> ChatEntry:
    """The same chat under ids that nothing has."""
    names: dict[str | None, str] = {turn.id: new_id() for turn in chat.turns}
    turns = tuple(
        msgspec.structs.replace(turn, id=names[turn.id], parent_id=names.get(turn.parent_id)) for turn in chat.turns
    )
    return msgspec.structs.replace(chat, id=new_id(), tip_id=names.get(chat.tip_id), turns=turns)


def _unshelved(chat: ChatEntry) -> ChatEntry:
    """What was said in it, wherever it is kept."""
    return msgspec.structs.replace(chat, is_pinned=False, archived_at=None, trashed_at=None, tags=())


def _entry(conn: sqlite3.Connection, chat: Chat) -> ChatEntry:
    rows = conn.execute(_TREE, {"id": chat.id, "tip_id": chat.tip_id}).fetchall()
    values = {name: getattr(chat, name) for name in (*_CHAT_COLUMNS, "tags")}
    return ChatEntry(**values, turns=tuple(map(_turn_entry, rows)))


def _turn_entry(row: sqlite3.Row) -> TurnEntry:
    values = {name: row[name] for name in _PLAIN}
    values["prompt_ids"], values["reply_ids"] = unpack_ids(row["prompt_ids"]), unpack_ids(row["reply_ids"])
    values["counts"] = {name: row[name] for name in CountsEntry.__struct_fields__}
    values["timings"] = {name: row[name] for name in TimingsEntry.__struct_fields__}
    return msgspec.convert(values, TurnEntry)


def _present(conn: sqlite3.Connection, chat: ChatEntry) -> dict[str, TurnEntry]:
    """Turns of the chat that are there, of other chats, by id: a fork shares some with the one that it is of."""
    ids = json.dumps([turn.id for turn in chat.turns])
    rows = conn.execute("SELECT turns.* FROM json_each(?) CROSS JOIN turns ON turns.id = value", (ids,))
    return {row["id"]: _turn_entry(row) for row in rows}


def _insert(conn: sqlite3.Connection, chat: ChatEntry, present: Collection[str]) -> None:
    values = {name: getattr(chat, name) for name in _CHAT_COLUMNS}
    _insert_rows(conn, "chats", [values | {"title": clean_text(chat.title), "system": clean_text(chat.system)}])
    _insert_rows(conn, "tags", [{"chat_id": chat.id, "tag": tag} for tag in chat.tags])
    depths: dict[str | None, int] = {None: 0}
    rows = []
    for turn in chat.turns:
        depths[turn.id] = depths[turn.parent_id] + 1
        if turn.id in present:
            continue
        rows.append(_columns(turn) | {"chat_id": chat.id, "depth": depths[turn.id], "host": HOST})
    _insert_rows(conn, "turns", rows)


def _columns(turn: TurnEntry) -> dict[str, object]:
    values: dict[str, object] = {name: getattr(turn, name) for name in _PLAIN}
    values |= {name: clean_text(str(values[name])) for name in ("prompt", "reply", "stop_reason", "error")}
    values |= {"status": turn.status.value}
    values |= {"prompt_ids": pack_ids(turn.prompt_ids), "reply_ids": pack_ids(turn.reply_ids)}
    return values | msgspec.structs.asdict(turn.counts) | msgspec.structs.asdict(turn.timings)


def _insert_rows(conn: sqlite3.Connection, table: str, rows: Sequence[dict[str, object]]) -> None:
    if rows:
        columns, places = ", ".join(rows[0]), ", ".join(f":{name}" for name in rows[0])
        conn.executemany(f"INSERT INTO {table} ({columns}) VALUES ({places})", rows)
