"""Databases of other programs and older versions."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

from pykoclaw_acp.store.sqlite import sqlite3

# As pykoclaw's own code creates them.
PYKOCLAW_SCHEMA = """
CREATE TABLE IF NOT EXISTS conversations (name TEXT PRIMARY KEY, session_id TEXT, cwd TEXT, created_at TEXT NOT NULL,
    system_prompt_hash TEXT);
CREATE TABLE IF NOT EXISTS scheduled_tasks (id TEXT PRIMARY KEY, conversation TEXT NOT NULL, prompt TEXT NOT NULL,
    schedule_type TEXT NOT NULL, schedule_value TEXT NOT NULL, context_mode TEXT DEFAULT 'group',
    target_conversation TEXT, next_run TEXT, last_run TEXT, last_result TEXT, status TEXT DEFAULT 'active',
    created_at TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS task_run_logs (id INTEGER PRIMARY KEY AUTOINCREMENT,
    task_id TEXT NOT NULL REFERENCES scheduled_tasks(id), run_at TEXT NOT NULL, duration_ms INTEGER NOT NULL,
    status TEXT NOT NULL, result TEXT, error TEXT);
CREATE TABLE IF NOT EXISTS delivery_queue (id TEXT PRIMARY KEY, task_id TEXT NOT NULL REFERENCES scheduled_tasks(id),
    task_run_log_id INTEGER, conversation TEXT NOT NULL, channel_prefix TEXT NOT NULL, message TEXT NOT NULL,
    status TEXT DEFAULT 'pending', created_at TEXT NOT NULL, delivered_at TEXT);
CREATE INDEX IF NOT EXISTS idx_next_run ON scheduled_tasks(next_run);
CREATE INDEX IF NOT EXISTS idx_status ON scheduled_tasks(status);
CREATE INDEX IF NOT EXISTS idx_task_run_logs ON task_run_logs(task_id, run_at);
CREATE INDEX IF NOT EXISTS idx_delivery_queue_status ON delivery_queue(channel_prefix, status);
INSERT INTO conversations VALUES
    ('acp-11111111', 'claude-1', '/home/me/project', '2025-03-01T10:20:30.123456+00:00', 'h');
INSERT INTO conversations VALUES ('wa-491234', 'claude-2', NULL, '2025-03-02T00:00:00+00:00', NULL);
INSERT INTO scheduled_tasks VALUES ('t1', 'wa-491234', 'say; "hi"', 'cron', '0 9 * * *', 'group', NULL,
    '2025-03-03T09:00:00+00:00', NULL, NULL, 'active', '2025-03-01T00:00:00+00:00');
INSERT INTO task_run_logs VALUES (7, 't1', '2025-03-02T09:00:00+00:00', 1200, 'success', 'hi', NULL);
INSERT INTO delivery_queue VALUES
    ('d1', 't1', 7, 'wa-491234', 'wa', 'hi', 'pending', '2025-03-02T09:00:02+00:00', NULL);
"""


TWO_COLUMNS = """
CREATE TABLE IF NOT EXISTS acp_sessions (acp_session_id TEXT PRIMARY KEY, conversation_name TEXT NOT NULL);
INSERT INTO acp_sessions VALUES ('11111111-aaaa-4aaa-8aaa-aaaaaaaaaaaa', 'acp-11111111');
INSERT INTO acp_sessions VALUES ('22222222-bbbb-4bbb-8bbb-bbbbbbbbbbbb', 'acp-22222222');
"""


OUR_TABLES = {
    "acp_sessions",
    "acp_turns",
    "acp_events",
    "acp_log",
    "acp_permissions",
    "acp_workers",
    "acp_migrations",
}


def create(path: Path, script: str) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(script)


def query(path: Path, sql: str) -> list[Any]:
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute(sql).fetchall()
