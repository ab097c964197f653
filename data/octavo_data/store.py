"""The store: one SQLite file of chats and turns, read by every process and written by the host."""

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Self

from msgspec.structs import asdict

from octavo_data import queries, refusals
from octavo_data.connection import close_to_others, enable_wal, immediate, naming_errors, open_file
from octavo_data.encoding import clean_text, new_id, now_ms, pack_ids, unpack_ids
from octavo_data.errors import StoreOpenError, StoreReadError, StoreReadOnlyError, StoreWriteError
from octavo_data.records import AtTip, Chat, Place, Shelf, TemplateUse, Turn, TurnCounts, TurnStatus, TurnTimings
from octavo_data.upgrading import is_foreign, migrate, unknown

_NUM_CANDIDATES = 4


class Store:
    """Chats and turns in one file. An instance belongs to the thread that made it; processes may share the file.

    Every write is one transaction: it is stored whole or raises StoreWriteError and changes nothing. Reads raise
    StoreReadError when the file is damaged. Ids are ULIDs in lower case, times milliseconds since the epoch.
    """

    def __init__(self, path: Path) -> None:
        """Open the file, made and migrated as needed; StoreOpenError, StoreWriteError."""
        self.path = path
        self.notice = ""
        """What a person should know about this file, or nothing."""
        self._conn = open_file(path)
        try:
            self._prepare()
        except BaseException:
            self._conn.close()
            raise
        self._conn.row_factory = sqlite3.Row

    def close(self) -> None:
        """Give the file back; harmless when closed already."""
        self._conn.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def is_read_only(self) -> bool:
        """Whether a newer version made the file, so that this one only reads it; `notice` says so."""
        return bool(self.notice)

    # ---- chats ----

    def create_chat(self, *, title: str, model: str, system: str = "") -> Chat:
        """A new chat without turns."""
        chat_id, now = new_id(), now_ms()
        values = (chat_id, clean_text(title), clean_text(model), clean_text(system), now, now)
        with self._writing():
            self._conn.execute(
                "INSERT INTO chats (id, title, model, system, created_at, updated_at) VALUES (?, ?, ?, ?, ?, ?)", values
            )
        return self.chat(chat_id)

    def chats(self, limit: int | None = None, *, shelf: Shelf = Shelf.OPEN, tags: Sequence[str] = ()) -> list[Chat]:
        """The chats on a shelf that have all these tags, or the first `limit` of them.

        Pinned ones come first on OPEN, then the most recently active, archived or trashed.
        """
        sql = queries.chats_on(shelf, len(tags))
        return [queries.chat_of(row) for row in self._rows(sql, *tags, -1 if limit is None else limit)]

    def chat(self, chat_id: str) -> Chat:
        """The chat with this id or unique prefix, in any case; ChatNotFoundError, AmbiguousChatError."""
        prefix = chat_id.strip().lower()
        # "~" lies behind every digit and letter of an id, so this range is "begins with"
        rows = self._rows(queries.CHATS_BY_PREFIX, prefix, prefix + "~", _NUM_CANDIDATES) if prefix else []
        if not rows:
            raise refusals.no_chat(chat_id)
        if len(rows) > 1 and rows[0]["id"] != prefix:
            raise refusals.ambiguous(prefix, [row["id"] for row in rows])
        return queries.chat_of(rows[0])

    def last_chat(self) -> Chat:
        """The most recently active open chat; NoChatsError."""
        for row in self._rows(queries.LAST_CHAT):
            return queries.chat_of(row)
        raise refusals.no_chats()

    def rename_chat(self, chat_id: str, title: str, *, instead_of: str | None = None) -> None:
        """Set the title, which counts as no activity; with `instead_of` only if it is that one. ChatNotFoundError."""
        with self._writing():
            changed = self._conn.execute(queries.RENAME_CHAT, (clean_text(title), instead_of, chat_id))
            if not changed.rowcount:
                raise refusals.no_chat(chat_id)

    # ---- turns ----

    def turns(self, chat_id: str) -> list[Turn]:
        """The turns from the root to the tip of the chat, in order; ChatNotFoundError."""
        return [queries.turn_of(row) for row in self._rows(queries.PATH, self._tip_id(chat_id))]

    def turn(self, turn_id: str) -> Turn:
        """The turn with this id; TurnNotFoundError."""
        for row in self._rows(queries.TURN_BY_ID, turn_id):
            return queries.turn_of(row)
        raise refusals.no_turn(turn_id)

    def begin_turn(
        self,
        chat_id: str,
        *,
        prompt: str,
        host: str,
        kept_tokens: int,
        prompt_ids: Sequence[int],
        parent_id: str | AtTip | None = Place.TIP,
        must_be_tip: bool = False,
        model: str | None = None,
        template: TemplateUse | None = None,
    ) -> Turn:
        """Write a running turn and make it the chat's tip; `prompt_ids` come behind `kept_tokens` ids of its parent.

        `model` is the one that is asked (None: the chat's). An archived chat is open again.

        The parent is the tip as it is inside the transaction, or `parent_id` (None: a new root). A caller that built
        its ids on a tip that it read before names it and sets `must_be_tip`: ChatMovedError says that it was overtaken.
        ChatNotFoundError, ChatTrashedError, TurnNotFoundError (no such parent), TokenIdsError (it has fewer ids).
        """
        values = {
            "id": new_id(),
            "chat_id": chat_id,
            "prompt": clean_text(prompt),
            "host": clean_text(host),
            "kept_tokens": kept_tokens,
            "prompt_ids": pack_ids(prompt_ids),
            "prompt_tokens": kept_tokens + len(prompt_ids),
            "template": template.name if template else None,
            "template_hash": template.content_hash if template else None,
            "created_at": now_ms(),
        }
        with self._writing():
            chat = self._whole_chat(chat_id)
            parent = chat.tip_id if parent_id is Place.TIP else parent_id
            if must_be_tip and parent != chat.tip_id:
                raise refusals.moved(chat_id)
            values |= {"parent_id": parent, "depth": self._depth_under(parent, kept_tokens)}
            self._insert_turn(values | {"model": clean_text(model or chat.model)})
            self._conn.execute("UPDATE chats SET tip_id = ?, archived_at = NULL WHERE id = ?", (values["id"], chat_id))
            self._conn.execute(queries.TOUCH_CHAT, (values["created_at"], chat_id))
        return self.turn(str(values["id"]))

    def flush_turn(self, turn_id: str, *, reply: str, reply_ids: Sequence[int]) -> None:
        """Keep the whole reply so far of a running turn; TurnNotFoundError, TurnClosedError."""
        self._update_running(queries.FLUSH_TURN, turn_id, queries.reply_values(reply, reply_ids))

    def end_turn(
        self,
        turn_id: str,
        *,
        status: TurnStatus,
        stop_reason: str,
        reply: str,
        reply_ids: Sequence[int],
        counts: TurnCounts,
        timings: TurnTimings,
        error: str = "",
    ) -> None:
        """Close a running turn with its whole reply; TurnNotFoundError, TurnClosedError."""
        assert status is not TurnStatus.RUNNING, "a turn cannot end as running"
        ending = {"status": status.value, "stop_reason": stop_reason, "error": clean_text(error), "now": now_ms()}
        values = queries.reply_values(reply, reply_ids) | asdict(counts) | asdict(timings) | ending
        self._update_running(queries.END_TURN, turn_id, values)

    def token_ids(self, turn_id: str) -> list[int]:
        """All exact ids of the conversation up to the end of this turn's reply; TurnNotFoundError, TokenIdsError."""
        rows = self._rows(queries.TOKEN_IDS, turn_id)
        if not rows:
            raise refusals.no_turn(turn_id)
        ids: list[int] = []
        for row in rows:
            refusals.check_kept(row["id"], row["kept_tokens"], len(ids))
            del ids[row["kept_tokens"] :]
            ids += unpack_ids(row["prompt_ids"]) + unpack_ids(row["reply_ids"])
        return ids

    # ---- hosts and other processes ----

    def running_hosts(self) -> set[str]:
        """The hosts that have running turns; one that is not alive should be handed to `interrupt_turns`."""
        return {row["host"] for row in self._rows(queries.RUNNING_HOSTS)}

    def interrupt_turns(self, host: str) -> int:
        """Close the running turns of a dead host as interrupted, their text kept; how many there were."""
        with self._writing():
            return self._conn.execute(queries.INTERRUPT_TURNS, (now_ms(), host)).rowcount

    def data_version(self) -> int:
        """A number that changes when another connection has written; it means nothing outside this instance."""
        return int(self._rows("PRAGMA data_version")[0][0])

    # ---- several reads or writes as one ----

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """The connection inside one read transaction, which sees the file as it was at its start; StoreReadError."""
        with naming_errors(self.path, "read", StoreReadError):
            self._conn.execute("BEGIN")
            try:
                yield self._conn
            finally:
                if self._conn.in_transaction:  # an error may have ended it
                    self._conn.execute("ROLLBACK")

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """The connection inside one write transaction, which the writes of the body join; StoreWriteError."""
        with self._writing():
            yield self._conn

    # ---- the machinery ----

    def _prepare(self) -> None:
        with naming_errors(self.path, "open", StoreOpenError):
            if is_foreign(self._conn):
                remedy = "Move it away, or set OCTAVO_HOME to another folder."
                raise StoreOpenError(f"{self.path} is a database of another program", remedy)
            close_to_others(self.path)
            enable_wal(self._conn)
            newer = unknown(self._conn)
        if newer:
            self._conn.execute("PRAGMA query_only = ON")
            self.notice = (
                f"{self.path} was written by a newer octavo and is open for reading only. Update octavo to write."
            )
            return
        with naming_errors(self.path, "set up", StoreWriteError):
            migrate(self._conn, self.path)

    @contextmanager
    def _writing(self) -> Iterator[None]:
        if self.is_read_only:
            raise StoreReadOnlyError(f"{self.path} was written by a newer octavo", "Update octavo to write to it.")
        transaction = nullcontext() if self._conn.in_transaction else immediate(self._conn)
        with naming_errors(self.path, "write to", StoreWriteError), transaction:
            yield

    def _rows(self, sql: str, *values: object) -> list[sqlite3.Row]:
        with naming_errors(self.path, "read", StoreReadError):
            return self._conn.execute(sql, values).fetchall()

    def _tip_id(self, chat_id: str) -> str | None:
        for (tip_id,) in self._rows("SELECT tip_id FROM chats WHERE id = ?", chat_id):
            return None if tip_id is None else str(tip_id)
        raise refusals.no_chat(chat_id)

    def _whole_chat(self, chat_id: str) -> Chat:
        for row in self._rows(queries.CHAT_BY_ID, chat_id):
            if row["trashed_at"] is not None:
                raise refusals.trashed(chat_id)
            return queries.chat_of(row)
        raise refusals.no_chat(chat_id)

    def _depth_under(self, parent_id: str | None, kept_tokens: int) -> int:
        if parent_id is None:
            refusals.check_kept("nothing", kept_tokens, 0)
            return 1
        for depth, num_ids in self._rows(queries.PARENT, parent_id):
            refusals.check_kept(parent_id, kept_tokens, num_ids)
            return int(depth) + 1
        raise refusals.no_turn(parent_id)

    def _insert_turn(self, values: dict[str, object]) -> None:
        columns, places = ", ".join(values), ", ".join(f":{name}" for name in values)
        self._conn.execute(f"INSERT INTO turns ({columns}) VALUES ({places})", values)

    def _update_running(self, sql: str, turn_id: str, values: dict[str, object]) -> None:
        with self._writing():
            if not self._conn.execute(sql, values | {"id": turn_id}).rowcount:
                raise refusals.closed(turn_id, self.turn(turn_id).status)
            if "now" in values:  # an ending is activity, a flush is not
                self._conn.execute(queries.TOUCH_CHAT_OF_TURN, (values["now"], turn_id))
