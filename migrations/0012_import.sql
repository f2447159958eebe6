-- What was imported from Claude's transcripts, which other programs continue.

ALTER TABLE acp_sessions ADD COLUMN followed TEXT; -- Claude session of its newest turn; NULL: not known

CREATE TABLE acp_transcripts (
    acp_session_id TEXT NOT NULL,
    claude_session_id TEXT NOT NULL,
    path TEXT NOT NULL,
    size BIGINT NOT NULL, -- of the file as it was last read, with the time of its last change and its inode
    mtime TEXT NOT NULL, -- nanoseconds
    inode TEXT NOT NULL, -- a number of up to 64 bits
    read_upto BIGINT NOT NULL, -- what lies before is imported
    state TEXT NOT NULL, -- JSON: what the reader remembers at `read_upto`
    head TEXT, -- the turn of its newest entry; NULL: it has none
    related BIGINT NOT NULL, -- 1: it holds turns of the session that came from elsewhere, or that we ran
    PRIMARY KEY (acp_session_id, claude_session_id)
);

-- Turns that transcripts hold, ours and those of others. A row here is never run.
CREATE TABLE acp_transcript_turns (
    acp_session_id TEXT NOT NULL,
    prompt_uuid TEXT NOT NULL, -- of the entry that begins it
    claude_session_id TEXT NOT NULL, -- in whose transcript it was seen first
    position BIGINT NOT NULL, -- in the order in which they were seen, from 1
    parent TEXT, -- the turn that it follows; NULL: none
    own BIGINT NOT NULL, -- 1: we ran it, and nothing of it was imported
    last_uuid TEXT, -- of the newest entry that was imported
    told BIGINT NOT NULL, -- 1: Claude knows it, or has learned of it, or need not
    PRIMARY KEY (acp_session_id, prompt_uuid)
);
CREATE INDEX acp_transcript_turns_position ON acp_transcript_turns(acp_session_id, position);
