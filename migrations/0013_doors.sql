ALTER TABLE acp_sessions ADD COLUMN prompt_hash TEXT; -- conversations.system_prompt_hash, as of the Claude session that is followed
