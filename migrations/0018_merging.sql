-- Logs that are merged or deleted in pieces, so that no transaction holds the write lock for long.

-- Keys of logs that no session has (any more): their rows are deleted in pieces.
CREATE TABLE acp_log_leftovers (
    log_key BIGINT PRIMARY KEY,
    plan TEXT -- SHA-256 of the merge whose log is being written under this key; NULL: it is to be deleted
);

-- Which part of which log goes where in the merged log `log_key`. While that key is a leftover, the merge has not happened.
CREATE TABLE acp_merging_runs (
    log_key BIGINT NOT NULL,
    last_seq BIGINT NOT NULL, -- of the part in the merged log
    source_key BIGINT NOT NULL,
    acp_session_id TEXT NOT NULL,
    old_first BIGINT NOT NULL,
    old_last BIGINT NOT NULL,
    moved_by BIGINT NOT NULL,
    turn_moved_by BIGINT NOT NULL,
    PRIMARY KEY (log_key, last_seq)
);
CREATE INDEX acp_merging_runs_places ON acp_merging_runs(log_key, acp_session_id, old_first);

-- Ended turns of merged logs that still have their old session and numbers.
CREATE TABLE acp_merging_turns (
    log_key BIGINT NOT NULL,
    turn_id TEXT NOT NULL,
    acp_session_id TEXT NOT NULL, -- the session that they are going to
    position BIGINT NOT NULL,
    moved_by BIGINT NOT NULL,
    PRIMARY KEY (log_key, turn_id)
);
