-- A turn of another program is forgotten like one of ours: no fork or rewind begins at its end.

ALTER TABLE acp_transcript_turns ADD COLUMN rewound_at BIGINT; -- NULL: Claude still remembers it
ALTER TABLE acp_transcript_turns ADD COLUMN lost_at BIGINT; -- when it was told that Claude does not remember it; NULL: never
