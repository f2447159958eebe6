-- Age of notices by the data directory's own clock; that of those from before counts from here.

ALTER TABLE acp_notices ADD COLUMN created_clock BIGINT NOT NULL DEFAULT 0;
UPDATE acp_notices SET created_clock = COALESCE((SELECT counted FROM acp_clock), 0);
