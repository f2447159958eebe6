"""A round of what is held: histories in the database, and processes in memory."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from typing import Final
from uuid import uuid4

from bench.figures import Figures
from bench.lab import EVERY, WORK, Lab
from bench.turns import HELLO, MS, SDK
from pykoclaw_acp.model.events import Event, Text, UserMessage
from pykoclaw_acp.model.turns import SessionRecord
from pykoclaw_acp.store import events, sessions
from pykoclaw_acp.store.database import Database, Unit
from pykoclaw_acp.store.sqlite import sqlite3

DATA: Final = ".local/share/pykoclaw/pykoclaw.db"  # in the home
LONG: Final = "[[script repeat 20000x0ms " + "x" * 100 + "]]"


async def fill(lab: Lab, sizes: list[int]) -> dict[int, str]:
    """Sessions with so many messages of 200 characters; their ids by size."""
    database = await Database.open(lab.home / DATA)
    ids = {size: str(uuid4()) for size in sizes}
    question = {"type": "text", "text": "x" * 200}
    for size, session in ids.items():
        record = SessionRecord(session, f"acp-{session}", str(lab.home / WORK))
        await database.commit(Unit(sessions.insert(record, database.clock.now())))
        said: list[Event] = []
        for at in range(size // 2):
            said += [UserMessage(f"question-{at}", question), Text(f"answer-{at}", "x" * 200)]
        await database.commit(Unit(events=events.rows(session, None, said)))
    await database.close()
    return ids


def loads(lab: Lab, figures: Figures, ids: dict[int, str]) -> None:
    """A stored session, as the first thing that a fresh server is asked for."""
    for size, session in ids.items():
        began = time.monotonic()
        database = sqlite3.connect(lab.home / DATA)
        rows = database.execute(
            "SELECT payload FROM acp_log JOIN acp_sessions USING (log_key) WHERE acp_session_id = ? ORDER BY seq",
            (session,),
        )
        plain = [json.dumps(json.loads(payload)) for (payload,) in rows]
        seconds = time.monotonic() - began
        database.close()
        for method, expected in (("resume", 0), ("load", len(plain))):
            agent = lab.start("ours")
            turn = agent.reopen(f"session/{method}", session)
            agent.close()
            if len(turn.pieces) != expected:
                raise RuntimeError(f"{len(turn.pieces)} of {expected} messages arrived")
            what = f"session/{method} of {size:,} messages, ms"
            figures.note(what, (turn.ended - turn.sent) * MS, "sqlite3 and json", seconds * MS)


def memory(lab: Lab, figures: Figures, few: int, many: int) -> None:
    """What idle processes hold, and what a client costs that does not read."""
    python = []
    for code in ("input()", "import claude_agent_sdk; input()"):
        process = subprocess.Popen(
            [sys.executable, "-c", code], stdin=subprocess.PIPE, env=lab.environment
        )
        python.append(lab.memory("pss", "tool"))
        process.communicate(b"\n")
    server = lab.start("ours")
    figures.note("server, PSS, MiB", lab.memory("pss", "command"), "idle Python", python[0])
    none = lab.memory("rss", "command")
    opened = [server.new()[0] for _ in range(many)]
    figures.note(
        f"server with {many} sessions, RSS, MiB", lab.memory("rss", "command"), "with none", none
    )
    figures.note(
        "fork server, PSS, MiB", lab.memory("pss", "fork server"), "Python with the SDK", python[1]
    )
    for session in opened[:few]:
        server.prompt(session, HELLO)
    held = [[lab.memory("pss", *roles) for roles in (("worker",), ("claude",), EVERY)]]
    server.prompt(opened[0], LONG)
    reading = lab.memory("rss", "command")
    turn = server.begin_prompt(opened[0], LONG)
    figures.note(
        "server, client does not read 2 MB, RSS, MiB",
        lab.memory("rss", "command"),
        "it reads",
        reading,
    )
    server.wait(turn)
    server.close()
    for who in list(lab.commands)[1:]:
        agents = [lab.start(who) for _ in range(few if who == "bare" else 1)] * few
        for agent in agents[:few]:
            agent.prompt(agent.new()[0], HELLO)
        held.append([lab.memory("pss", *roles) for roles in (("tool",), ("claude",), EVERY)])
        for agent in set(agents):
            agent.close()
    ours, bare, *peer = held
    figures.note("worker, PSS, MiB", ours[0] / few, SDK, bare[0] / few)
    figures.note("its claude, PSS, MiB", ours[1] / few, SDK, bare[1] / few)
    figures.note(
        f"all of {few} sessions, PSS, MiB", ours[2], SDK, *(one[2] for one in (bare, *peer))
    )
