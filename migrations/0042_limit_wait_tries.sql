-- A session that could not go on when its usage limit had ended tries again.

ALTER TABLE acp_limit_waits ADD COLUMN tries BIGINT NOT NULL DEFAULT 0; -- how often it could not
