-- Rules of Claude that a person has made last: what they allow in a directory is not asked about in later sessions.

CREATE TABLE acp_rules (
    path TEXT NOT NULL, -- of the directory, without symbolic links
    rule TEXT NOT NULL, -- as Claude writes it, such as Bash(npm test); never one that may hold a secret
    granted_by TEXT NOT NULL, -- name of a client, or 'cli'
    created_at BIGINT NOT NULL,
    PRIMARY KEY (path, rule)
);
