"""A round of what comes from other programs: deliveries, and what looking for them costs."""

from __future__ import annotations

import secrets
import time
from contextlib import closing
from pathlib import Path
from statistics import quantiles
from typing import Final

from bench.figures import Figures
from bench.lab import Lab
from bench.resident import daemon
from bench.turns import MS
from pykoclaw_acp.model.schedule import now_text
from pykoclaw_acp.store.sqlite import sqlite3

SHOWN_LIMIT: Final = 1000  # ms
IDLE_LIMIT: Final = 0.5  # percent of a core
CONVERSATIONS: Final = 10_000
TASKS: Final = 1_000
SETTLE: Final = 3.0  # s after a start, in which the daemon does what it does once


def deliveries(lab: Lab, figures: Figures, times: int, idle: float) -> None:
    """From a row of `delivery_queue` to the client; and the CPU time of a daemon that waits for
    `idle` s, with the scheduler on.
    """
    data = lab.home / "outside"
    with daemon(lab, PYKOCLAW_DATA=str(data), PYKOCLAW_SCHEDULER="on"):
        waits = _waits(lab, data, times)
        _fill(data)
        time.sleep(SETTLE)
        used, began = lab.cpu("daemon"), time.monotonic()
        time.sleep(idle)
        percent = 100 * (lab.cpu("daemon") - used) / (time.monotonic() - began)
    cuts = quantiles(waits, n=100)
    figures.note("delivery enqueued → shown, p50, ms", cuts[49] * MS, "limit", SHOWN_LIMIT)
    figures.note("delivery enqueued → shown, p99, ms", cuts[98] * MS, "limit", SHOWN_LIMIT)
    what = f"idle daemon, {CONVERSATIONS:,} conversations, {TASKS:,} tasks, CPU, percent"
    figures.note(what, percent, "limit", IDLE_LIMIT)


def _waits(lab: Lab, data: Path, times: int) -> list[float]:
    """Seconds until each of so many deliveries is shown, one after the other."""
    front = lab.start_front(PYKOCLAW_DATA=str(data))
    session, _ = front.new()
    waits = []
    for number in range(times):
        time.sleep(secrets.randbelow(300) / 1000)  # wherever the daemon is between two looks
        with closing(sqlite3.connect(data / "pykoclaw.db")) as other:
            other.execute(
                "INSERT INTO delivery_queue (id, task_id, conversation, channel_prefix, message, status, created_at)"
                " VALUES (?, 'send-cli', ?, 'acp', ?, 'pending', ?)",
                (secrets.token_hex(6), f"acp-{session[:8]}", f"message {number};", now_text()),
            )
            other.commit()
        at = time.monotonic()
        waits.append(front.wait_for_text(f"message {number};".encode()) - at)
    front.close()
    return waits


def _fill(data: Path) -> None:
    """Conversations and tasks of other programs; no task is due."""
    with closing(sqlite3.connect(data / "pykoclaw.db")) as other:
        other.executemany(
            "INSERT INTO conversations (name, session_id, cwd, created_at) VALUES (?, ?, '/', ?)",
            [(f"wa-andy-{n}@g.us", f"claude-{n}", now_text()) for n in range(CONVERSATIONS)],
        )
        other.executemany(
            "INSERT INTO scheduled_tasks"
            " (id, conversation, prompt, schedule_type, schedule_value, next_run, created_at)"
            " VALUES (?, ?, 'Report.', 'cron', '0 9 * * *', '2099-01-01T09:00:00+00:00', ?)",
            [(f"{n:08x}", f"wa-andy-{n}@g.us", now_text()) for n in range(TASKS)],
        )
        other.commit()
