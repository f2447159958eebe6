"""Replays of long logs: when their first line comes, and what the server holds meanwhile.

Where the baseline of a row is a limit, a ratio above 1 is a regression.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from statistics import median
from typing import Final
from uuid import uuid4

from bench.agents import Agent
from bench.figures import Figures
from bench.lab import WORK, Lab
from bench.turns import MS
from pykoclaw_acp.model.events import (
    Event,
    Text,
    TextPart,
    ToolEnded,
    ToolStarted,
    UserMessage,
)
from pykoclaw_acp.model.turns import SessionRecord
from pykoclaw_acp.store.database import Database
from pykoclaw_acp.store.session_journal import SessionJournal

FEW: Final = 500  # events, to compare with
FIRST: Final = 30.0  # ms until the first line of the replay
CHUNKS: Final = 3
LAST: Final = 20  # turns of a window
OUTPUT: Final = 400  # characters of a tool's output


def replays(lab: Lab, figures: Figures, events: int, times: int) -> None:
    """A log of so many events, read whole and in a window, next to a short one."""
    root = lab.home / "replays"
    ids = {size: str(uuid4()) for size in (FEW, events)}
    if not root.exists():
        root.mkdir(mode=0o700)
        asyncio.run(_seed(root, ids, str(lab.home / WORK)))
        (root / "ids").write_text(" ".join(ids.values()))
    few, many = (root / "ids").read_text().split()
    agent = lab.start("ours", PYKOCLAW_DATA=str(root))
    _load(agent, lab, few)
    before = lab.memory("rss", "command")
    turn = agent.reopen("session/load", few)
    figures.note("chunks a message at load", len(turn.pieces) / (FEW / 5 * 3), "limit", CHUNKS)
    short = [_load(agent, lab, few) for _ in range(times)]
    whole = [_load(agent, lab, many) for _ in range(times)]
    after = lab.memory("rss", "command")
    window = [_load(agent, lab, many, LAST) for _ in range(times)]
    agent.close()
    what = f"replay of {events:,} events"
    figures.note(f"{what}, first line, ms", median(one for one, _ in whole), "limit", FIRST)
    rate = median(all_of_it for _, all_of_it in short) / FEW * events
    figures.note(f"{what}, all, ms", median(one for _, one in whole), f"as {FEW} events", rate)
    figures.note(f"{what}, RSS of the server, MiB", after, f"after {FEW} events", before)
    figures.note(
        f"… its last {LAST} turns, ms", median(one for _, one in window), "all of it",
        median(one for _, one in whole),
    )  # fmt: skip


def _load(agent: Agent, lab: Lab, session: str, last: int | None = None) -> tuple[float, float]:
    """Milliseconds until the first line, and until the answer."""
    meta = {} if last is None else {"_meta": {"pykoclaw.dev/replay": {"last": last}}}
    params = {"sessionId": session, "cwd": str(lab.home / WORK), "mcpServers": []}
    turn, _ = agent.wait(agent.begin("session/load", **params, **meta))
    return (turn.pieces[0][0] - turn.sent) * MS, (turn.ended - turn.sent) * MS


async def _seed(root: Path, ids: dict[int, str], cwd: str) -> None:
    database = await Database.open(root / "pykoclaw.db")
    journal = SessionJournal(database)
    for size, session in ids.items():
        await journal.create(SessionRecord(session, f"acp-{session[:8]}", cwd))
        for first in range(0, size, 1000):
            said = [event for n in range(first, min(first + 1000, size), 5) for event in _turn(n)]
            await journal.append(session, said)
    await database.close()


def _turn(number: int) -> list[Event]:
    call = f"call-{number}"
    return [
        UserMessage(str(uuid4()), {"type": "text", "text": f"Question {number}"}),
        Text(f"m-{number}", "Let me look. " * 10),
        ToolStarted(call, "Bash", "Bash: ls", "execute", input={"command": "ls"}),
        ToolEnded(call, "completed", (TextPart("x" * OUTPUT),)),
        Text(f"n-{number}", "That is it. " * 20),
    ]
