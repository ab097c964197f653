PRAGMA foreign_keys = OFF;
PRAGMA application_id = 1329812566;
CREATE TABLE migrations (name TEXT PRIMARY KEY, applied_at INTEGER NOT NULL);
CREATE TABLE chats (
    id TEXT PRIMARY KEY NOT NULL,
    title TEXT NOT NULL,
    model TEXT NOT NULL,
    system TEXT NOT NULL DEFAULT '',
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL CHECK (updated_at >= created_at),
    tip_id TEXT REFERENCES turns(id) DEFERRABLE INITIALLY DEFERRED
, is_pinned INTEGER NOT NULL DEFAULT 0 CHECK (is_pinned IN (0, 1)), archived_at INTEGER, trashed_at INTEGER);
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
    ended_at INTEGER, model TEXT NOT NULL DEFAULT '', template TEXT, template_hash TEXT CHECK ((template_hash IS NULL) = (template IS NULL)), number INTEGER,
    CHECK ((status = 'running') = (ended_at IS NULL)),
    CHECK ((parent_id IS NULL) = (depth = 1)),
    CHECK (parent_id IS NOT NULL OR kept_tokens = 0)
);
CREATE TABLE tags (
    chat_id TEXT NOT NULL REFERENCES chats(id) ON DELETE CASCADE,
    tag TEXT NOT NULL CHECK (tag <> ''),
    PRIMARY KEY (chat_id, tag)
) WITHOUT ROWID
;
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
);
INSERT INTO migrations (name, applied_at) VALUES ('m001_chats_and_turns', 1795980969420);
INSERT INTO migrations (name, applied_at) VALUES ('m002_what_a_turn_was_asked_with', 1795980969423);
INSERT INTO migrations (name, applied_at) VALUES ('m003_shelves', 1795980969424);
INSERT INTO migrations (name, applied_at) VALUES ('m004_search', 1795980969425);
INSERT INTO migrations (name, applied_at) VALUES ('m005_kv_blocks', 1795980969430);
INSERT INTO migrations (name, applied_at) VALUES ('m006_search_in_scripts_without_spaces', 1795980969431);
INSERT INTO chats (id, title, model, system, created_at, updated_at, tip_id, is_pinned, archived_at, trashed_at) VALUES ('01m8mcxhfewmacsknrp27bd41f', 'Rivers', 'smollm2-135m', 'Be brief.', 1795980969454, 1795980969457, '01m8mcxhfhn20d9rq11yvpmbv3', 1, NULL, NULL);
INSERT INTO chats (id, title, model, system, created_at, updated_at, tip_id, is_pinned, archived_at, trashed_at) VALUES ('01m8mcxhfhn20d9rq11yvpmbv4', 'Half a chat', 'echo', '', 1795980969457, 1795980969457, '01m8mcxhfhn20d9rq11yvpmbv5', 0, 1795980969458, NULL);
INSERT INTO chats (id, title, model, system, created_at, updated_at, tip_id, is_pinned, archived_at, trashed_at) VALUES ('01m8mcxhfj02vy6s71mrznz1d1', 'Empty', 'smollm2-135m', '', 1795980969458, 1795980969458, NULL, 0, NULL, NULL);
INSERT INTO chats (id, title, model, system, created_at, updated_at, tip_id, is_pinned, archived_at, trashed_at) VALUES ('01m8mcxhfkxwd8cmr40t8wa1ja', 'Thrown away', 'smollm2-135m', '', 1795980969459, 1795980969459, NULL, 0, NULL, 1795980969459);
INSERT INTO turns (id, chat_id, parent_id, depth, prompt, reply, status, stop_reason, error, host, kept_tokens, prompt_ids, reply_ids, prompt_tokens, cached_tokens, computed_tokens, completion_tokens, queue_ms, first_token_ms, total_ms, tokens_per_s, created_at, ended_at, model, template, template_hash, number) VALUES ('01m8mcxhffkf58sg9h6b1c2sr2', '01m8mcxhfewmacsknrp27bd41f', NULL, 1, 'Which river is longest?', 'The Nile, it''s said.', 'done', 'stop', '', 'h-1', 0, X'0100000002000000', X'0500000006000000', 5, 2, 3, 2, 0.5, 20.25, 120.0, 33.4, 1795980969455, 1795980969455, 'smollm2-135m', NULL, NULL, 30131560648802304);
INSERT INTO turns (id, chat_id, parent_id, depth, prompt, reply, status, stop_reason, error, host, kept_tokens, prompt_ids, reply_ids, prompt_tokens, cached_tokens, computed_tokens, completion_tokens, queue_ms, first_token_ms, total_ms, tokens_per_s, created_at, ended_at, model, template, template_hash, number) VALUES ('01m8mcxhfgc3w1z8nfx9zgrsy4', '01m8mcxhfewmacsknrp27bd41f', '01m8mcxhffkf58sg9h6b1c2sr2', 2, 'And 最長の川は?', 'O Amazonas 🌊
', 'done', 'stop', '', 'h-1', 4, X'07000000', X'0500000006000000', 5, 2, 3, 2, 0.5, 20.25, 120.0, 33.4, 1795980969456, 1795980969456, 'smollm2-135m', NULL, NULL, 30131560648802305);
INSERT INTO turns (id, chat_id, parent_id, depth, prompt, reply, status, stop_reason, error, host, kept_tokens, prompt_ids, reply_ids, prompt_tokens, cached_tokens, computed_tokens, completion_tokens, queue_ms, first_token_ms, total_ms, tokens_per_s, created_at, ended_at, model, template, template_hash, number) VALUES ('01m8mcxhfhn20d9rq11yvpmbv3', '01m8mcxhfewmacsknrp27bd41f', '01m8mcxhffkf58sg9h6b1c2sr2', 2, 'And in Asia?', 'The Yangtze.', 'done', 'stop', '', 'h-1', 3, X'08000000', X'0500000006000000', 5, 2, 3, 2, 0.5, 20.25, 120.0, 33.4, 1795980969457, 1795980969457, 'smollm2-135m', 'geography', 'f00d', 30131560648802306);
INSERT INTO turns (id, chat_id, parent_id, depth, prompt, reply, status, stop_reason, error, host, kept_tokens, prompt_ids, reply_ids, prompt_tokens, cached_tokens, computed_tokens, completion_tokens, queue_ms, first_token_ms, total_ms, tokens_per_s, created_at, ended_at, model, template, template_hash, number) VALUES ('01m8mcxhfhn20d9rq11yvpmbv5', '01m8mcxhfhn20d9rq11yvpmbv4', NULL, 1, 'Tell a story.', 'Once upon', 'interrupted', 'interrupted', '', 'dead', 0, X'FFFFFFFF', X'0000000009000000', 1, 0, 0, 2, 0.0, 0.0, 0.0, 0.0, 1795980969457, 1795980969458, 'echo', NULL, NULL, 30131560648802307);
INSERT INTO tags (chat_id, tag) VALUES ('01m8mcxhfewmacsknrp27bd41f', 'geography');
INSERT INTO tags (chat_id, tag) VALUES ('01m8mcxhfewmacsknrp27bd41f', 'water');
INSERT INTO kv_blocks (name, fingerprint, parent, depth, token_ids, num_tokens, file, offset, num_bytes, checksum, tokens_per_s, hits, last_use, is_pinned) VALUES (X'6E6E6E6E6E6E6E6E6E6E6E6E6E6E6E6E6E6E6E6E6E6E6E6E6E6E6E6E6E6E6E6E', 'a model', X'7070707070707070707070707070707070707070707070707070707070707070', 1, X'010000000200000005000000', 3, '6e.kv', 80, 4096, X'6363636363636363636363636363636363636363636363636363636363636363', 0.0, 0, 1800000000000, 0);
CREATE INDEX chats_by_activity ON chats(updated_at DESC, id DESC);
CREATE INDEX running_turns ON turns(host) WHERE status = 'running';
CREATE INDEX open_chats ON chats(is_pinned DESC, updated_at DESC, id DESC) WHERE archived_at IS NULL AND trashed_at IS NULL;
CREATE INDEX archived_chats ON chats(archived_at DESC, id DESC) WHERE archived_at IS NOT NULL AND trashed_at IS NULL;
CREATE INDEX trashed_chats ON chats(trashed_at DESC, id DESC) WHERE trashed_at IS NOT NULL;
CREATE INDEX chats_by_tag ON tags(tag, chat_id);
CREATE INDEX chats_by_tip ON chats(tip_id);
CREATE INDEX turns_by_chat ON turns(chat_id);
CREATE INDEX turns_by_parent ON turns(parent_id);
CREATE UNIQUE INDEX turns_by_number ON turns(number);
CREATE INDEX kv_blocks_by_parent ON kv_blocks(parent);
CREATE INDEX kv_blocks_by_fingerprint ON kv_blocks(fingerprint);
CREATE INDEX kv_blocks_by_use ON kv_blocks(is_pinned, last_use, depth DESC, num_bytes, hits);
CREATE VIEW searchable AS SELECT number, CASE WHEN length(CAST(prompt AS BLOB)) > length(prompt) AND prompt GLOB '*[฀-႟ក-៿ᥐ-᧟ᨠ-᪯⺀-꓏ꩠ-꫟가-퟿豈-﫿ｦ-ￜ𠀀-𿿿]*' THEN (
        WITH RECURSIVE
        pieces(piece, rest) AS (
            SELECT substr(prompt, 1, 256), substr(prompt, 257)
            UNION ALL SELECT substr(rest, 1, 256), substr(rest, 257) FROM pieces WHERE rest <> ''
        ),
        numbers(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < 256)
        SELECT group_concat(iif(char GLOB '[฀-႟ក-៿ᥐ-᧟ᨠ-᪯⺀-꓏ꩠ-꫟가-퟿豈-﫿ｦ-ￜ𠀀-𿿿]', ' ' || char || ' ', char), '')
        FROM (SELECT substr(piece, n, 1) AS char FROM pieces CROSS JOIN numbers WHERE n <= length(piece))
    ) ELSE prompt END AS prompt, CASE WHEN length(CAST(reply AS BLOB)) > length(reply) AND reply GLOB '*[฀-႟ក-៿ᥐ-᧟ᨠ-᪯⺀-꓏ꩠ-꫟가-퟿豈-﫿ｦ-ￜ𠀀-𿿿]*' THEN (
        WITH RECURSIVE
        pieces(piece, rest) AS (
            SELECT substr(reply, 1, 256), substr(reply, 257)
            UNION ALL SELECT substr(rest, 1, 256), substr(rest, 257) FROM pieces WHERE rest <> ''
        ),
        numbers(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < 256)
        SELECT group_concat(iif(char GLOB '[฀-႟ក-៿ᥐ-᧟ᨠ-᪯⺀-꓏ꩠ-꫟가-퟿豈-﫿ｦ-ￜ𠀀-𿿿]', ' ' || char || ' ', char), '')
        FROM (SELECT substr(piece, n, 1) AS char FROM pieces CROSS JOIN numbers WHERE n <= length(piece))
    ) ELSE reply END AS reply
FROM turns WHERE status <> 'running' AND number IS NOT NULL;
CREATE VIRTUAL TABLE search USING fts5(
    prompt, reply, content = 'searchable', content_rowid = 'number',
    tokenize = 'unicode61 remove_diacritics 2', prefix = '1 2 3'
);
INSERT INTO search(search) VALUES ('rebuild');
CREATE TRIGGER turn_added AFTER INSERT ON turns BEGIN
    UPDATE turns SET number = coalesce(
        (SELECT number + 1 FROM turns WHERE number >= new.created_at / 1000 * 16777216
            AND number < (new.created_at / 1000 + 1) * 16777216 ORDER BY number DESC LIMIT 1),
        new.created_at / 1000 * 16777216
    ) WHERE id = new.id;
    INSERT INTO search (rowid, prompt, reply) SELECT number, prompt, reply FROM searchable WHERE number = (SELECT number FROM turns WHERE id = new.id);
END;
CREATE TRIGGER turn_over AFTER UPDATE OF status ON turns WHEN old.status = 'running' AND new.status <> 'running' BEGIN
    INSERT INTO search (rowid, prompt, reply) SELECT number, prompt, reply FROM searchable WHERE number = new.number;
END;
CREATE TRIGGER turn_to_edit BEFORE UPDATE OF prompt, reply ON turns WHEN old.status <> 'running' BEGIN
    INSERT INTO search (search, rowid, prompt, reply) SELECT 'delete', number, prompt, reply FROM searchable WHERE number = old.number;
END;
CREATE TRIGGER turn_edited AFTER UPDATE OF prompt, reply ON turns WHEN old.status <> 'running' BEGIN
    INSERT INTO search (rowid, prompt, reply) SELECT number, prompt, reply FROM searchable WHERE number = new.number;
END;
CREATE TRIGGER turn_deleted BEFORE DELETE ON turns WHEN old.status <> 'running' BEGIN
    INSERT INTO search (search, rowid, prompt, reply) SELECT 'delete', number, prompt, reply FROM searchable WHERE number = old.number;
END;
