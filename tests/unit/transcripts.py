"""Entries of transcripts, as the CLI writes them, and what a reader makes of them."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pykoclaw_acp.model.events import Event, Text, ToolEnded, ToolStarted, UserMessage
from pykoclaw_acp.transcripts.reader import TranscriptReader
from pykoclaw_acp.transcripts.wire import Piece, Scan


@dataclass
class Transcript:
    """A transcript that is written entry by entry; each follows the one before it, unless `parent`
    is given.
    """

    path: Path
    head: str | None = None
    count: int = 0
    _names: dict[str, Any] = field(default_factory=lambda: {"entrypoint": "sdk-py", "cwd": "/w"})

    def raw(self, line: str) -> None:
        """A line as it is."""
        with self.path.open("a", errors="surrogateescape") as file:
            file.write(line)

    def add(self, kind: str, uuid: str | None = None, **fields: Any) -> str:
        """An entry; returns its uuid."""
        self.count += 1
        uuid = uuid or f"e{self.count}"
        entry = {"parentUuid": self.head, "type": kind, "uuid": uuid, **self._names, **fields}
        self.raw(json.dumps(entry) + "\n")
        self.head = uuid
        return uuid

    def leaf(self, uuid: str) -> None:
        """The note of a CLI with which entry its conversation ends."""
        self.raw(json.dumps({"type": "last-prompt", "lastPrompt": "x", "leafUuid": uuid}) + "\n")

    def prompt(self, text: str | list[dict[str, Any]], uuid: str | None = None, **more: Any) -> str:
        """What a user has said."""
        return self.add("user", uuid, message={"role": "user", "content": text}, **more)

    def say(self, text: str, message_id: str | None = None, **more: Any) -> str:
        """What Claude has said."""
        return self.assistant({"type": "text", "text": text}, message_id, **more)

    def call(self, tool: str, name: str = "Bash", **arguments: Any) -> str:
        """Claude calls a tool."""
        block = {"type": "tool_use", "id": tool, "name": name, "input": arguments}
        return self.assistant(block, None)

    def synthetic(self, **more: Any) -> str:
        """What a CLI that resumes puts in the place of an answer that is missing."""
        said = [{"type": "text", "text": "No response requested."}]
        message = {"id": f"none{self.count}", "model": "<synthetic>", "content": said}
        return self.add("assistant", message=message, **more)

    def result(self, tool: str, content: Any = "out", **more: Any) -> str:
        """What a tool has returned."""
        block = {"type": "tool_result", "tool_use_id": tool, "content": content}
        return self.prompt([block], **more)

    def assistant(self, block: dict[str, Any], message_id: str | None, **more: Any) -> str:
        message_id = message_id or f"msg{self.count}"
        message = {"id": message_id, "model": "claude", "content": [block]}
        return self.add("assistant", message=message, **more)


def subagent(t: Transcript, name: str, call: str, kind: str = "Explore") -> Transcript:
    """The file of a subagent, empty yet, beside that of its meta data."""
    folder = t.path.with_suffix("") / "subagents"
    folder.mkdir(parents=True, exist_ok=True)
    meta = {"agentType": kind, "toolUseId": call, "description": "look", "spawnDepth": 1}
    (folder / f"agent-{name}.meta.json").write_text(json.dumps(meta))
    return Transcript(folder / f"agent-{name}.jsonl")


@dataclass
class Reading:
    """Looks at a transcript, each from where the one before ended."""

    transcript: Transcript
    own: tuple[str, ...] = ()
    fields: dict[str, Any] = field(default_factory=dict)
    offset: int = 0
    state: str = ""
    pieces: list[Piece] = field(default_factory=list)

    def look(self) -> list[Event]:
        """The new events."""
        path = self.transcript.path
        descriptor = os.open(path, os.O_RDONLY)
        fields = {"own": list(self.own), "anew": not self.offset, **self.fields}
        scan = Scan(str(path), "/w", self.offset, self.state, **fields)
        try:
            upto = scan.upto or os.fstat(descriptor).st_size
            self.pieces = list(TranscriptReader(scan, descriptor, upto).pieces())
        finally:
            os.close(descriptor)
        self.offset, self.state = self.pieces[-1].offset, self.pieces[-1].state
        return [event for piece in self.pieces for _, _, event in piece.events]

    @property
    def parents(self) -> dict[str, str | None]:
        """The turn before each turn of this look."""
        found = {one.uuid: one.parent for piece in self.pieces for one in piece.turns}
        for piece in self.pieces:
            found |= piece.parents
        return found


def words(events: Iterable[Event]) -> list[str]:
    """Events in a few words."""
    said: list[str] = []
    for event in events:
        if isinstance(event, UserMessage):
            said.append(f"> {event.content.get('text')}")
        elif isinstance(event, Text):
            said.append(event.text)
        elif isinstance(event, ToolStarted):
            said.append(f"{event.title} …")
        elif isinstance(event, ToolEnded):
            said.append(f"{event.tool_call_id} {event.status}")
        else:
            said.append(type(event).__name__)
    return said
