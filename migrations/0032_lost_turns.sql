-- A loss of Claude's memory is told once, however long the conversation goes on after it.

ALTER TABLE acp_turns ADD COLUMN lost_at BIGINT; -- when it was told that Claude does not remember it; NULL: never
