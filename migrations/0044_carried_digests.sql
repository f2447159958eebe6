-- The note (`acp_notes`) that tells Claude of the turn; NULL: not known.
ALTER TABLE acp_transcript_turns ADD COLUMN told_by TEXT;
