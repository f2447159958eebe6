-- Logs by integer keys, in which a message that has ended is one row. Old rows stay in acp_events until they are converted.

ALTER TABLE acp_sessions ADD COLUMN log_key BIGINT; -- whose log in acp_log; NULL: nothing was written there yet
CREATE INDEX acp_sessions_log ON acp_sessions(log_key);

ALTER TABLE acp_turns ADD COLUMN first_seq BIGINT; -- of its first event; NULL: it has none, or they are in acp_events
ALTER TABLE acp_turns ADD COLUMN last_seq BIGINT; -- of its last one; NULL: it has not ended

CREATE TABLE acp_log (
    log_key BIGINT NOT NULL,
    seq BIGINT NOT NULL, -- of the last event that the row covers
    first_seq BIGINT NOT NULL, -- of the first one
    turn BIGINT, -- acp_turns.position; NULL: outside of any turn
    kind TEXT NOT NULL,
    epoch BIGINT, -- the worker whose frames up to `frame` were committed with this row
    frame BIGINT,
    source_uuid TEXT,
    cuts TEXT, -- lengths of the pieces of a text, one for each seq; NULL: the whole event is that of `seq`
    payload TEXT NOT NULL,
    PRIMARY KEY (log_key, seq)
) WITHOUT ROWID;
CREATE UNIQUE INDEX acp_log_source ON acp_log(log_key, source_uuid) WHERE source_uuid IS NOT NULL;
CREATE INDEX acp_log_tools ON acp_log(log_key, seq, kind)
    WHERE kind IN ('tool_started', 'tool_progressed', 'tool_ended');

-- Where the log stood when `acked_frame` was written: what was committed since is in the log's rows.
ALTER TABLE acp_workers ADD COLUMN acked_seq BIGINT NOT NULL DEFAULT 0;
