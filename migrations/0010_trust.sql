-- What the user has said about directories that hold something that acts: hooks, helpers, MCP servers of a repository.

-- content: SHA-256 of what acts there; '*': whatever is there and below; '': what is there at the first use from now on.
CREATE TABLE acp_trust (
    path TEXT NOT NULL,
    content TEXT NOT NULL,
    dotenv TEXT, -- SHA-256 of its ./.env; NULL: that is not read
    granted_by TEXT NOT NULL, -- name of a client, 'cli', or 'upgrade'
    created_at BIGINT NOT NULL,
    PRIMARY KEY (path, content)
);

-- Directories in which conversations were held before there was a question.
INSERT INTO acp_trust (path, content, granted_by, created_at)
SELECT s.cwd, '', 'upgrade', MAX(s.created_at)
FROM acp_sessions AS s
LEFT JOIN conversations AS c ON c.name = s.conversation_name
WHERE s.cwd IS NOT NULL AND s.deleted_at IS NULL AND (s.prompted_at IS NOT NULL OR c.session_id IS NOT NULL)
GROUP BY s.cwd;

ALTER TABLE acp_permissions ADD COLUMN workspace TEXT; -- of a question about trust: what it is about; NULL: a worker asks
ALTER TABLE acp_workers ADD COLUMN workspace TEXT; -- what of its directories counts; NULL: launched before there was trust
