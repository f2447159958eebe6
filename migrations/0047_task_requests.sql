-- A change of a scheduled task that was asked for by a request which its client may send again: it is done once.
CREATE TABLE acp_task_requests (
    request_key TEXT PRIMARY KEY,
    task_id TEXT NOT NULL,
    turn_id TEXT, -- of the run that was begun, or that there was; NULL: none
    changed INTEGER NOT NULL, -- 1: the task was not paused before
    at BIGINT NOT NULL -- ms since 1970
);
CREATE INDEX acp_task_requests_by_time ON acp_task_requests (at);
