"""The schema as an append-only list of steps; `octavo_data.upgrading` runs those that a file lacks."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from octavo_data.signs import HAS_SIGNS, SIGNS_OF_TURN

if TYPE_CHECKING:
    from sqlite_utils import Database

Migration = Callable[["Database"], None]

APPLICATION_ID = 0x4F435456  # "OCTV" in the header of the file: this database is ours


def m001_chats_and_turns(db: "Database") -> None:
    """Chats, and turns as a tree: a chat points at the tip of its path, a turn at its parent."""
    db.execute(_CHATS)
    db.execute(_TURNS)
    db.execute("CREATE INDEX chats_by_activity ON chats(updated_at DESC, id DESC)")
    db.execute("CREATE INDEX running_turns ON turns(host) WHERE status = 'running'")
    db.execute(f"PRAGMA application_id = {APPLICATION_ID}")


def m002_what_a_turn_was_asked_with(db: "Database") -> None:
    """The model of each turn, for older ones that of their chat, which nearly all had; the template, if any."""
    db.execute("ALTER TABLE turns ADD COLUMN model TEXT NOT NULL DEFAULT ''")
    db.execute("ALTER TABLE turns ADD COLUMN template TEXT")
    db.execute("ALTER TABLE turns ADD COLUMN template_hash TEXT CHECK ((template_hash IS NULL) = (template IS NULL))")
    db.execute("UPDATE turns SET model = (SELECT chats.model FROM chats WHERE chats.id = turns.chat_id)")


def m003_shelves(db: "Database") -> None:
    """Pins, the archive, the trash and tags; and what it takes to find and delete the turns of a chat."""
    db.execute("ALTER TABLE chats ADD COLUMN is_pinned INTEGER NOT NULL DEFAULT 0 CHECK (is_pinned IN (0, 1))")
    db.execute("ALTER TABLE chats ADD COLUMN archived_at INTEGER")
    db.execute("ALTER TABLE chats ADD COLUMN trashed_at INTEGER")
    db.execute(_TAGS)
    for index in _INDEXES_FOR_SHELVES:
        db.execute(f"CREATE INDEX {index}")


def m004_search(db: "Database") -> None:
    """Full text of all turns that are over, kept by triggers: whoever writes a turn, it is found."""
    db.execute("ALTER TABLE turns ADD COLUMN number INTEGER")
    db.execute(_NUMBER_OLD_TURNS)
    db.execute("CREATE UNIQUE INDEX turns_by_number ON turns(number)")
    db.execute(
        "CREATE VIEW searchable AS SELECT number, prompt, reply FROM turns"
        " WHERE status <> 'running' AND number IS NOT NULL"
    )
    db.execute(_SEARCH)
    db.execute("INSERT INTO search(search) VALUES ('rebuild')")
    for trigger in _SEARCH_TRIGGERS:
        db.execute(f"CREATE TRIGGER {trigger}")


def m005_kv_blocks(db: "Database") -> None:
    """The KV blocks that lie on disk: which tokens each holds, and where its bytes are."""
    db.execute(_KV_BLOCKS)
    db.execute("CREATE INDEX kv_blocks_by_parent ON kv_blocks(parent)")
    db.execute("CREATE INDEX kv_blocks_by_fingerprint ON kv_blocks(fingerprint)")
    db.execute("CREATE INDEX kv_blocks_by_use ON kv_blocks(is_pinned, last_use, depth DESC, num_bytes, hits)")


def m006_search_in_scripts_without_spaces(db: "Database") -> None:
    """The index of m004 again, with each character of such a script as a word, so that any part of a text is found."""
    for trigger in ("turn_added", "turn_over", "turn_edited", "turn_deleted"):
        db.execute(f"DROP TRIGGER {trigger}")
    db.execute("DROP TABLE search")
    db.execute("DROP VIEW searchable")
    db.execute(_SPACED_VIEW)
    db.execute(_SEARCH)
    db.execute("INSERT INTO search(search) VALUES ('rebuild')")
    for trigger in _SPACED_TRIGGERS:
        db.execute(f"CREATE TRIGGER {trigger}")


def m007_signs(db: "Database") -> None:
    """Which signs a turn that is over has, for words without letters."""
    db.execute(f"CREATE INDEX turns_by_signs ON turns(number, {SIGNS_OF_TURN}) WHERE {HAS_SIGNS}")


MIGRATIONS: tuple[Migration, ...] = (
    m001_chats_and_turns,
    m002_what_a_turn_was_asked_with,
    m003_shelves,
    m004_search,
    m005_kv_blocks,
    m006_search_in_scripts_without_spaces,
    m007_signs,
)
"""Only ever append: a file in the world has run a prefix of this list."""

CHANGES_DATA = frozenset({m002_what_a_turn_was_asked_with.__name__})
"""The migrations that write to rows of before: a copy of the file is made ahead of them."""


_CHATS = """
CREATE TABLE chats (
    id TEXT PRIMARY KEY NOT NULL,
    title TEXT NOT NULL,
    model TEXT NOT NULL,
    system TEXT NOT NULL DEFAULT '',
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL CHECK (updated_at >= created_at),
    tip_id TEXT REFERENCES turns(id) DEFERRABLE INITIALLY DEFERRED
)
"""
# depth: how many turns from the root to here, so that a list of chats counts turns without walking each path.
_TURNS = """
CREATE TABLE turns (
    id TEXT PRIMARY KEY NOT NULL,
    chat_id TEXT NOT NULL REFERENCES chats(id),
    parent_id TEXT REFERENCES turns(id) CHECK (parent_id <> id),
    depth INTEGER NOT NULL CHECK (depth >= 1),
    prompt TEXT NOT NULL,
    reply TEXT NOT NULL DEFAULT '',
    status TEXT NOT NULL DEFAULT 'running' CHECK (status IN ('running', 'done', 'stopped', 'interrupted', 'failed')),
    stop_reason TEXT NOT NULL DEFAULT '',
    error TEXT NOT NULL DEFAULT '',
    host TEXT NOT NULL,
    kept_tokens INTEGER NOT NULL CHECK (kept_tokens >= 0),
    prompt_ids BLOB NOT NULL CHECK (length(prompt_ids) % 4 = 0),
    reply_ids BLOB NOT NULL DEFAULT x'' CHECK (length(reply_ids) % 4 = 0),
    prompt_tokens INTEGER NOT NULL DEFAULT 0 CHECK (prompt_tokens >= 0),
    cached_tokens INTEGER NOT NULL DEFAULT 0 CHECK (cached_tokens >= 0),
    computed_tokens INTEGER NOT NULL DEFAULT 0 CHECK (computed_tokens >= 0),
    completion_tokens INTEGER NOT NULL DEFAULT 0 CHECK (completion_tokens >= 0),
    queue_ms REAL NOT NULL DEFAULT 0 CHECK (queue_ms >= 0),
    first_token_ms REAL NOT NULL DEFAULT 0 CHECK (first_token_ms >= 0),
    total_ms REAL NOT NULL DEFAULT 0 CHECK (total_ms >= 0),
    tokens_per_s REAL NOT NULL DEFAULT 0 CHECK (tokens_per_s >= 0),
    created_at INTEGER NOT NULL,
    ended_at INTEGER,
    CHECK ((status = 'running') = (ended_at IS NULL)),
    CHECK ((parent_id IS NULL) = (depth = 1)),
    CHECK (parent_id IS NOT NULL OR kept_tokens = 0)
)
"""
_TAGS = """
CREATE TABLE tags (
    chat_id TEXT NOT NULL REFERENCES chats(id) ON DELETE CASCADE,
    tag TEXT NOT NULL CHECK (tag <> ''),
    PRIMARY KEY (chat_id, tag)
) WITHOUT ROWID
"""
# One index for each list that is shown, in its order; the last three answer "who points here?" when turns are deleted.
_INDEXES_FOR_SHELVES = (
    "open_chats ON chats(is_pinned DESC, updated_at DESC, id DESC) WHERE archived_at IS NULL AND trashed_at IS NULL",
    "archived_chats ON chats(archived_at DESC, id DESC) WHERE archived_at IS NOT NULL AND trashed_at IS NULL",
    "trashed_chats ON chats(trashed_at DESC, id DESC) WHERE trashed_at IS NOT NULL",
    "chats_by_tag ON tags(tag, chat_id)",
    "chats_by_tip ON chats(tip_id)",
    "turns_by_chat ON turns(chat_id)",
    "turns_by_parent ON turns(parent_id)",
)
# Turns are numbered in the order of time, 2**24 numbers for each second: so FTS5, which walks its rows by number, gives
# the newest matches first without looking at the others, also when old chats are imported later. Not the rowid: without
# an INTEGER PRIMARY KEY a VACUUM may change it.
_NUMBER_OLD_TURNS = """
UPDATE turns SET number = numbered.number FROM (
    SELECT id, created_at / 1000 * 16777216
        + row_number() OVER (PARTITION BY created_at / 1000 ORDER BY created_at, id) - 1 AS number
    FROM turns
) AS numbered WHERE numbered.id = turns.id
"""
# External content, so that the text is stored once (an index without content that can delete needs SQLite 3.43).
# With prefixes of their own: "t" begins so many words that to merge what they index takes 0.1 s of 100,000 turns.
_SEARCH = """
CREATE VIRTUAL TABLE search USING fts5(
    prompt, reply, content = 'searchable', content_rowid = 'number',
    tokenize = 'unicode61 remove_diacritics 2', prefix = '1 2 3'
)
"""
# A running turn is not indexed: its reply is flushed each second, and each time all of it would be indexed anew.
_SEARCH_TRIGGERS = (
    """
