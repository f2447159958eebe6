-- Sessions that a usage limit has stopped, and that go on by themselves when it ends.

CREATE TABLE acp_limit_waits (
    acp_session_id TEXT PRIMARY KEY,
    turn_id TEXT NOT NULL, -- the turn that the limit has ended
    due BIGINT NOT NULL -- when the limit ends (seconds since 1970, as Claude's service says)
);
