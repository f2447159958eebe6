-- A turn that is to stop ends `cancelled`, also if its worker and its daemon die before it does.

ALTER TABLE acp_turns ADD COLUMN cancel_asked BIGINT NOT NULL DEFAULT 0; -- 1: its worker was told to stop
