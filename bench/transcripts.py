"""Import of a transcript: how long it takes, what the process that reads it needs, what a look costs
when nothing has changed, and how long a load takes afterwards.

Where the baseline of a row is a limit, a ratio above 1 is a regression.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from statistics import median
from typing import Any, Final
from uuid import uuid4

from bench.figures import Figures
from bench.lab import WORK, Lab
from bench.turns import MS
from pykoclaw_acp.model.turns import SessionRecord
from pykoclaw_acp.store.database import Database, Statement, Unit
from pykoclaw_acp.store.session_journal import SessionJournal
from pykoclaw_acp.transcripts.transcripts import ImportedTranscripts

LOOKS: Final = 50
LOADS: Final = 10
PROJECT: Final = Path("projects/-w")  # in Claude's directory
KIB: Final = 1024
MEMORY: Final = 64  # MiB above an empty Python's
SAMPLE: Final = 0.02  # s between two looks at a reader's peak
HUGE: Final = 30 * KIB * KIB  # bytes of a tool's result


def imports(lab: Lab, figures: Figures, messages: int) -> None:
    """A transcript of so many messages, then one with huge lines."""
    directory = lab.home / f"import-{uuid4()}"
    (directory / PROJECT).mkdir(parents=True)
    imported, native = asyncio.run(_imports(lab, figures, messages, directory))
    # Its Claude's directory, too: a load looks at the transcript.
    agent = lab.start("ours", PYKOCLAW_DATA=str(directory), CLAUDE_CONFIG_DIR=str(directory))
    taken: dict[str, list[float]] = {imported: [], native: []}
    for _ in range(LOADS):
        for session, times in taken.items():
            turn = agent.reopen("session/load", session)
            times.append((turn.ended - turn.sent) * MS)
    agent.close()
    figures.note("… load of it, ms", median(taken[imported]), "logged here", median(taken[native]))


async def _imports(lab: Lab, figures: Figures, messages: int, directory: Path) -> tuple[str, str]:
    """Ids of a session with an imported log, and of one with the same events as its own."""
    database = await Database.open(directory / "pykoclaw.db")
    journal = SessionJournal(database)
    transcripts = ImportedTranscripts(journal, os.fspath(directory / PROJECT.parent))
    try:
        record, claude = await _session(lab, journal), str(uuid4())
        _write(directory / PROJECT / f"{claude}.jsonl", messages)
        began = time.perf_counter()
        found = await transcripts.take_in(record, claude, own=())
        seconds = time.perf_counter() - began
        assert found.logged[-1].seq >= messages
        figures.note(f"import of {messages:,} messages, ms", seconds * MS, "limit", MS)
        began = time.perf_counter()
        for _ in range(LOOKS):
            assert not (await transcripts.take_in(record, claude, own=())).logged
        seconds = (time.perf_counter() - began) / LOOKS
        began = time.perf_counter()
        for _ in range(LOOKS):
            await database.read("SELECT 1")
        least = (time.perf_counter() - began) / LOOKS
        figures.note("… look when nothing has changed, ms", seconds * MS, "a query", least * MS)
        follow = Statement(
            "UPDATE conversations SET session_id = ? WHERE name = ?",
            (claude, record.conversation_name),
            rows=1,
        )
        await database.commit(Unit((follow,)))
        native = await _session(lab, journal)
        last = found.logged[-1].seq
        for after in range(0, last, 1000):  # each row of an imported log is one event
            rows = await journal.read(record.session_id, after, 1000)
            said = [one.event for one in rows if one.event is not None]
            written = await journal.append(native.session_id, said)
        assert written[-1] == last
        another, huge = await _session(lab, journal), str(uuid4())
        _write(directory / PROJECT / f"{huge}.jsonl", messages, HUGE)
        taken = asyncio.ensure_future(transcripts.take_in(another, huge, own=()))
        peak = 0  # a reader that has worked for long ends with its answer
        while not (await asyncio.wait([taken], timeout=SAMPLE))[0]:
            peak = max([peak, *(_peak(f"/proc/{one}/status") for one in transcripts.readers.pids)])
        await taken
        more = (peak - _empty()) / KIB
        figures.note("… peak memory above an empty Python's, MiB", more, "limit", MEMORY)
        return record.session_id, native.session_id
    finally:
        transcripts.close()
        await database.close()


async def _session(lab: Lab, journal: SessionJournal) -> SessionRecord:
    session = str(uuid4())
    record = SessionRecord(session, f"acp-{session}", str(lab.home / WORK))
    await journal.create(record)
    return record


def _write(path: Path, messages: int, huge: int = 0) -> None:
    """Turns of a prompt, a tool call, its result and an answer; `huge`: bytes of one more result."""
    head: str | None = None
    count = 0
    with path.open("w") as file:

        def add(kind: str, content: Any) -> None:
            nonlocal head, count
            count += 1
            message = {"id": f"m{count}", "model": "x", "role": kind, "content": content}
            entry = {"parentUuid": head, "type": kind, "uuid": f"e{count}", "message": message}
            file.write(json.dumps({**entry, "toolUseResult": {"stdout": content}}) + "\n")
            head = f"e{count}"

        while count < messages:
            add("user", f"Question {count}: " + "word " * 40)
            tool = f"t{count}"
            call = {"type": "tool_use", "id": tool, "name": "Bash", "input": {"command": "ls"}}
            add("assistant", [call])
            result = {"type": "tool_result", "tool_use_id": tool, "content": "line\n" * 60}
            add("user", [result | ({"content": "x" * huge} if huge and count < 4 else {})])
            add("assistant", [{"type": "text", "text": "word " * 100}])


def _empty() -> int:
    program = "import sys; sys.stdout.write(open('/proc/self/status').read())"
    out = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True).stdout
    return _kib(out.decode())


def _peak(status: str) -> int:
    return _kib(Path(status).read_text())


def _kib(status: str) -> int:
    """VmHWM (proc(5))."""
    (line,) = [one for one in status.splitlines() if one.startswith("VmHWM")]
    return int(line.split()[1])
