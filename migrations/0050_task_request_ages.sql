-- Ages of what was done for requests by the data directory's own clock: after a jump of the wall clock they were deleted at once.

ALTER TABLE acp_task_requests ADD COLUMN at_clock BIGINT; -- ms, own clock; NULL: of an older version that runs meanwhile
UPDATE acp_task_requests SET at_clock = COALESCE((SELECT counted FROM acp_clock), 0);
DROP INDEX acp_task_requests_by_time;
CREATE INDEX acp_task_requests_by_age ON acp_task_requests (at_clock);
