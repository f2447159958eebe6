-- A rewind that was asked for by a request which its client may send again: it is done once.
CREATE TABLE acp_rewinds (
    request_key TEXT PRIMARY KEY,
    acp_session_id TEXT NOT NULL,
    result TEXT NOT NULL -- what was answered, as JSON
);
CREATE INDEX acp_rewinds_of_session ON acp_rewinds (acp_session_id);
