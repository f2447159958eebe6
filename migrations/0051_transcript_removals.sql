-- Transcripts that are to be deleted with their session, until they are: a kill or an unreadable folder can come before.

ALTER TABLE acp_deleted_transcripts ADD COLUMN to_remove BIGINT NOT NULL DEFAULT 0; -- 1: the setting was on
CREATE INDEX acp_deleted_transcripts_to_remove ON acp_deleted_transcripts (claude_session_id) WHERE to_remove = 1;
