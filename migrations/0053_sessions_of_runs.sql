-- The task of a session that a run has for itself: each look at a session asks for it.

CREATE INDEX acp_task_runs_aside ON acp_task_runs(acp_session_id) WHERE aside = 1;
