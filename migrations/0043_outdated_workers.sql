-- 1: the next prompt is not for this worker, which was launched with other options or rules; 2: nor are background commands spared.
ALTER TABLE acp_workers ADD COLUMN outdated INTEGER NOT NULL DEFAULT 0;
