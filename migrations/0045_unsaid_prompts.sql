-- What a prompt said that was cancelled while it waited comes into the log after the turn that ran, maybe by the next server.

ALTER TABLE acp_turns ADD COLUMN unsaid BIGINT; -- 1: it has ended, and the log is yet to say what it was; NULL: the log does
CREATE INDEX acp_turns_unsaid ON acp_turns (acp_session_id, position) WHERE unsaid = 1;
