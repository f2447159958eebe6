-- One owner for each conversation: a session stands for it, and further ACP ids of it are aliases of that session.

ALTER TABLE acp_sessions ADD COLUMN alias_of TEXT; -- the session that this id leads to; NULL: the session itself
CREATE INDEX acp_sessions_aliases ON acp_sessions(alias_of) WHERE alias_of IS NOT NULL;

-- Where the events of logs that were merged have gone: what a client names as its place may be from before that.
CREATE TABLE acp_merged_logs (
    acp_session_id TEXT NOT NULL, -- whose log it was
    first_seq BIGINT NOT NULL,
    last_seq BIGINT NOT NULL,
    moved_by BIGINT NOT NULL, -- added to a place of the old log it gives that in the log that there is now
    PRIMARY KEY (acp_session_id, first_seq)
);
