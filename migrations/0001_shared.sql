-- pykoclaw's own tables, as its code creates them: other programs read and write them, so they are never altered here.

CREATE TABLE IF NOT EXISTS conversations (
    name TEXT PRIMARY KEY,
    session_id TEXT,
    cwd TEXT,
    created_at TEXT NOT NULL,
    system_prompt_hash TEXT
);

CREATE TABLE IF NOT EXISTS scheduled_tasks (
    id TEXT PRIMARY KEY,
    conversation TEXT NOT NULL,
    prompt TEXT NOT NULL,
    schedule_type TEXT NOT NULL, -- cron | interval | once
    schedule_value TEXT NOT NULL,
    context_mode TEXT DEFAULT 'group',
    target_conversation TEXT,
    next_run TEXT,
    last_run TEXT,
    last_result TEXT,
    status TEXT DEFAULT 'active',
    created_at TEXT NOT NULL
);

CREATE TABLE IF NOT EXISTS task_run_logs (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    task_id TEXT NOT NULL REFERENCES scheduled_tasks(id),
    run_at TEXT NOT NULL,
    duration_ms INTEGER NOT NULL,
    status TEXT NOT NULL,
    result TEXT,
    error TEXT
);

CREATE TABLE IF NOT EXISTS delivery_queue (
    id TEXT PRIMARY KEY,
    task_id TEXT NOT NULL REFERENCES scheduled_tasks(id),
    task_run_log_id INTEGER,
    conversation TEXT NOT NULL,
    channel_prefix TEXT NOT NULL,
    message TEXT NOT NULL,
    status TEXT DEFAULT 'pending',
    created_at TEXT NOT NULL,
    delivered_at TEXT
);

CREATE INDEX IF NOT EXISTS idx_next_run ON scheduled_tasks(next_run);
CREATE INDEX IF NOT EXISTS idx_status ON scheduled_tasks(status);
CREATE INDEX IF NOT EXISTS idx_task_run_logs ON task_run_logs(task_id, run_at);
CREATE INDEX IF NOT EXISTS idx_delivery_queue_status ON delivery_queue(channel_prefix, status);
