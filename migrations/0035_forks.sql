-- Where a fork was made, for a request that its client sends again.
CREATE TABLE acp_forks (
    acp_session_id TEXT PRIMARY KEY,
    upto BIGINT NOT NULL, -- the last seq of its source that it has
    complete INTEGER NOT NULL -- 0: a running turn was left out
);
