-- Rules of Claude that a person has allowed for a session: they hold until it is deleted.

CREATE TABLE acp_session_rules (
    acp_session_id TEXT NOT NULL,
    rule TEXT NOT NULL, -- as Claude writes it, such as Bash(npm test); never one that may hold a secret
    granted_by TEXT NOT NULL, -- name of a client, or 'cli'
    created_at BIGINT NOT NULL,
    PRIMARY KEY (acp_session_id, rule)
);
