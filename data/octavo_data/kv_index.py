"""The table of KV blocks on disk: which tokens each holds, where its bytes are, when it was used."""

import sqlite3
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from octavo_data.encoding import pack_ids, unpack_ids
from octavo_data.kv_files import BlockFile
from octavo_data.store import Store


@dataclass(frozen=True, slots=True, kw_only=True)
class KVRow:
    """A block on disk: `token_ids` after the chain `parent`, `depth` blocks before it, under one fingerprint.

    `tokens_per_s` is how fast prompts were computed when it was written.
    """

    name: bytes
    fingerprint: str
    parent: bytes
    depth: int
    token_ids: tuple[int, ...]
    where: BlockFile
    tokens_per_s: float = 0.0
    is_pinned: bool = False


@dataclass(frozen=True, slots=True)
class KVTotals:
    """All blocks on disk, of every model."""

    blocks: int
    bytes: int
    pinned: int
    hits: int


class KVIndex:
    """The rows in a store; it belongs to the thread of the store. Errors as those of Store."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def rows(self, fingerprint: str) -> list[KVRow]:
        """The blocks of one model and layout, heads of chains first, the most recently used first among these."""
        with self._store.reading() as conn:
            return [_row(row) for row in conn.execute(_ROWS, (fingerprint,)).fetchall()]

    def add(self, rows: Sequence[KVRow], used_at: int) -> list[KVRow]:
        """Write rows of blocks whose files are safe, used at this time (ms since the epoch).

        Returns those that went for it: they hold a part of a new one and nothing else, and hand on their pin.
        """
        with self._store.writing() as conn:
            gone = []
            for row in rows:
                shorter = _shorter(conn, row)
                is_pinned = row.is_pinned or any(old.is_pinned for old in shorter)
                conn.execute(_ADD, _values(row, used_at) | {"is_pinned": is_pinned})
                gone += shorter
            _delete(conn, [row.name for row in gone])
        return gone

    def touch(self, names: Iterable[bytes], used_at: int) -> None:
        """These blocks were used at this time (ms since the epoch)."""
        with self._store.writing() as conn:
            conn.executemany("UPDATE kv_blocks SET last_use = ? WHERE name = ?", [(used_at, name) for name in names])

    def count_hits(self, names: Iterable[bytes]) -> None:
        """These blocks were loaded."""
        with self._store.writing() as conn:
            conn.executemany("UPDATE kv_blocks SET hits = hits + 1 WHERE name = ?", [(name,) for name in names])

    def pin(self, names: Iterable[bytes], is_pinned: bool) -> None:
        """Let these blocks go last, or no longer."""
        with self._store.writing() as conn:
            values = [(is_pinned, name) for name in names]
            conn.executemany("UPDATE kv_blocks SET is_pinned = ? WHERE name = ?", values)

    def drop(self, names: Iterable[bytes]) -> None:
        """Forget blocks."""
        with self._store.writing() as conn:
            _delete(conn, names)

    def shrink(self, max_bytes: int) -> list[KVRow]:
        """Forget the least recently used blocks until the rest takes no more; returns them.

        Tails of chains go before their heads, pinned ones when nothing else is left.
        """
        with self._store.writing() as conn:
            excess = conn.execute("SELECT coalesce(sum(num_bytes), 0) FROM kv_blocks").fetchone()[0] - max_bytes
            gone: list[KVRow] = []
            rows = conn.execute(_BY_USE) if excess > 0 else ()
            for row in rows:
                if excess <= 0:
                    break
                gone.append(_row(row))
                excess -= gone[-1].where.num_bytes
            _delete(conn, [row.name for row in gone])
        return gone

    def drop_files(self, files: Iterable[str]) -> None:
        """Forget the blocks of files that are gone."""
        with self._store.writing() as conn:
            conn.executemany("DELETE FROM kv_blocks WHERE file = ?", [(file,) for file in files])

    def clear(self) -> None:
        """Forget everything."""
        with self._store.writing() as conn:
            conn.execute("DELETE FROM kv_blocks")

    def files(self) -> set[str]:
        """The files that have a row."""
        with self._store.reading() as conn:
            return {str(row["file"]) for row in conn.execute("SELECT file FROM kv_blocks").fetchall()}

    def totals(self) -> KVTotals:
        """Sums over all blocks."""
        with self._store.reading() as conn:
            return KVTotals(*conn.execute(_TOTALS).fetchone())


def _shorter(conn: sqlite3.Connection, row: KVRow) -> list[KVRow]:
    """The siblings whose tokens are the first ones of this row's."""
    found = conn.execute(_SHORTER, (row.parent, len(row.token_ids))).fetchall()
    siblings = [_row(sibling) for sibling in found]
    return [old for old in siblings if old.token_ids == row.token_ids[: len(old.token_ids)]]


def _delete(conn: sqlite3.Connection, names: Iterable[bytes]) -> None:
    conn.executemany("DELETE FROM kv_blocks WHERE name = ?", [(name,) for name in names])


def _row(row: sqlite3.Row) -> KVRow:
    return KVRow(
        name=row["name"],
        fingerprint=row["fingerprint"],
        parent=row["parent"],
        depth=row["depth"],
        token_ids=tuple(unpack_ids(row["token_ids"])),
        where=BlockFile(row["file"], row["offset"], row["num_bytes"], row["checksum"]),
        tokens_per_s=row["tokens_per_s"],
        is_pinned=bool(row["is_pinned"]),
    )


def _values(row: KVRow, used_at: int) -> dict[str, object]:
    return {
        "name": row.name,
        "fingerprint": row.fingerprint,
        "parent": row.parent,
        "depth": row.depth,
        "token_ids": pack_ids(row.token_ids),
        "num_tokens": len(row.token_ids),
        "file": row.where.file,
        "offset": row.where.offset,
        "num_bytes": row.where.num_bytes,
        "checksum": row.where.checksum,
        "tokens_per_s": row.tokens_per_s,
        "last_use": used_at,
    }


_COLUMNS = """
    name, fingerprint, parent, depth, token_ids, num_tokens, file, offset, num_bytes, checksum, tokens_per_s, is_pinned
"""
_ROWS = f"SELECT {_COLUMNS} FROM kv_blocks WHERE fingerprint = ? ORDER BY depth, last_use DESC"
_SHORTER = f"SELECT {_COLUMNS} FROM kv_blocks WHERE parent = ? AND num_tokens < ?"
_BY_USE = f"SELECT {_COLUMNS} FROM kv_blocks ORDER BY is_pinned, last_use, depth DESC"
_TOTALS = (
    "SELECT count(*), coalesce(sum(num_bytes), 0), coalesce(sum(is_pinned), 0), coalesce(sum(hits), 0) FROM kv_blocks"
)
_ADD = f"""
INSERT OR REPLACE INTO kv_blocks ({_COLUMNS}, last_use) VALUES (
    :name, :fingerprint, :parent, :depth, :token_ids, :num_tokens, :file, :offset, :num_bytes, :checksum,
    :tokens_per_s, :is_pinned, :last_use
)
"""
