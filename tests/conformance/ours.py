"""Our own agent, beside which other programs use the same data."""

from __future__ import annotations

import asyncio
import json
import uuid
from contextlib import closing
from pathlib import Path

from pykoclaw_acp.store.sqlite import sqlite3
from tests.conformance.agents import CommandAgent

HOME, DATA = ".claude/projects/-conformance", ".local/share/pykoclaw/pykoclaw.db"
AT = "2026-11-22T10:00:00+00:00"


class OurAgent(CommandAgent):
    """`home` is that of its user."""

    home: Path

    async def leave_transcript(self, session: str, cwd: Path, words: str) -> None:
        await asyncio.to_thread(self._write, session, cwd, words)

    async def leave_conversation(self, name: str, cwd: Path) -> None:
        known = str(uuid.uuid4())
        await asyncio.to_thread(self._insert, name, known, cwd)

    def _write(self, session: str, cwd: Path, words: str) -> None:
        ids = [str(uuid.uuid4()) for _ in range(2)]
        names = {"entrypoint": "cli", "cwd": str(cwd), "sessionId": session, "timestamp": AT}
        asked = {"role": "user", "content": words}
        said = [{"type": "text", "text": "Seen."}]
        answer = {"id": "msg_1", "model": "claude", "role": "assistant", "content": said}
        entries = [
            {"type": "user", "uuid": ids[0], "parentUuid": None, "message": asked, **names},
            {"type": "assistant", "uuid": ids[1], "parentUuid": ids[0], "message": answer, **names},
        ]
        path = self.home / HOME / f"{session}.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(json.dumps(one) + "\n" for one in entries))

    def _insert(self, name: str, session: str, cwd: Path) -> None:
        with closing(sqlite3.connect(self.home / DATA, timeout=30)) as other:
            other.execute(
                "INSERT INTO conversations (name, session_id, cwd, created_at) VALUES (?, ?, ?, ?)",
                (name, session, str(cwd), AT),
            )
            other.commit()
