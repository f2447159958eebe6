-- Our tables. Keys are TEXT, times are BIGINT milliseconds since 1970 (UTC), JSON is TEXT.

-- An earlier acp_sessions had only these two columns; on a new file this makes an empty one, so that both take the same way.
CREATE TABLE IF NOT EXISTS acp_sessions (
    acp_session_id TEXT PRIMARY KEY,
    conversation_name TEXT NOT NULL
);
ALTER TABLE acp_sessions RENAME TO acp_sessions_two_columns;

CREATE TABLE acp_sessions (
    acp_session_id TEXT PRIMARY KEY,
    conversation_name TEXT NOT NULL,
    cwd TEXT, -- NULL: adopted, not known yet
    additional_directories TEXT NOT NULL DEFAULT '[]',
    title TEXT,
    mode TEXT,
    model TEXT,
    options TEXT NOT NULL DEFAULT '{}',
    last_seq BIGINT NOT NULL DEFAULT 0,
    epoch BIGINT NOT NULL DEFAULT 0,
    request_key TEXT,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL,
    closed_at BIGINT,
    deleted_at BIGINT
);

-- 2440587.5 is the Julian day of 1970-01-01; a time that is missing or cannot be read becomes now.
INSERT INTO acp_sessions (acp_session_id, conversation_name, cwd, created_at, updated_at)
SELECT acp_session_id, conversation_name, cwd, created_at, created_at
FROM (
    SELECT
        old.acp_session_id,
        old.conversation_name,
        conversations.cwd,
        CAST(ROUND((COALESCE(JULIANDAY(conversations.created_at), JULIANDAY('now')) - 2440587.5) * 86400000) AS BIGINT)
            AS created_at
    FROM acp_sessions_two_columns AS old
    LEFT JOIN conversations ON conversations.name = old.conversation_name
) AS adopted;

DROP TABLE acp_sessions_two_columns;

CREATE INDEX acp_sessions_conversation ON acp_sessions(conversation_name);
CREATE UNIQUE INDEX acp_sessions_request_key ON acp_sessions(request_key) WHERE request_key IS NOT NULL;

CREATE TABLE acp_turns (
    turn_id TEXT PRIMARY KEY,
    acp_session_id TEXT NOT NULL REFERENCES acp_sessions(acp_session_id),
    origin TEXT NOT NULL CHECK (origin IN ('client', 'background')),
    prompt TEXT NOT NULL,
    request_key TEXT,
    idempotency_key TEXT,
    state TEXT NOT NULL
        CHECK (state IN ('queued', 'dispatched', 'running', 'done', 'cancelled', 'failed', 'unknown')),
    stop_reason TEXT,
    error TEXT,
    usage TEXT,
    epoch BIGINT,
    created_at BIGINT NOT NULL,
    dispatched_at BIGINT,
    started_at BIGINT,
    ended_at BIGINT
);
CREATE INDEX acp_turns_session ON acp_turns(acp_session_id, created_at);
CREATE INDEX acp_turns_unfinished ON acp_turns(state) WHERE state IN ('queued', 'dispatched', 'running');
CREATE UNIQUE INDEX acp_turns_idempotency_key
    ON acp_turns(acp_session_id, idempotency_key) WHERE idempotency_key IS NOT NULL;

CREATE TABLE acp_events (
    acp_session_id TEXT NOT NULL,
    seq BIGINT NOT NULL,
    turn_id TEXT,
    kind TEXT NOT NULL,
    payload TEXT NOT NULL,
    source_uuid TEXT,
    created_at BIGINT NOT NULL,
    PRIMARY KEY (acp_session_id, seq)
) WITHOUT ROWID;
CREATE UNIQUE INDEX acp_events_source ON acp_events(acp_session_id, source_uuid) WHERE source_uuid IS NOT NULL;
CREATE INDEX acp_events_turn ON acp_events(turn_id);

CREATE TABLE acp_permissions (
    permission_id TEXT PRIMARY KEY,
    acp_session_id TEXT NOT NULL,
    turn_id TEXT,
    tool_call_id TEXT,
    request TEXT NOT NULL,
    policy TEXT NOT NULL,
    deadline BIGINT,
    outcome TEXT,
    option_id TEXT,
    answered_by TEXT,
    created_at BIGINT NOT NULL,
    answered_at BIGINT
);
CREATE INDEX acp_permissions_open ON acp_permissions(acp_session_id) WHERE outcome IS NULL;

CREATE TABLE acp_workers (
    acp_session_id TEXT NOT NULL,
    epoch BIGINT NOT NULL,
    pid BIGINT NOT NULL,
    start_time BIGINT NOT NULL,
    boot_id TEXT NOT NULL,
    socket TEXT NOT NULL,
    protocol BIGINT NOT NULL,
    acked_frame BIGINT NOT NULL DEFAULT 0,
    created_at BIGINT NOT NULL,
    PRIMARY KEY (acp_session_id, epoch)
);
