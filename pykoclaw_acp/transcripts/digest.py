"""Turns of transcripts summed up for Claude, which does not know them."""

from __future__ import annotations

import os
from typing import Final

from pykoclaw_acp.model import digest as summing
from pykoclaw_acp.model.digest import TurnSummary
from pykoclaw_acp.system.regular_files import opened
from pykoclaw_acp.transcripts import entries, lines, shell_commands

MOST_TURNS: Final = 100  # of a transcript: the newest ones
MOST_ENTRIES: Final = 100_000  # of these turns


def digest(transcripts: list[tuple[str, list[str]]]) -> str:
    """The turns with these uuids, by file, as text of at most 20,000 characters."""
    summaries: list[TurnSummary] = []
    left_out = 0
    for path, turns in transcripts:
        try:
            found = _read(path, turns)
        except FileNotFoundError:  # Claude removes old ones
            continue
        left_out += max(0, len(found) - MOST_TURNS)
        summaries += found[-MOST_TURNS:]
    return summing.text(summaries, left_out)


def _read(path: str, turns: list[str]) -> list[TurnSummary]:
    found: dict[str, TurnSummary] = {}
    members: dict[str, str] = {}  # turn by entry
    wanted = frozenset(turns)
    with opened(path) as descriptor:
        for line in lines.read(descriptor, 0, os.fstat(descriptor).st_size):
            entry = entries.decode(line.text)
            if entry is None or entry.uuid is None or entry.is_sidechain:
                continue
            if entry.uuid in wanted:
                members[entry.uuid] = entry.uuid
                asked = entries.users_words(entries.message(entry) or entries.Message())
                found.setdefault(entry.uuid, TurnSummary("\n".join(asked)))
                continue
            turn = members.get(entry.parent or "")
            begins = entries.is_prompt(entry) and not entries.by_claude_itself(entry)
            if turn is None or begins or len(members) >= MOST_ENTRIES:
                continue
            members[entry.uuid] = turn
            if entry.type == "assistant":
                _add(found[turn], entry)
            elif entry.type == "user" and (message := entries.message(entry)) is not None:
                put_out = shell_commands.result(turn, message.text)
                found[turn].ask("" if put_out is None else str(put_out.content))
            elif (came := entries.queued(entry)) is not None and came[0] == "prompt":
                found[turn].ask("\n".join(entries.users_words(came[1])))
    return list(found.values())


def _add(summary: TurnSummary, entry: entries.Entry) -> None:
    message = entries.message(entry)
    for block in [] if message is None or message.model == "<synthetic>" else message.blocks:
        if block.get("type") == "tool_use":
            summary.use(str(block.get("name")))
        elif block.get("type") == "text" and isinstance(block.get("text"), str):
            summary.say(f"\n{block['text']}")
