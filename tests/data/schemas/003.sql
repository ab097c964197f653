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
    ended_at INTEGER, model TEXT NOT NULL DEFAULT '', template TEXT, template_hash TEXT CHECK ((template_hash IS NULL) = (template IS NULL)),
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
INSERT INTO migrations (name, applied_at) VALUES ('m001_chats_and_turns', 1795977470457);
INSERT INTO migrations (name, applied_at) VALUES ('m002_what_a_turn_was_asked_with', 1795977962405);
INSERT INTO migrations (name, applied_at) VALUES ('m003_shelves', 1795977962411);
INSERT INTO chats (id, title, model, system, created_at, updated_at, tip_id, is_pinned, archived_at, trashed_at) VALUES ('01m8m9jrgtf4fc3mpqqm52t60z', 'Rivers', 'smollm2-135m', 'Be brief.', 1795977470490, 1795977470493, '01m8m9jrgx40pbmjjj0h9qmzv6', 0, NULL, NULL);
INSERT INTO chats (id, title, model, system, created_at, updated_at, tip_id, is_pinned, archived_at, trashed_at) VALUES ('01m8m9jrgx40pbmjjj0h9qmzv7', 'Half a chat', 'echo', '', 1795977470493, 1795977470493, '01m8m9jrgx40pbmjjj0h9qmzv8', 0, NULL, NULL);
INSERT INTO chats (id, title, model, system, created_at, updated_at, tip_id, is_pinned, archived_at, trashed_at) VALUES ('01m8m9jrgym44demprzwk85ett', 'Empty', 'smollm2-135m', '', 1795977470494, 1795977470494, NULL, 0, NULL, NULL);
INSERT INTO turns (id, chat_id, parent_id, depth, prompt, reply, status, stop_reason, error, host, kept_tokens, prompt_ids, reply_ids, prompt_tokens, cached_tokens, computed_tokens, completion_tokens, queue_ms, first_token_ms, total_ms, tokens_per_s, created_at, ended_at, model, template, template_hash) VALUES ('01m8m9jrgvm4q6ygb1g9m1yagd', '01m8m9jrgtf4fc3mpqqm52t60z', NULL, 1, 'Which river is longest?', 'The Nile, it''s said.', 'done', 'stop', '', 'h-1', 0, X'0100000002000000', X'0500000006000000', 5, 2, 3, 2, 0.5, 20.25, 120.0, 33.4, 1795977470491, 1795977470492, 'smollm2-135m', NULL, NULL);
INSERT INTO turns (id, chat_id, parent_id, depth, prompt, reply, status, stop_reason, error, host, kept_tokens, prompt_ids, reply_ids, prompt_tokens, cached_tokens, computed_tokens, completion_tokens, queue_ms, first_token_ms, total_ms, tokens_per_s, created_at, ended_at, model, template, template_hash) VALUES ('01m8m9jrgw9qfgh6peq8m52qzn', '01m8m9jrgtf4fc3mpqqm52t60z', '01m8m9jrgvm4q6ygb1g9m1yagd', 2, 'And 最長の川は?', 'O Amazonas 🌊
', 'done', 'stop', '', 'h-1', 4, X'07000000', X'0500000006000000', 5, 2, 3, 2, 0.5, 20.25, 120.0, 33.4, 1795977470492, 1795977470493, 'smollm2-135m', NULL, NULL);
INSERT INTO turns (id, chat_id, parent_id, depth, prompt, reply, status, stop_reason, error, host, kept_tokens, prompt_ids, reply_ids, prompt_tokens, cached_tokens, computed_tokens, completion_tokens, queue_ms, first_token_ms, total_ms, tokens_per_s, created_at, ended_at, model, template, template_hash) VALUES ('01m8m9jrgx40pbmjjj0h9qmzv6', '01m8m9jrgtf4fc3mpqqm52t60z', '01m8m9jrgvm4q6ygb1g9m1yagd', 2, 'And in Asia?', 'The Yangtze.', 'done', 'stop', '', 'h-1', 3, X'08000000', X'0500000006000000', 5, 2, 3, 2, 0.5, 20.25, 120.0, 33.4, 1795977470493, 1795977470493, 'smollm2-135m', NULL, NULL);
INSERT INTO turns (id, chat_id, parent_id, depth, prompt, reply, status, stop_reason, error, host, kept_tokens, prompt_ids, reply_ids, prompt_tokens, cached_tokens, computed_tokens, completion_tokens, queue_ms, first_token_ms, total_ms, tokens_per_s, created_at, ended_at, model, template, template_hash) VALUES ('01m8m9jrgx40pbmjjj0h9qmzv8', '01m8m9jrgx40pbmjjj0h9qmzv7', NULL, 1, 'Tell a story.', 'Once upon', 'interrupted', 'interrupted', '', 'dead', 0, X'FFFFFFFF', X'0000000009000000', 1, 0, 0, 2, 0.0, 0.0, 0.0, 0.0, 1795977470493, 1795977470494, 'echo', NULL, NULL);
CREATE INDEX chats_by_activity ON chats(updated_at DESC, id DESC);
CREATE INDEX running_turns ON turns(host) WHERE status = 'running';
CREATE INDEX open_chats ON chats(is_pinned DESC, updated_at DESC, id DESC) WHERE archived_at IS NULL AND trashed_at IS NULL;
CREATE INDEX archived_chats ON chats(archived_at DESC, id DESC) WHERE archived_at IS NOT NULL AND trashed_at IS NULL;
CREATE INDEX trashed_chats ON chats(trashed_at DESC, id DESC) WHERE trashed_at IS NOT NULL;
CREATE INDEX chats_by_tag ON tags(tag, chat_id);
CREATE INDEX chats_by_tip ON chats(tip_id);
CREATE INDEX turns_by_chat ON turns(chat_id);
CREATE INDEX turns_by_parent ON turns(parent_id);
