-- What has changed in a directory since it was trusted, and where Claude runs without what acts.

ALTER TABLE acp_trust ADD COLUMN files TEXT; -- JSON: digests by path of what acted there; NULL: not known

-- Directories in which the last choice was to run without what acts there. It decides nothing.
CREATE TABLE acp_run_without (
    path TEXT PRIMARY KEY,
    content TEXT NOT NULL, -- as in acp_trust; '': not all of it could be looked at
    decided_by TEXT NOT NULL, -- name of a client, 'cli', or 'policy'; '': nobody
    created_at BIGINT NOT NULL
);
