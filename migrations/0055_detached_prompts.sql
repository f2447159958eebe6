-- Behind a detached prompt is nobody who could be asked in time, also after a restart.

ALTER TABLE acp_turns ADD COLUMN detached BIGINT NOT NULL DEFAULT 0; -- 1: no command waits for it
