"""Real transcripts: turns of ours and turns of other programs, all run by the real CLI on the
scripted model, and what looks at them find.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import uuid
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import claude_agent_sdk
from claude_agent_sdk import ClaudeAgentOptions, ClaudeSDKClient, ResultMessage, SystemMessage

from pykoclaw_acp.channel.frames import EventFrame, Numbered, TurnEnded, TurnStarted
from pykoclaw_acp.model.events import Event, Text, UserMessage
from pykoclaw_acp.model.imports import Imported
from pykoclaw_acp.model.turns import SessionRecord, Turn
from pykoclaw_acp.scripted_model.environment import offline_environment
from pykoclaw_acp.scripted_model.process import ScriptedModel
from pykoclaw_acp.store.database import Database, Statement, Unit
from pykoclaw_acp.store.session_journal import SessionJournal
from pykoclaw_acp.store.workers import SqlWorkerStore
from pykoclaw_acp.transcripts.transcripts import ImportedTranscripts
from pykoclaw_acp.worker.translate import Translator
from tests import databases
from tests.integration.journals import DONE, prompt

CLI = Path(claude_agent_sdk.__file__).parent / "_bundled/claude"
DEADLINE = 120


class World:
    """A home with Claude's transcripts, and a database with sessions."""

    def __init__(self, root: Path, model: ScriptedModel, database: Database) -> None:
        self.home = root / "home"
        self.home.mkdir()
        self.work = self.home / "work"
        self.work.mkdir()
        self.model = model
        self.database = database
        self.journal = SessionJournal(database)
        self.workers = SqlWorkerStore(database)
        self.environment = {**offline_environment(model.url, self.home), "IS_SANDBOX": "1"}
        self.projects = self.home / ".claude/projects"
        self.transcripts = ImportedTranscripts(self.journal, os.fspath(self.projects))
        self._translators: dict[str, Translator] = {}

    # --- who runs turns

    async def terminal(
        self, text: str, *options: str, cwd: Path | None = None, resume: str | None = None
    ) -> str:
        """A turn in the terminal: `claude -p`; returns the id of its Claude session."""
        resumed = () if resume is None else ("--resume", resume)
        process = await asyncio.create_subprocess_exec(
            CLI, "-p", "--dangerously-skip-permissions", "--output-format", "json", *resumed,
            *options, text, cwd=cwd or self.work, env={**os.environ, **self.environment},
            stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE,
        )  # fmt: skip
        async with asyncio.timeout(DEADLINE):
            out, _ = await process.communicate()
        return str(json.loads(out)["session_id"])

    @asynccontextmanager
    async def claude(self, **options: Any) -> AsyncIterator[ClaudeSDKClient]:
        """The CLI as our worker runs it."""
        chosen = ClaudeAgentOptions(
            env=self.environment,
            cwd=self.work,
            permission_mode="bypassPermissions",
            include_partial_messages=True,
            setting_sources=[],
            thinking={"type": "adaptive", "display": "summarized"},
            **options,
        )
        async with ClaudeSDKClient(chosen) as client:
            yield client

    async def ours(
        self, session: str, text: str, client: ClaudeSDKClient, turn_id: str | None = None
    ) -> str:
        """A turn of ours in a live CLI, logged as it comes; returns the id of its Claude session."""
        turn = prompt(session, turn_id or str(uuid.uuid4()))
        await self.begin(turn, text)
        await client.query(_one(turn.turn_id, text))
        return await self.rest(turn, client)

    async def begin(self, turn: Turn, text: str) -> int:
        """The turn is with Claude."""
        await self.journal.accept(turn)
        epoch = await self.workers.next_epoch(turn.session_id)
        said = UserMessage(turn.turn_id, {"type": "text", "text": text})
        await self.journal.dispatch(turn, epoch, [said])
        started = TurnStarted(epoch=epoch, n=1, turn_id=turn.turn_id)
        await self.journal.record(turn.session_id, epoch, [started], {})
        return epoch

    async def rest(self, turn: Turn, client: ClaudeSDKClient, *, background: bool = False) -> str:
        """What Claude says, up to the turn's end."""
        session = turn.session_id
        epoch = await self.epoch(session)
        translator = self._translators.setdefault(session, Translator(os.fspath(self.work)))
        translator.begin_turn()
        n, begun = 1, not background
        async with asyncio.timeout(DEADLINE):
            async for message in client.receive_messages():
                if isinstance(message, ResultMessage):
                    result = message
                    break
                if not begun and isinstance(message, SystemMessage) and message.subtype == "init":
                    n, begun = n + 1, True
                    start = TurnStarted(epoch=epoch, n=n, turn_id=turn.turn_id, background=True)
                    await self.journal.record(session, epoch, [start], {})
                for event in translator.events(message):
                    n += 1
                    turn_id = turn.turn_id if begun else None
                    frame = EventFrame(epoch=epoch, n=n, turn_id=turn_id, event=event)
                    await self.journal.record(session, epoch, [frame], {})
        frames: list[Numbered] = [
            EventFrame(epoch=epoch, n=(n := n + 1), turn_id=turn.turn_id, event=event)
            for event in translator.end_turn(result)
        ]
        frames.append(
            TurnEnded(
                epoch=epoch,
                n=n + 1,
                turn_id=turn.turn_id,
                stop_reason="end_turn",
                claude_session_id=result.session_id,
            )
        )
        await self.journal.record(session, epoch, frames, {turn.turn_id: DONE})
        return result.session_id

    async def epoch(self, session: str) -> int:
        ((epoch,),) = await self.database.read(
            "SELECT epoch FROM acp_sessions WHERE acp_session_id = ?", (session,)
        )
        return int(epoch)

    # --- sessions

    async def schedule(self, conversation: str, words: str) -> None:
        """A task of pykoclaw's scheduler."""
        task = Statement(
            "INSERT INTO scheduled_tasks (id, conversation, prompt, schedule_type, schedule_value,"
            " created_at) VALUES ('t', ?, ?, 'once', 'x', 'y')",
            (conversation, words),
        )
        await self.database.commit(Unit(statements=(task,)))

    async def session(self, name: str | None = None, conversation: str | None = None) -> str:
        """A session without turns."""
        session = name or str(uuid.uuid4())
        record = SessionRecord(session, conversation or f"acp-{session[:8]}", str(self.work))
        await self.journal.create(record)
        return session

    async def look(self, session: str, row: str | None, *own: str, noted: bool = True) -> Imported:
        """What a look finds; `row`: the Claude session in the conversation's row. `noted`: its
        digest becomes a note.
        """
        record = await self.journal.find(session)
        assert record is not None
        found = await self.transcripts.take_in(record, row, own=own)
        if noted:
            await self.transcripts.note_told(session)
        return found

    async def log(self, session: str) -> list[Event | None]:
        return [one.event for one in await self.journal.read(session, 0, 100_000)]

    async def said(self, session: str) -> str:
        """The log as text: users' messages in brackets, with their origin."""
        return told(await self.log(session))

    def transcript(self, claude_session: str) -> Path:
        (found,) = self.projects.glob(f"*/{claude_session}.jsonl")
        return found


def told(events: Iterable[Event | None]) -> str:
    words: list[str] = []
    for event in events:
        if isinstance(event, UserMessage):
            words.append(f"[{event.origin or 'ours'}: {event.content.get('text')}]")
        elif isinstance(event, Text):
            words.append(event.text)
    return " ".join(words)


async def _one(turn_id: str, text: str) -> AsyncIterator[dict[str, Any]]:
    content = [{"type": "text", "text": text}]
    yield {
        "type": "user",
        "message": {"role": "user", "content": content},
        "parent_tool_use_id": None,
        "uuid": turn_id,
    }


def written(path: Path, entries: Sequence[dict[str, Any]]) -> Path:
    """A transcript with these entries."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(entry) + "\n" for entry in entries))
    return path


@asynccontextmanager
async def world(root: Path, model: ScriptedModel) -> AsyncIterator[World]:
    database = await databases.open_new(root / "pykoclaw.db")
    made = World(root, model, database)
    with contextlib.ExitStack() as stack:
        stack.callback(made.transcripts.close)
        try:
            yield made
        finally:
            await database.close()
