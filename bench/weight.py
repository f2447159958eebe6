"""What a live event costs the daemon at the pace of real models, and what is left of it on the disk
and in a load.

Where the baseline of a row is a limit, a ratio above 1 is a regression.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final
from uuid import uuid4

import psutil  # type: ignore[import-untyped]

from bench import floor
from bench.agents import Agent
from bench.figures import Figures
from bench.lab import WORK, Lab
from bench.resident import daemon
from bench.turns import HELLO, MS
from pykoclaw_acp.demo import processes
from pykoclaw_acp.model.events import Text, UserMessage
from pykoclaw_acp.model.turns import SessionRecord
from pykoclaw_acp.store import events, sessions
from pykoclaw_acp.store.database import Database, Unit

DELTA: Final = "1234567"  # with the space that follows, 8 characters
EVERY_MS: Final = 20
STREAMS: Final = 8
CPU_LIMIT: Final = 0.3  # ms
LOOKS: Final = 2000
LOOKS_LIMIT: Final = 20.0  # µs
PEER_LIMIT: Final = 0.3  # of the peer's time


def live(lab: Lab, figures: Figures, deltas: int) -> None:
    """One stream of 50 deltas a second, then eight; then what of them is on the disk."""
    with daemon(lab):
        fronts = [lab.start_front() for _ in range(STREAMS)]
        sessions = [front.new()[0] for front in fronts]
        for front, session in zip(fronts, sessions, strict=True):
            front.prompt(session, HELLO)
        process = _daemon(lab)
        seconds, used, written = _stream(process, fronts[:1], sessions, deltas)
        least = floor.cost(lab.home, deltas, EVERY_MS / MS)
        figures.note(
            "daemon: CPU of a live event, ms", used * MS / deltas, "loop and commit", least * MS
        )
        figures.note("daemon: CPU of a live event, ms", used * MS / deltas, "limit", CPU_LIMIT)
        figures.note("daemon: written for a live event, KB", written / deltas / 1000, "limit", 6.5)
        seconds, used, written = _stream(process, fronts, sessions, deltas)
        figures.note(
            "daemon: eight streams of 50 deltas a second, % of a core",
            100 * used / seconds,
            "limit",
            15,
        )
        figures.note(
            "… CPU of an event, ms", used * MS / deltas / STREAMS, "loop and commit", least * MS
        )
        for front in fronts:
            front.close()


def stored(lab: Lab, figures: Figures, answers: int, deltas: int) -> None:
    """So many answers that came in pieces: their weight in the file, and their way to a client."""
    data = lab.home / f"answers-{uuid4()}"
    data.mkdir(mode=0o700)
    session, held, looks = asyncio.run(
        _fill(data / "pykoclaw.db", str(lab.home / WORK), answers, deltas)
    )
    figures.note(
        "CPU of the looks at the files around a commit, µs", looks * MS * 1000, "limit", LOOKS_LIMIT
    )
    text = answers * deltas * len(f"{DELTA} ")
    figures.note("on the disk for a byte of text in deltas of 8, bytes", held / text, "limit", 4)
    agent = lab.start("ours", PYKOCLAW_DATA=str(data))
    turn = agent.reopen("session/load", session)
    agent.close()
    if sum(words for _, words in turn.pieces) != answers * (deltas + 1):
        raise RuntimeError("the load does not tell what was said")
    what = f"load of {answers} answers of {deltas} deltas"
    figures.note(f"{what}: updates for a message", len(turn.pieces) / answers / 2, "limit", 3)
    figures.note(f"{what}: first update, ms", (turn.pieces[0][0] - turn.sent) * MS, "limit", 30)
    if "peer" in lab.commands:
        took, peer = turn.ended - turn.sent, _peer_load(lab, answers, deltas)
        figures.note(f"{what}: ms", took * MS, "peer", peer * MS)
        figures.note(f"{what}: part of the peer's time", took / peer, "limit", PEER_LIMIT)


def _peer_load(lab: Lab, answers: int, deltas: int) -> float:
    """Seconds of a load of as many answers by the peer, which it was told before."""
    agent = lab.start("peer")
    session, _ = agent.new()
    for _ in range(answers):
        agent.prompt(session, f"[[script repeat {deltas}x0ms {DELTA}]]")
    agent.close()
    agent = lab.start("peer")
    turn = agent.reopen("session/load", session)
    agent.close()
    return turn.ended - turn.sent


async def _fill(path: Path, cwd: str, answers: int, deltas: int) -> tuple[str, int, float]:
    """Answers that were committed delta by delta; the session, the bytes of the file that are in use
    for them, and the CPU seconds in which a commit looks whether the files are in their places.
    """
    database = await Database.open(path)
    session = str(uuid4())
    await database.commit(Unit(sessions.insert(SessionRecord(session, f"acp-{session}", cwd), 0)))
    before = await _used(database)
    for answer in range(answers):
        asked = events.rows(
            session, None, [UserMessage(f"question-{answer}", {"type": "text", "text": "why?"})]
        )
        delta = events.rows(
            session, None, [Text(f"msg_01XFDUDYJgAACzvnptvVoYEL-{answer}", f"{DELTA} ")]
        )
        await asyncio.gather(
            *(database.commit(Unit(events=one)) for one in [asked, *[delta] * deltas])
        )
    await database.commit(
        Unit(events=events.rows(session, None, [UserMessage("end", {"type": "text", "text": ""})]))
    )
    held = await _used(database) - before
    begun = time.thread_time()
    for _ in range(LOOKS):
        database.file.check()
        database.file.check_after_commit()
    looks = (time.thread_time() - begun) / LOOKS
    await database.close()
    return session, held, looks


async def _used(database: Database) -> int:
    ((used,),) = await database.read(
        "SELECT (page_count - freelist_count) * page_size"
        " FROM pragma_page_count, pragma_freelist_count, pragma_page_size"
    )
    return int(used)


def _stream(
    process: psutil.Process, fronts: Sequence[Agent], sessions: Sequence[str], deltas: int
) -> tuple[float, float, int]:
    """Seconds that it took, seconds of processor time, and bytes written, of the daemon."""
    time.sleep(1)
    before, wrote, began = (
        sum(process.cpu_times()[:2]),
        process.io_counters().write_bytes,
        time.monotonic(),
    )
    text = f"[[script repeat {deltas}x{EVERY_MS}ms {DELTA}]]"
    threads = [
        threading.Thread(target=front.prompt, args=(session, text))
        for front, session in zip(fronts, sessions, strict=False)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    seconds = time.monotonic() - began
    return seconds, sum(process.cpu_times()[:2]) - before, process.io_counters().write_bytes - wrote


def _daemon(lab: Lab) -> psutil.Process:
    (found,) = [one.pid for one in processes.find(lab.home) if one.role == "daemon"]
    return psutil.Process(found)
