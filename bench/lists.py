"""Lists of sessions: a page among very many, and what transcripts of other programs cost.

Where the baseline of a row is a limit, a ratio above 1 is a regression.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from pathlib import Path
from statistics import median, quantiles
from typing import Any, Final
from uuid import uuid4

from bench.agents import Agent
from bench.figures import Figures
from bench.lab import Lab
from bench.turns import MS
from pykoclaw_acp.store.database import Database
from pykoclaw_acp.store.sqlite import sqlite3
from pykoclaw_acp.store.units import Statement, Unit

FEW: Final = 100  # sessions, to compare with
DIRECTORIES: Final = 100
PROJECTS: Final = 200  # folders of transcripts
P99: Final = 10.0  # ms
LOOK_WAIT: Final = 300.0  # s
_SESSION: Final = (
    "INSERT INTO acp_sessions (acp_session_id, conversation_name, cwd, title, created_at, updated_at,"
    " prompted_at, used_clock) VALUES (?, ?, ?, ?, ?, ?, ?, 1)"
)
_ROW: Final = (
    "INSERT INTO conversations (name, session_id, cwd, created_at)"
    " VALUES (?, ?, ?, '2026-01-01T00:00:00+00:00')"
)


def lists(lab: Lab, figures: Figures, sessions: int, transcripts: int, times: int) -> None:
    """Pages of the list, then a first look at transcripts, and a start that finds them unchanged."""
    root = lab.home / "lists"
    if not root.exists():
        for one in ("few", "many", "none"):
            (root / one).mkdir(parents=True, mode=0o700)
        asyncio.run(seed(root / "few", FEW))
        asyncio.run(seed(root / "many", sessions))
        _write(root / "claude", transcripts)
    _pages(lab, figures, root, sessions, times)
    _looks(lab, figures, root, transcripts)


def _pages(lab: Lab, figures: Figures, root: Path, sessions: int, times: int) -> None:
    few, many = (_agent(lab, root / one, root / "none") for one in ("few", "many"))
    cursor = many.wait(many.begin("session/list"))[1]["nextCursor"]
    half = many.wait(many.begin("session/list", cursor=cursor))[1]["nextCursor"]
    for what, params in (
        ("session/list", {}),
        ("… a later page", {"cursor": half}),
        ("… of one directory", {"cwd": "/w/7"}),
    ):
        figure = f"{what} among {sessions:,} sessions, ms"
        alone = [_seconds(few, {}) for _ in range(times)]
        taken = [_seconds(many, params) for _ in range(times)]
        figures.note(figure, median(taken) * MS, f"among {FEW}", median(alone) * MS)
        figures.note(f"{figure}, p99", quantiles(taken, n=100)[98] * MS, "limit", P99)
    few.close()
    many.close()


def _looks(lab: Lab, figures: Figures, root: Path, transcripts: int) -> None:
    """In a database of its own, so that the first look is one."""
    data, empty = root / f"data-{uuid4()}", root / f"data-{uuid4()}"
    began = time.perf_counter()
    _read(root / "claude")
    least = time.perf_counter() - began
    agent = _agent(lab, data, root / "claude")
    began = time.perf_counter()
    agent.wait(agent.begin("session/list"))
    while _count(data) < transcripts:
        if time.perf_counter() - began > LOOK_WAIT:
            raise RuntimeError("the transcripts are not looked at")
        time.sleep(0.05)
    what = f"first look at {transcripts:,} transcripts, s"
    figures.note(what, time.perf_counter() - began, "reading them", least)
    agent.close()
    _agent(lab, empty, root / "none").close()
    known, none = _agent(lab, data, root / "claude"), _agent(lab, empty, root / "none")
    started = ((one.ready - one.started) * MS for one in (known, none))
    figures.note("… later start, ms", next(started), "with no transcript", next(started))
    began = time.perf_counter()
    _stat(root / "claude")
    least = time.perf_counter() - began
    none.close()
    figures.note("… its first list, ms", _seconds(known, {}) * MS, "a stat of each", least * MS)
    figures.note("… its next list, ms", _seconds(known, {}) * MS, "limit", P99)
    known.close()


def _agent(lab: Lab, data: Path, claude: Path) -> Agent:
    return lab.start("ours", PYKOCLAW_DATA=str(data), CLAUDE_CONFIG_DIR=str(claude))


def _seconds(agent: Agent, params: dict[str, Any]) -> float:
    turn, _ = agent.wait(agent.begin("session/list", **params))
    return turn.ended - turn.sent


async def seed(data: Path, sessions: int) -> None:
    """Make a database with so many sessions."""
    database = await Database.open(data / "pykoclaw.db")
    for first in range(0, sessions, 1000):
        rows: list[Statement] = []
        for n in range(first, min(first + 1000, sessions)):
            one, cwd = str(uuid4()), f"/w/{n % DIRECTORIES}"
            at = 1_700_000_000_000 + n
            values = (one, f"acp-{one}", cwd, f"Session number {n}", at, at, at)
            rows += [Statement(_SESSION, values), Statement(_ROW, (f"acp-{one}", one, cwd))]
        await database.commit(Unit(tuple(rows)))
    await database.close()


def _write(claude: Path, transcripts: int) -> None:
    for n in range(transcripts):
        folder = claude / "projects" / f"-w-{n % PROJECTS}"
        folder.mkdir(parents=True, exist_ok=True)
        names = {"cwd": f"/w/{n % PROJECTS}", "timestamp": "2026-01-01T00:00:00.000Z"}
        question = {"role": "user", "content": f"Question {n}: " + "word " * 200}
        answer = {"id": "m", "model": "x", "content": [{"type": "text", "text": "word " * 400}]}
        entries = [
            {"type": "user", "uuid": "a", "parentUuid": None, "message": question, **names},
            {"type": "attachment", "uuid": "b", "parentUuid": "a", "x": "x" * 8000, **names},
            {"type": "assistant", "uuid": "c", "parentUuid": "b", "message": answer, **names},
        ]
        lines = "".join(json.dumps(one) + "\n" for one in entries)
        (folder / f"{uuid4()}.jsonl").write_text(lines)


def _read(claude: Path) -> None:
    for folder in os.scandir(claude / "projects"):
        for file in os.scandir(folder.path):
            Path(file.path).read_bytes()


def _stat(claude: Path) -> None:
    for folder in os.scandir(claude / "projects"):
        for file in os.scandir(folder.path):
            os.stat(file.path)


def _count(data: Path) -> int:
    database = sqlite3.connect(f"file:{data / 'pykoclaw.db'}?mode=ro", uri=True, timeout=30)
    try:
        found = database.execute("SELECT COUNT(*) FROM acp_found_transcripts WHERE listed = 1")
        return int(found.fetchone()[0])
    finally:
        database.close()
