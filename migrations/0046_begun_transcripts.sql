-- Claude sessions that workers have begun under ids of their own, before the first prompt: a worker that dies in its first turn says no more.

CREATE TABLE acp_begun_transcripts (
    claude_session_id TEXT PRIMARY KEY,
    acp_session_id TEXT NOT NULL
);
CREATE INDEX acp_begun_transcripts_by_session ON acp_begun_transcripts (acp_session_id);
