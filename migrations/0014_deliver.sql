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
    acp_session_id TEXT, -- where it runs; NULL: not decided yet
    task TEXT NOT NULL, -- the task as it was claimed, as JSON
    claimed_next_run TEXT, -- what the claim wrote; the result leaves another value alone
    started_at BIGINT NOT NULL,
    ended_at BIGINT -- NULL: the result is not written yet
);
CREATE INDEX acp_task_runs_open ON acp_task_runs(task_id) WHERE ended_at IS NULL;

ALTER TABLE acp_turns ADD COLUMN task_id TEXT; -- whose run the turn is; NULL: a prompt, or a turn that Claude began
