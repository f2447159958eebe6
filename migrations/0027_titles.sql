-- Who made a session's title: 'words' of its first prompt, or 'claude'; empty or NULL: a person, or an earlier version.

ALTER TABLE acp_sessions ADD COLUMN title_by TEXT;
