-- Lists of sessions, answered from indexes; and the transcripts that lists and loads know of.

ALTER TABLE acp_sessions ADD COLUMN archived_at BIGINT; -- NULL: not archived

CREATE INDEX acp_sessions_listed ON acp_sessions(updated_at DESC, acp_session_id DESC)
WHERE prompted_at IS NOT NULL AND auxiliary = 0 AND pruned_at IS NULL AND deleted_at IS NULL AND alias_of IS NULL
AND archived_at IS NULL;

CREATE INDEX acp_sessions_listed_cwd ON acp_sessions(cwd, updated_at DESC, acp_session_id DESC)
WHERE prompted_at IS NOT NULL AND auxiliary = 0 AND pruned_at IS NULL AND deleted_at IS NULL AND alias_of IS NULL
AND archived_at IS NULL;

CREATE INDEX acp_sessions_archived ON acp_sessions(updated_at DESC, acp_session_id DESC)
WHERE prompted_at IS NOT NULL AND auxiliary = 0 AND pruned_at IS NULL AND deleted_at IS NULL AND alias_of IS NULL
AND archived_at IS NOT NULL;

-- Sessions that were adopted with their table, and that nobody has opened since, are among these.
CREATE INDEX acp_sessions_unprompted ON acp_sessions(updated_at DESC, acp_session_id DESC)
WHERE prompted_at IS NULL AND pruned_at IS NULL AND deleted_at IS NULL AND alias_of IS NULL;

CREATE INDEX acp_sessions_followed ON acp_sessions(followed) WHERE followed IS NOT NULL;
CREATE INDEX acp_transcripts_claude ON acp_transcripts(claude_session_id);

-- Claude's transcripts as they were at the last look, whichever program has written them.
CREATE TABLE acp_found_transcripts (
    path TEXT PRIMARY KEY,
    folder TEXT NOT NULL,
    claude_session_id TEXT NOT NULL,
    size BIGINT NOT NULL,
    mtime TEXT NOT NULL, -- nanoseconds
    cwd TEXT, -- as its entries say; NULL: none does
    title TEXT,
    updated_at BIGINT NOT NULL, -- its newest message was written
    listed BIGINT NOT NULL -- 1: it is a session that only Claude knows; it counts as long as no session of ours follows it
);
CREATE INDEX acp_found_transcripts_folder ON acp_found_transcripts(folder);
CREATE INDEX acp_found_transcripts_session ON acp_found_transcripts(claude_session_id);
CREATE INDEX acp_found_transcripts_listed ON acp_found_transcripts(updated_at DESC, claude_session_id DESC)
WHERE listed = 1;
CREATE INDEX acp_found_transcripts_listed_cwd ON acp_found_transcripts(cwd, updated_at DESC, claude_session_id DESC)
WHERE listed = 1;

-- Folders whose transcripts are in acp_found_transcripts, as they were then.
CREATE TABLE acp_transcript_folders (
    folder TEXT PRIMARY KEY,
    digest TEXT NOT NULL -- of names, sizes and times of its transcripts
);

-- Claude sessions whose session was deleted: their transcripts, which may still be there, make no session again.
CREATE TABLE acp_deleted_transcripts (
    claude_session_id TEXT PRIMARY KEY,
    deleted_at BIGINT NOT NULL
);
