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
INSERT INTO migrations (name, applied_at) VALUES ('m001_chats_and_turns', 1795978037187);
INSERT INTO migrations (name, applied_at) VALUES ('m002_what_a_turn_was_asked_with', 1795978037195);
INSERT INTO migrations (name, applied_at) VALUES ('m003_shelves', 1795978037196);
INSERT INTO migrations (name, applied_at) VALUES ('m004_search', 1795978037202);
INSERT INTO chats (id, title, model, system, created_at, updated_at, tip_id, is_pinned, archived_at, trashed_at) VALUES ('01m8ma41zbep10r9xqtqq102en', 'Rivers', 'smollm2-135m', 'Be brief.', 1795978037227, 1795978037229, '01m8ma41zdey0yybyxkrd20tvr', 1, NULL, NULL);
INSERT INTO chats (id, title, model, system, created_at, updated_at, tip_id, is_pinned, archived_at, trashed_at) VALUES ('01m8ma41zej59fwgpdd2qkptks', 'Half a chat', 'echo', '', 1795978037230, 1795978037230, '01m8ma41zej59fwgpdd2qkptkt', 0, 1795978037231, NULL);
INSERT INTO chats (id, title, model, system, created_at, updated_at, tip_id, is_pinned, archived_at, trashed_at) VALUES ('01m8ma41zej59fwgpdd2qkptkv', 'Empty', 'smollm2-135m', '', 1795978037230, 1795978037230, NULL, 0, NULL, NULL);
INSERT INTO chats (id, title, model, system, created_at, updated_at, tip_id, is_pinned, archived_at, trashed_at) VALUES ('01m8ma41zfv1kjzzv653yfaeyg', 'Thrown away', 'smollm2-135m', '', 1795978037231, 1795978037231, NULL, 0, NULL, 1795978037231);
INSERT INTO turns (id, chat_id, parent_id, depth, prompt, reply, status, stop_reason, error, host, kept_tokens, prompt_ids, reply_ids, prompt_tokens, cached_tokens, computed_tokens, completion_tokens, queue_ms, first_token_ms, total_ms, tokens_per_s, created_at, ended_at, model, template, template_hash, number) VALUES ('01m8ma41zbep10r9xqtqq102ep', '01m8ma41zbep10r9xqtqq102en', NULL, 1, 'Which river is longest?', 'The Nile, it''s said.', 'done', 'stop', '', 'h-1', 0, X'0100000002000000', X'0500000006000000', 5, 2, 3, 2, 0.5, 20.25, 120.0, 33.4, 1795978037227, 1795978037228, 'smollm2-135m', NULL, NULL, 30131511458004992);
INSERT INTO turns (id, chat_id, parent_id, depth, prompt, reply, status, stop_reason, error, host, kept_tokens, prompt_ids, reply_ids, prompt_tokens, cached_tokens, computed_tokens, completion_tokens, queue_ms, first_token_ms, total_ms, tokens_per_s, created_at, ended_at, model, template, template_hash, number) VALUES ('01m8ma41zdey0yybyxkrd20tvq', '01m8ma41zbep10r9xqtqq102en', '01m8ma41zbep10r9xqtqq102ep', 2, 'And 最長の川は?', 'O Amazonas 🌊
', 'done', 'stop', '', 'h-1', 4, X'07000000', X'0500000006000000', 5, 2, 3, 2, 0.5, 20.25, 120.0, 33.4, 1795978037229, 1795978037229, 'smollm2-135m', NULL, NULL, 30131511458004993);
INSERT INTO turns (id, chat_id, parent_id, depth, prompt, reply, status, stop_reason, error, host, kept_tokens, prompt_ids, reply_ids, prompt_tokens, cached_tokens, computed_tokens, completion_tokens, queue_ms, first_token_ms, total_ms, tokens_per_s, created_at, ended_at, model, template, template_hash, number) VALUES ('01m8ma41zdey0yybyxkrd20tvr', '01m8ma41zbep10r9xqtqq102en', '01m8ma41zbep10r9xqtqq102ep', 2, 'And in Asia?', 'The Yangtze.', 'done', 'stop', '', 'h-1', 3, X'08000000', X'0500000006000000', 5, 2, 3, 2, 0.5, 20.25, 120.0, 33.4, 1795978037229, 1795978037229, 'smollm2-135m', 'geography', 'f00d', 30131511458004994);
INSERT INTO turns (id, chat_id, parent_id, depth, prompt, reply, status, stop_reason, error, host, kept_tokens, prompt_ids, reply_ids, prompt_tokens, cached_tokens, computed_tokens, completion_tokens, queue_ms, first_token_ms, total_ms, tokens_per_s, created_at, ended_at, model, template, template_hash, number) VALUES ('01m8ma41zej59fwgpdd2qkptkt', '01m8ma41zej59fwgpdd2qkptks', NULL, 1, 'Tell a story.', 'Once upon', 'interrupted', 'interrupted', '', 'dead', 0, X'FFFFFFFF', X'0000000009000000', 1, 0, 0, 2, 0.0, 0.0, 0.0, 0.0, 1795978037230, 1795978037230, 'echo', NULL, NULL, 30131511458004995);
INSERT INTO tags (chat_id, tag) VALUES ('01m8ma41zbep10r9xqtqq102en', 'geography');
INSERT INTO tags (chat_id, tag) VALUES ('01m8ma41zbep10r9xqtqq102en', 'water');
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
CREATE VIEW searchable AS SELECT number, prompt, reply FROM turns WHERE status <> 'running' AND number IS NOT NULL;
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
    INSERT INTO search (rowid, prompt, reply)
        SELECT number, prompt, reply FROM turns WHERE id = new.id AND status <> 'running';
END;
CREATE TRIGGER turn_over AFTER UPDATE OF status ON turns WHEN old.status = 'running' AND new.status <> 'running' BEGIN
    INSERT INTO search (rowid, prompt, reply) VALUES (new.number, new.prompt, new.reply);
END;
CREATE TRIGGER turn_edited AFTER UPDATE OF prompt, reply ON turns WHEN old.status <> 'running' BEGIN
    INSERT INTO search (search, rowid, prompt, reply) VALUES ('delete', old.number, old.prompt, old.reply);
    INSERT INTO search (rowid, prompt, reply) VALUES (new.number, new.prompt, new.reply);
END;
CREATE TRIGGER turn_deleted AFTER DELETE ON turns WHEN old.status <> 'running' BEGIN
    INSERT INTO search (search, rowid, prompt, reply) VALUES ('delete', old.number, old.prompt, old.reply);
END;
