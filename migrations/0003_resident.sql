-- What a daemon needs that outlives its clients: whose prompt a turn is, how far each client has seen, what nobody uses.

ALTER TABLE acp_sessions ADD COLUMN client TEXT; -- name of the client that made it
ALTER TABLE acp_sessions ADD COLUMN auxiliary BIGINT NOT NULL DEFAULT 0; -- 1: only a client's own helper prompts so far
ALTER TABLE acp_sessions ADD COLUMN prompted_at BIGINT; -- NULL: never prompted
ALTER TABLE acp_sessions ADD COLUMN pruned_at BIGINT; -- its events are gone, its id stays
ALTER TABLE acp_sessions ADD COLUMN away_policy TEXT; -- NULL: the setting's

UPDATE acp_sessions SET prompted_at = (
    SELECT MAX(created_at) FROM acp_turns WHERE acp_turns.acp_session_id = acp_sessions.acp_session_id
);

ALTER TABLE acp_turns ADD COLUMN fingerprint TEXT; -- SHA-256 of what the user wrote, to know a prompt that is sent again
ALTER TABLE acp_turns ADD COLUMN answered_at BIGINT; -- a client has got the response

ALTER TABLE acp_permissions ADD COLUMN content TEXT; -- JSON: what a question's form was filled in with
CREATE INDEX acp_permissions_turn ON acp_permissions(turn_id);
CREATE INDEX acp_permissions_session ON acp_permissions(acp_session_id);

CREATE UNIQUE INDEX acp_turns_request_key ON acp_turns(request_key) WHERE request_key IS NOT NULL;

-- Up to which event a client, known by its name, has confirmed a session's updates.
CREATE TABLE acp_cursors (
    acp_session_id TEXT NOT NULL,
    client TEXT NOT NULL,
    seq BIGINT NOT NULL,
    updated_at BIGINT NOT NULL,
    PRIMARY KEY (acp_session_id, client)
);

-- What Claude offers in a directory (slash commands, models), as the last worker there said: shown before the next one runs.
CREATE TABLE acp_offers (
    cwd TEXT PRIMARY KEY,
    commands TEXT NOT NULL,
    models TEXT NOT NULL,
    updated_at BIGINT NOT NULL
);

-- A start looks for tool calls that never ended, in logs of a million events.
CREATE INDEX acp_events_tools ON acp_events(acp_session_id, seq, kind) WHERE kind IN ('tool_started', 'tool_ended');
