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
INSERT INTO migrations (name, applied_at) VALUES ('m001_chats_and_turns', 1796080541840);
INSERT INTO migrations (name, applied_at) VALUES ('m002_what_a_turn_was_asked_with', 1796080541841);
INSERT INTO migrations (name, applied_at) VALUES ('m003_shelves', 1796080541842);
INSERT INTO migrations (name, applied_at) VALUES ('m004_search', 1796080541843);
INSERT INTO migrations (name, applied_at) VALUES ('m005_kv_blocks', 1796080541843);
INSERT INTO migrations (name, applied_at) VALUES ('m006_search_in_scripts_without_spaces', 1796080541844);
INSERT INTO migrations (name, applied_at) VALUES ('m007_signs', 1796080541845);
INSERT INTO chats (id, title, model, system, created_at, updated_at, tip_id, is_pinned, archived_at, trashed_at) VALUES ('01m8qbw853587d3s166mbp00w6', 'Rivers', 'smollm2-135m', 'Be brief.', 1796080541859, 1796080541864, '01m8qbw858cp4ydf43zhk7182m', 1, NULL, NULL);
INSERT INTO chats (id, title, model, system, created_at, updated_at, tip_id, is_pinned, archived_at, trashed_at) VALUES ('01m8qbw858cp4ydf43zhk7182n', 'Half a chat', 'echo', '', 1796080541864, 1796080541864, '01m8qbw858cp4ydf43zhk7182p', 0, 1796080541866, NULL);
INSERT INTO chats (id, title, model, system, created_at, updated_at, tip_id, is_pinned, archived_at, trashed_at) VALUES ('01m8qbw85a43pad9ecc1550a12', 'Empty', 'smollm2-135m', '', 1796080541866, 1796080541866, NULL, 0, NULL, NULL);
INSERT INTO chats (id, title, model, system, created_at, updated_at, tip_id, is_pinned, archived_at, trashed_at) VALUES ('01m8qbw85a43pad9ecc1550a13', 'Thrown away', 'smollm2-135m', '', 1796080541866, 1796080541866, NULL, 0, NULL, 1796080541866);
INSERT INTO turns (id, chat_id, parent_id, depth, prompt, reply, status, stop_reason, error, host, kept_tokens, prompt_ids, reply_ids, prompt_tokens, cached_tokens, computed_tokens, completion_tokens, queue_ms, first_token_ms, total_ms, tokens_per_s, created_at, ended_at, model, template, template_hash, number) VALUES ('01m8qbw854639s3pbvccv8kac4', '01m8qbw853587d3s166mbp00w6', NULL, 1, 'Which river is longest?', 'The Nile, it''s said.', 'done', 'stop', '', 'h-1', 0, X'0100000002000000', X'0500000006000000', 5, 2, 3, 2, 0.5, 20.25, 120.0, 33.4, 1796080541860, 1796080541862, 'smollm2-135m', NULL, NULL, 30133231189753856);
INSERT INTO turns (id, chat_id, parent_id, depth, prompt, reply, status, stop_reason, error, host, kept_tokens, prompt_ids, reply_ids, prompt_tokens, cached_tokens, computed_tokens, completion_tokens, queue_ms, first_token_ms, total_ms, tokens_per_s, created_at, ended_at, model, template, template_hash, number) VALUES ('01m8qbw857w56z8xf5tasvqna5', '01m8qbw853587d3s166mbp00w6', '01m8qbw854639s3pbvccv8kac4', 2, 'And 最長の川は?', 'O Amazonas 🌊
', 'done', 'stop', '', 'h-1', 4, X'07000000', X'0500000006000000', 5, 2, 3, 2, 0.5, 20.25, 120.0, 33.4, 1796080541863, 1796080541863, 'smollm2-135m', NULL, NULL, 30133231189753857);
INSERT INTO turns (id, chat_id, parent_id, depth, prompt, reply, status, stop_reason, error, host, kept_tokens, prompt_ids, reply_ids, prompt_tokens, cached_tokens, computed_tokens, completion_tokens, queue_ms, first_token_ms, total_ms, tokens_per_s, created_at, ended_at, model, template, template_hash, number) VALUES ('01m8qbw858cp4ydf43zhk7182m', '01m8qbw853587d3s166mbp00w6', '01m8qbw854639s3pbvccv8kac4', 2, 'And in Asia?', 'The Yangtze.', 'done', 'stop', '', 'h-1', 3, X'08000000', X'0500000006000000', 5, 2, 3, 2, 0.5, 20.25, 120.0, 33.4, 1796080541864, 1796080541864, 'smollm2-135m', 'geography', 'f00d', 30133231189753858);
INSERT INTO turns (id, chat_id, parent_id, depth, prompt, reply, status, stop_reason, error, host, kept_tokens, prompt_ids, reply_ids, prompt_tokens, cached_tokens, computed_tokens, completion_tokens, queue_ms, first_token_ms, total_ms, tokens_per_s, created_at, ended_at, model, template, template_hash, number) VALUES ('01m8qbw858cp4ydf43zhk7182p', '01m8qbw858cp4ydf43zhk7182n', NULL, 1, 'Tell a story.', 'Once upon', 'interrupted', 'interrupted', '', 'dead', 0, X'FFFFFFFF', X'0000000009000000', 1, 0, 0, 2, 0.0, 0.0, 0.0, 0.0, 1796080541864, 1796080541865, 'echo', NULL, NULL, 30133231189753859);
INSERT INTO tags (chat_id, tag) VALUES ('01m8qbw853587d3s166mbp00w6', 'geography');
INSERT INTO tags (chat_id, tag) VALUES ('01m8qbw853587d3s166mbp00w6', 'water');
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
CREATE INDEX turns_by_signs ON turns(number, (((instr(CAST(prompt || reply AS BLOB), x'21') > 0) << 0) | ((instr(CAST(prompt || reply AS BLOB), x'22') > 0) << 1) | ((instr(CAST(prompt || reply AS BLOB), x'23') > 0) << 2) | ((instr(CAST(prompt || reply AS BLOB), x'24') > 0) << 3) | ((instr(CAST(prompt || reply AS BLOB), x'25') > 0) << 4) | ((instr(CAST(prompt || reply AS BLOB), x'26') > 0) << 5) | ((instr(CAST(prompt || reply AS BLOB), x'27') > 0) << 6) | ((instr(CAST(prompt || reply AS BLOB), x'28') > 0) << 7) | ((instr(CAST(prompt || reply AS BLOB), x'29') > 0) << 8) | ((instr(CAST(prompt || reply AS BLOB), x'2a') > 0) << 9) | ((instr(CAST(prompt || reply AS BLOB), x'2b') > 0) << 10) | ((instr(CAST(prompt || reply AS BLOB), x'2c') > 0) << 11) | ((instr(CAST(prompt || reply AS BLOB), x'2d') > 0) << 12) | ((instr(CAST(prompt || reply AS BLOB), x'2e') > 0) << 13) | ((instr(CAST(prompt || reply AS BLOB), x'2f') > 0) << 14) | ((instr(CAST(prompt || reply AS BLOB), x'3a') > 0) << 15) | ((instr(CAST(prompt || reply AS BLOB), x'3b') > 0) << 16) | ((instr(CAST(prompt || reply AS BLOB), x'3c') > 0) << 17) | ((instr(CAST(prompt || reply AS BLOB), x'3d') > 0) << 18) | ((instr(CAST(prompt || reply AS BLOB), x'3e') > 0) << 19) | ((instr(CAST(prompt || reply AS BLOB), x'3f') > 0) << 20) | ((instr(CAST(prompt || reply AS BLOB), x'40') > 0) << 21) | ((instr(CAST(prompt || reply AS BLOB), x'5b') > 0) << 22) | ((instr(CAST(prompt || reply AS BLOB), x'5c') > 0) << 23) | ((instr(CAST(prompt || reply AS BLOB), x'5d') > 0) << 24) | ((instr(CAST(prompt || reply AS BLOB), x'5e') > 0) << 25) | ((instr(CAST(prompt || reply AS BLOB), x'5f') > 0) << 26) | ((instr(CAST(prompt || reply AS BLOB), x'60') > 0) << 27) | ((instr(CAST(prompt || reply AS BLOB), x'7b') > 0) << 28) | ((instr(CAST(prompt || reply AS BLOB), x'7c') > 0) << 29) | ((instr(CAST(prompt || reply AS BLOB), x'7d') > 0) << 30) | ((instr(CAST(prompt || reply AS BLOB), x'7e') > 0) << 31) | iif(length(prompt || reply) = length(CAST(prompt || reply AS BLOB)), 0, ((instr(CAST(prompt || reply AS BLOB), x'c2') > 0) << 32) | ((instr(CAST(prompt || reply AS BLOB), x'e280') > 0) << 33) | ((instr(CAST(prompt || reply AS BLOB), x'e281') > 0 OR instr(CAST(prompt || reply AS BLOB), x'e282') > 0 OR instr(CAST(prompt || reply AS BLOB), x'e283') > 0) << 34) | ((instr(CAST(prompt || reply AS BLOB), x'e284') > 0 OR instr(CAST(prompt || reply AS BLOB), x'e285') > 0) << 35) | ((instr(CAST(prompt || reply AS BLOB), x'e286') > 0 OR instr(CAST(prompt || reply AS BLOB), x'e287') > 0) << 36) | ((instr(CAST(prompt || reply AS BLOB), x'e288') > 0 OR instr(CAST(prompt || reply AS BLOB), x'e289') > 0 OR instr(CAST(prompt || reply AS BLOB), x'e28a') > 0 OR instr(CAST(prompt || reply AS BLOB), x'e28b') > 0) << 37) | ((instr(CAST(prompt || reply AS BLOB), x'e28c') > 0 OR instr(CAST(prompt || reply AS BLOB), x'e28d') > 0 OR instr(CAST(prompt || reply AS BLOB), x'e28e') > 0 OR instr(CAST(prompt || reply AS BLOB), x'e28f') > 0 OR instr(CAST(prompt || reply AS BLOB), x'e290') > 0 OR instr(CAST(prompt || reply AS BLOB), x'e291') > 0 OR instr(CAST(prompt || reply AS BLOB), x'e292') > 0 OR instr(CAST(prompt || reply AS BLOB), x'e293') > 0) << 38) | ((instr(CAST(prompt || reply AS BLOB), x'e294') > 0 OR instr(CAST(prompt || reply AS BLOB), x'e295') > 0) << 39) | ((instr(CAST(prompt || reply AS BLOB), x'e296') > 0 OR instr(CAST(prompt || reply AS BLOB), x'e297') > 0) << 40) | ((instr(CAST(prompt || reply AS BLOB), x'e298') > 0) << 41) | ((instr(CAST(prompt || reply AS BLOB), x'e299') > 0) << 42) | ((instr(CAST(prompt || reply AS BLOB), x'e29a') > 0) << 43) | ((instr(CAST(prompt || reply AS BLOB), x'e29b') > 0) << 44) | ((instr(CAST(prompt || reply AS BLOB), x'e29c') > 0) << 45) | ((instr(CAST(prompt || reply AS BLOB), x'e29d') > 0) << 46) | ((instr(CAST(prompt || reply AS BLOB), x'e29e') > 0 OR instr(CAST(prompt || reply AS BLOB), x'e29f') > 0 OR instr(CAST(prompt || reply AS BLOB), x'e2a0') > 0 OR instr(CAST(prompt || reply AS BLOB), x'e2a1') > 0 OR instr(CAST(prompt || reply AS BLOB), x'e2a2') > 0 OR instr(CAST(prompt || reply AS BLOB), x'e2a3') > 0) << 47) | ((instr(CAST(prompt || reply AS BLOB), x'e2a4') > 0 OR instr(CAST(prompt || reply AS BLOB), x'e2a5') > 0 OR instr(CAST(prompt || reply AS BLOB), x'e2a6') > 0 OR instr(CAST(prompt || reply AS BLOB), x'e2a7') > 0 OR instr(CAST(prompt || reply AS BLOB), x'e2a8') > 0 OR instr(CAST(prompt || reply AS BLOB), x'e2a9') > 0 OR instr(CAST(prompt || reply AS BLOB), x'e2aa') > 0 OR instr(CAST(prompt || reply AS BLOB), x'e2ab') > 0 OR instr(CAST(prompt || reply AS BLOB), x'e2ac') > 0 OR instr(CAST(prompt || reply AS BLOB), x'e2ad') > 0 OR instr(CAST(prompt || reply AS BLOB), x'e2ae') > 0 OR instr(CAST(prompt || reply AS BLOB), x'e2af') > 0) << 48) | ((instr(CAST(prompt || reply AS BLOB), x'e380') > 0) << 49) | ((instr(CAST(prompt || reply AS BLOB), x'efbc') > 0 OR instr(CAST(prompt || reply AS BLOB), x'efbd') > 0) << 50) | ((instr(CAST(prompt || reply AS BLOB), x'f09f80') > 0 OR instr(CAST(prompt || reply AS BLOB), x'f09f81') > 0 OR instr(CAST(prompt || reply AS BLOB), x'f09f82') > 0 OR instr(CAST(prompt || reply AS BLOB), x'f09f83') > 0 OR instr(CAST(prompt || reply AS BLOB), x'f09f84') > 0 OR instr(CAST(prompt || reply AS BLOB), x'f09f85') > 0 OR instr(CAST(prompt || reply AS BLOB), x'f09f86') > 0 OR instr(CAST(prompt || reply AS BLOB), x'f09f87') > 0 OR instr(CAST(prompt || reply AS BLOB), x'f09f88') > 0 OR instr(CAST(prompt || reply AS BLOB), x'f09f89') > 0 OR instr(CAST(prompt || reply AS BLOB), x'f09f8a') > 0 OR instr(CAST(prompt || reply AS BLOB), x'f09f8b') > 0) << 51) | ((instr(CAST(prompt || reply AS BLOB), x'f09f8c') > 0 OR instr(CAST(prompt || reply AS BLOB), x'f09f8d') > 0) << 52) | ((instr(CAST(prompt || reply AS BLOB), x'f09f8e') > 0 OR instr(CAST(prompt || reply AS BLOB), x'f09f8f') > 0) << 53) | ((instr(CAST(prompt || reply AS BLOB), x'f09f90') > 0) << 54) | ((instr(CAST(prompt || reply AS BLOB), x'f09f91') > 0) << 55) | ((instr(CAST(prompt || reply AS BLOB), x'f09f92') > 0 OR instr(CAST(prompt || reply AS BLOB), x'f09f93') > 0) << 56) | ((instr(CAST(prompt || reply AS BLOB), x'f09f94') > 0 OR instr(CAST(prompt || reply AS BLOB), x'f09f95') > 0 OR instr(CAST(prompt || reply AS BLOB), x'f09f96') > 0 OR instr(CAST(prompt || reply AS BLOB), x'f09f97') > 0) << 57) | ((instr(CAST(prompt || reply AS BLOB), x'f09f98') > 0) << 58) | ((instr(CAST(prompt || reply AS BLOB), x'f09f99') > 0 OR instr(CAST(prompt || reply AS BLOB), x'f09f9a') > 0) << 59) | ((instr(CAST(prompt || reply AS BLOB), x'f09f9b') > 0 OR instr(CAST(prompt || reply AS BLOB), x'f09f9c') > 0 OR instr(CAST(prompt || reply AS BLOB), x'f09f9d') > 0 OR instr(CAST(prompt || reply AS BLOB), x'f09f9e') > 0 OR instr(CAST(prompt || reply AS BLOB), x'f09f9f') > 0 OR instr(CAST(prompt || reply AS BLOB), x'f09fa0') > 0 OR instr(CAST(prompt || reply AS BLOB), x'f09fa1') > 0 OR instr(CAST(prompt || reply AS BLOB), x'f09fa2') > 0 OR instr(CAST(prompt || reply AS BLOB), x'f09fa3') > 0) << 60) | ((instr(CAST(prompt || reply AS BLOB), x'f09fa4') > 0 OR instr(CAST(prompt || reply AS BLOB), x'f09fa5') > 0) << 61) | ((instr(CAST(prompt || reply AS BLOB), x'f09fa6') > 0 OR instr(CAST(prompt || reply AS BLOB), x'f09fa7') > 0 OR instr(CAST(prompt || reply AS BLOB), x'f09fa8') > 0 OR instr(CAST(prompt || reply AS BLOB), x'f09fa9') > 0 OR instr(CAST(prompt || reply AS BLOB), x'f09faa') > 0 OR instr(CAST(prompt || reply AS BLOB), x'f09fab') > 0) << 62)))) WHERE status <> 'running' AND number IS NOT NULL;
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
