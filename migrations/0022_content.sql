-- Images, files and other bytes of prompts and tools are kept as files beside the database, each once, by its hash.

-- Which session uses which of them: the file goes with the last session.
CREATE TABLE acp_blobs (
    acp_session_id TEXT NOT NULL,
    sha256 TEXT NOT NULL, -- of the bytes, and the name of the file in `blobs` of the data directory
    PRIMARY KEY (acp_session_id, sha256)
);
CREATE INDEX acp_blobs_users ON acp_blobs(sha256);
