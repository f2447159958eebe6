"""Turns summed up for Claude, which does not know them: what was asked, and what was answered."""

from __future__ import annotations

import os
from typing import Final

from pykoclaw_acp.transcripts import entries, lines
from pykoclaw_acp.transcripts.files import opened

MOST_TURNS: Final = 8  # the newest ones
MOST_ASKED: Final = 600  # characters
MOST_SAID: Final = 1600  # characters; of the end of an answer
MOST_ENTRIES: Final = 100_000  # of these turns


class _Summary:
    def __init__(self) -> None:
        self.asked = ""
        self.said = ""
        self.tools: dict[str, int] = {}

    def text(self) -> str:
        parts = [f"Asked: {self.asked or '(nothing)'}"]
        if self.tools:
            used = ", ".join(f"{name} ({count})" for name, count in list(self.tools.items())[:12])
            parts.append(f"Tools: {used}")
        parts.append(f"Answered: {self.said or '(nothing yet)'}")
        return "\n".join(parts)


def digest(transcripts: list[tuple[str, list[str]]]) -> str:
    """The turns with these uuids, by file, as text of at most 20,000 characters."""
    summaries: list[_Summary] = []
    left_out = 0
    for path, turns in transcripts:
        found = _read(path, turns)
        left_out += max(0, len(found) - MOST_TURNS)
        summaries += found[-MOST_TURNS:]
    left_out += max(0, len(summaries) - MOST_TURNS)
    texts = [one.text() for one in summaries[-MOST_TURNS:]]
    if left_out:
        texts.insert(0, f"({left_out} earlier turns are left out.)")
    return "\n\n".join(texts)


def _read(path: str, turns: list[str]) -> list[_Summary]:
    found: dict[str, _Summary] = {}
    members: dict[str, str] = {}  # turn by entry
    wanted = frozenset(turns)
    with opened(path) as descriptor:
        for line in lines.read(descriptor, 0, os.fstat(descriptor).st_size):
            entry = entries.decode(line.text)
            if entry is None or entry.uuid is None or entry.is_sidechain:
                continue
            if entry.uuid in wanted:
                members[entry.uuid] = entry.uuid
                message = entries.message(entry)
                summary = found.setdefault(entry.uuid, _Summary())
                text = "" if message is None else message.text
                summary.asked = _cut(entries.command(text) or text, MOST_ASKED)
                continue
            turn = members.get(entry.parent or "")
            begins = entries.is_prompt(entry) and not entries.by_claude_itself(entry)
            if turn is None or begins or len(members) >= MOST_ENTRIES:
                continue
            members[entry.uuid] = turn
            if entry.type == "assistant":
                _add(found[turn], entry)
    return list(found.values())


def _add(summary: _Summary, entry: entries.Entry) -> None:
    message = entries.message(entry)
    for block in [] if message is None or message.model == "<synthetic>" else message.blocks:
        if block.get("type") == "tool_use":
            name = str(block.get("name"))[:60]
            summary.tools[name] = summary.tools.get(name, 0) + 1
        elif block.get("type") == "text" and isinstance(block.get("text"), str):
            summary.said = _cut(f"{summary.said}\n{block['text']}".strip(), MOST_SAID, end=True)


def _cut(text: str, most: int, *, end: bool = False) -> str:
    if len(text) <= most:
        return text
    return f"… {text[-most:]}" if end else f"{text[:most]} …"