turn_added AFTER INSERT ON turns BEGIN
    UPDATE turns SET number = coalesce(
        (SELECT number + 1 FROM turns WHERE number >= new.created_at / 1000 * 16777216
            AND number < (new.created_at / 1000 + 1) * 16777216 ORDER BY number DESC LIMIT 1),
        new.created_at / 1000 * 16777216
    ) WHERE id = new.id;
    INSERT INTO search (rowid, prompt, reply)
        SELECT number, prompt, reply FROM turns WHERE id = new.id AND status <> 'running';
END""",
    """
turn_over AFTER UPDATE OF status ON turns WHEN old.status = 'running' AND new.status <> 'running' BEGIN
    INSERT INTO search (rowid, prompt, reply) VALUES (new.number, new.prompt, new.reply);
END""",
    """
turn_edited AFTER UPDATE OF prompt, reply ON turns WHEN old.status <> 'running' BEGIN
    INSERT INTO search (search, rowid, prompt, reply) VALUES ('delete', old.number, old.prompt, old.reply);
    INSERT INTO search (rowid, prompt, reply) VALUES (new.number, new.prompt, new.reply);
END""",
    """
turn_deleted AFTER DELETE ON turns WHEN old.status <> 'running' BEGIN
    INSERT INTO search (search, rowid, prompt, reply) VALUES ('delete', old.number, old.prompt, old.reply);
