-- Deliveries that could not be shown, and how often that was tried. What was shown has no row here: it is in its log.
CREATE TABLE acp_deliveries (
    delivery_id TEXT PRIMARY KEY,
    attempts BIGINT NOT NULL,
    reason TEXT NOT NULL,
    tried_at BIGINT NOT NULL
);

-- Runs of scheduled tasks by this program, from the claim to the result.
CREATE TABLE acp_task_runs (
    turn_id TEXT PRIMARY KEY, -- the turn that the run is; its prompt is accepted after the claim
    task_id TEXT NOT NULL,
    task TEXT NOT NULL, -- the task as it was claimed, as JSON
    manual BIGINT NOT NULL, -- 1: somebody asked for the run; its schedule does not change
    claimed_next_run TEXT, -- what the claim wrote; the result leaves another value alone
    acp_session_id TEXT, -- where it runs; NULL: not decided yet
    aside BIGINT NOT NULL DEFAULT 0, -- 1: in a session of its own
    started_at BIGINT NOT NULL,
    ended_at BIGINT -- NULL: the result is not written yet
);
CREATE UNIQUE INDEX acp_task_runs_open ON acp_task_runs(task_id) WHERE ended_at IS NULL;
CREATE INDEX acp_task_runs_task ON acp_task_runs(task_id);

ALTER TABLE acp_turns ADD COLUMN task_id TEXT; -- whose run the turn is; NULL: a prompt, or a turn that Claude began
