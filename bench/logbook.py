"""A long history, in the form of before logs were folded, in which a daemon was killed while turns
ran.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from uuid import uuid4

from bench.lab import WORK, Lab
from pykoclaw_acp.link.places import Places
from pykoclaw_acp.model.events import Event, Text, ToolEnded, ToolStarted, UserMessage
from pykoclaw_acp.model.turns import SessionRecord
from pykoclaw_acp.store import events, sessions
from pykoclaw_acp.store.database import Database, Unit
from pykoclaw_acp.store.sqlite import sqlite3
from pykoclaw_acp.system.processes import boot_id

SESSIONS: Final = 100
TURN: Final = 100  # events of a turn
RUNNING: Final = 8  # sessions whose last turn ran
_NO_PROCESS: Final = 2**22 + 1  # above every pid that Linux gives out


@dataclass(frozen=True, slots=True)
class Logbook:
    """Two data directories: `full` holds `logged` events, `empty` a database without any."""

    full: Path
    empty: Path
    logged: int
    places: Places
    running: tuple[tuple[str, str], ...]  # session and turn

    def kill(self) -> None:
        """Let the database be that of a daemon that was killed, with its workers, in the middle of
        turns.
        """
        with sqlite3.connect(self.full / "pykoclaw.db") as connection:
            for session, turn in self.running:
                connection.execute(
                    "UPDATE acp_turns SET state = 'running', ended_at = NULL WHERE turn_id = ?",
                    (turn,),
                )
                connection.execute(
                    "INSERT INTO acp_workers (acp_session_id, epoch, pid, start_time, boot_id, socket, protocol,"
                    " created_at) VALUES (?, 1, ?, 1, ?, ?, 1, 1)",
                    (session, _NO_PROCESS, boot_id(), f"{self.places.directory}/sockets/{session}"),
                )
        connection.close()

    def unconverted(self) -> int:
        """Events that are still in the form of the version before logs were folded."""
        connection = sqlite3.connect(self.full / "pykoclaw.db")
        ((number,),) = connection.execute("SELECT COUNT(*) FROM acp_events")
        connection.close()
        return int(number)

    def states(self) -> set[str]:
        """Of the turns that ran."""
        connection = sqlite3.connect(self.full / "pykoclaw.db")
        marks = ", ".join("?" * len(self.running))
        rows = connection.execute(
            f"SELECT state FROM acp_turns WHERE turn_id IN ({marks})",
            [turn for _, turn in self.running],
        )
        found = {str(state) for (state,) in rows}
        connection.close()
        return found


async def write(lab: Lab, logged: int) -> Logbook:
    """Both directories, in the lab's home."""
    full, empty = lab.home / "full", lab.home / "empty"
    for data in (full, empty):
        data.mkdir(mode=0o700)
        await (await Database.open(data / "pykoclaw.db")).close()
    ids = [str(uuid4()) for _ in range(SESSIONS)]
    database = await Database.open(full / "pykoclaw.db")
    for session in ids:
        record = SessionRecord(session, f"acp-{session}", str(lab.home / WORK))
        await database.commit(Unit(sessions.insert(record, database.clock.now())))
    await database.close()
    running = []
    with sqlite3.connect(full / "pykoclaw.db") as connection:
        for session in ids:
            turns = [str(uuid4()) for _ in range(logged // SESSIONS // TURN)]
            running.append((session, turns[-1]))
            connection.executemany(
                "INSERT INTO acp_turns (turn_id, acp_session_id, origin, prompt, state, stop_reason, epoch, created_at,"
                " ended_at) VALUES (?, ?, 'client', '[]', 'done', 'end_turn', 1, 1, 1)",
                [(turn, session) for turn in turns],
            )
            said = [one for turn in turns for one in events.rows(session, turn, _turn(turn))]
            connection.executemany(
                "INSERT INTO acp_events (acp_session_id, seq, turn_id, kind, payload, created_at)"
                " VALUES (?, ?, ?, ?, ?, 1)",
                [
                    (session, seq, one.turn_id, one.kind, one.payload)
                    for seq, one in enumerate(said, 1)
                ],
            )
            connection.execute(
                "UPDATE acp_sessions SET last_seq = ? WHERE acp_session_id = ?",
                (len(said), session),
            )
    connection.close()
    state = lab.home / ".local/state/pykoclaw"
    return Logbook(full, empty, logged, Places(os.fspath(full), state), tuple(running[:RUNNING]))


def _turn(turn: str) -> list[Event]:
    tool = (
        ToolStarted(f"tool-{turn}", "Bash", "echo", "execute"),
        ToolEnded(f"tool-{turn}", "completed"),
    )
    text = [Text(f"answer-{turn}", "x" * 100) for _ in range(TURN - 3)]
    return [UserMessage(turn, {"type": "text", "text": "x" * 100}), *tool, *text]
