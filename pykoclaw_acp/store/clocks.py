"""`acp_clock`: the last saved reading of the data directory's own clock, in one row."""

from __future__ import annotations

from pykoclaw_acp.store.sqlite import sqlite3
from pykoclaw_acp.store.units import Statement
from pykoclaw_acp.system.clock import Clock, ClockReading


def go_on(connection: sqlite3.Connection) -> Clock:
    """The clock, continued from its saved reading."""
    row = connection.execute("SELECT boot_id, uptime, counted FROM acp_clock").fetchone()
    return Clock(None if row is None else ClockReading(*row))


def note(clock: Clock) -> Statement:
    """Save the current reading."""
    stands = clock.note()
    return Statement(
        "INSERT INTO acp_clock (id, boot_id, uptime, counted) VALUES (1, ?, ?, ?) ON CONFLICT (id) DO UPDATE"
        " SET boot_id = excluded.boot_id, uptime = excluded.uptime, counted = excluded.counted",
        (stands.boot_id, stands.uptime, stands.counted),
    )
