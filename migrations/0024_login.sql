-- The account of a session, and what its clients gave it of their environment.

CREATE TABLE acp_surroundings (
    acp_session_id TEXT PRIMARY KEY,
    account TEXT NOT NULL DEFAULT '', -- empty: Claude's own configuration
    variables TEXT NOT NULL, -- JSON: variables without secrets
    secrets TEXT NOT NULL -- JSON: names of variables that are never stored; without them there is no worker
);