END""",
)
# name: the chained digest that ends with token_ids; parent: the one before it; depth: how many blocks come before.
# file lies in the folder of KV blocks, offset is where its num_bytes of KV begin, checksum is their SHA-256.
_KV_BLOCKS = """
CREATE TABLE kv_blocks (
    name BLOB PRIMARY KEY NOT NULL,
    fingerprint TEXT NOT NULL,
    parent BLOB NOT NULL,
    depth INTEGER NOT NULL CHECK (depth >= 0),
    token_ids BLOB NOT NULL CHECK (length(token_ids) % 4 = 0),
    num_tokens INTEGER NOT NULL CHECK (num_tokens * 4 = length(token_ids)),
    file TEXT NOT NULL UNIQUE,
    offset INTEGER NOT NULL CHECK (offset >= 0),
    num_bytes INTEGER NOT NULL CHECK (num_bytes > 0),
    checksum BLOB NOT NULL,
    tokens_per_s REAL NOT NULL DEFAULT 0 CHECK (tokens_per_s >= 0),
    hits INTEGER NOT NULL DEFAULT 0,
    last_use INTEGER NOT NULL,
    is_pinned INTEGER NOT NULL DEFAULT 0 CHECK (is_pinned IN (0, 1))
)
"""

UNSPACED = (
    "\u0e00-\u109f\u1780-\u17ff\u1950-\u19df\u1a20-\u1aaf\u2e80-\ua4cf\uaa60-\uaadf\uac00-\ud7ff"
    "\uf900-\ufaff\uff66-\uffdc\U00020000-\U0003ffff"
)
"""Scripts without spaces between words, or whose words end in many ways: Thai to Tibetan, Burmese, Khmer, the Tai
scripts, Chinese, Japanese, Yi, Korean. As the inside of a character class; another choice is another migration."""


def _spaced(column: str) -> str:
    """The text with a space on each side of such characters; cut into pieces first, for substr() counts from the start.

    SQLite's functions end at a NUL, so what is behind one stays as it is. Plain ASCII, which has as many bytes as
    characters, is told apart at once.
    """
    return f"""CASE WHEN length(CAST({column} AS BLOB)) > length({column}) AND {column} GLOB '*[{UNSPACED}]*' THEN (
        WITH RECURSIVE
        pieces(piece, rest) AS (
            SELECT substr({column}, 1, 256), substr({column}, 257)
            UNION ALL SELECT substr(rest, 1, 256), substr(rest, 257) FROM pieces WHERE rest <> ''
        ),
        numbers(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < 256)
        SELECT group_concat(iif(char GLOB '[{UNSPACED}]', ' ' || char || ' ', char), '')
        FROM (SELECT substr(piece, n, 1) AS char FROM pieces CROSS JOIN numbers WHERE n <= length(piece))
    ) ELSE {column} END"""


_SPACED_VIEW = f"""
CREATE VIEW searchable AS SELECT number, {_spaced("prompt")} AS prompt, {_spaced("reply")} AS reply
FROM turns WHERE status <> 'running' AND number IS NOT NULL
"""
_INDEX = "INSERT INTO search (rowid, prompt, reply) SELECT number, prompt, reply FROM searchable WHERE number ="
_UNINDEX = (
    "INSERT INTO search (search, rowid, prompt, reply)"
    " SELECT 'delete', number, prompt, reply FROM searchable WHERE number ="
)
# What was indexed is read from the view while the row is still there: before the change.
_SPACED_TRIGGERS = (
    f"""
turn_added AFTER INSERT ON turns BEGIN
    UPDATE turns SET number = coalesce(
        (SELECT number + 1 FROM turns WHERE number >= new.created_at / 1000 * 16777216
            AND number < (new.created_at / 1000 + 1) * 16777216 ORDER BY number DESC LIMIT 1),
        new.created_at / 1000 * 16777216
    ) WHERE id = new.id;
    {_INDEX} (SELECT number FROM turns WHERE id = new.id);
END""",
    f"""
turn_over AFTER UPDATE OF status ON turns WHEN old.status = 'running' AND new.status <> 'running' BEGIN
    {_INDEX} new.number;
END""",
    f"""
turn_to_edit BEFORE UPDATE OF prompt, reply ON turns WHEN old.status <> 'running' BEGIN
    {_UNINDEX} old.number;
END""",
    f"""
turn_edited AFTER UPDATE OF prompt, reply ON turns WHEN old.status <> 'running' BEGIN
    {_INDEX} new.number;
END""",
    f"""
turn_deleted BEFORE DELETE ON turns WHEN old.status <> 'running' BEGIN
    {_UNINDEX} old.number;
END""",
)
