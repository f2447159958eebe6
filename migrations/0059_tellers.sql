-- A rewind or a fork looks for the turns that pending notes tell of.

CREATE INDEX acp_transcript_turns_told_by ON acp_transcript_turns(acp_session_id, told_by) WHERE told_by IS NOT NULL;
