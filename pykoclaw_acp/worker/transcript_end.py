"""The end of Claude's transcript, as this worker's CLI knows it.

A CLI that ends notes its own last entry, and the next one that resumes goes on from there
(docs/architecture.md): what another program has said meanwhile would be on a branch that it has not.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from typing import Final, TypeVar

import msgspec
from claude_agent_sdk import ConversationResetMessage, Message

from pykoclaw_acp.system import disks, regular_files, transcript_files
from pykoclaw_acp.worker import results

T = TypeVar("T")

LOOKED_AT: Final = 1024 * 1024  # bytes at the end of the transcript


class _Written(msgspec.Struct, rename="camel"):
    type: str = ""
    is_sidechain: bool | None = None


class TranscriptEnd:
    """Follows what the CLI writes."""

    def __init__(self) -> None:
        self.uuid: str | None = None  # of the CLI's newest entry; None: it has written none
        self._begun = 0  # size of the transcript when the CLI began, in bytes

    async def connected(self, claude_session_id: str) -> None:
        """The CLI has begun."""
        self._begun = await _call(partial(_size, claude_session_id), 0)

    def follow(self, message: Message) -> None:
        """The CLI's next message."""
        self.uuid = results.entry(message) or self.uuid
        if isinstance(message, ConversationResetMessage):
            self.uuid, self._begun = None, 0

    async def is_passed(self, claude_session_id: str) -> bool:
        """Whether another program has written an answer behind the CLI's newest entry. Blocks for a
        look at the end of the file only; False if it cannot be read.
        """
        look = partial(_has_answer_behind, claude_session_id, self._begun, self.uuid)
        return await _call(look, False)


async def _call(look: Callable[[], T], otherwise: T) -> T:
    try:
        return await disks.quick_call(transcript_files.folder(), look)
    except OSError:  # also TimeoutError: the disk does not answer
        return otherwise


def _size(claude_session_id: str) -> int:
    path = transcript_files.find(transcript_files.folder(), claude_session_id)
    seen = None if path is None else transcript_files.look(path)
    return 0 if seen is None else seen.size


def _has_answer_behind(claude_session_id: str, begun: int, uuid: str | None) -> bool:
    path = transcript_files.find(transcript_files.folder(), claude_session_id)
    if path is None:
        return False
    with regular_files.opened(path) as descriptor:
        size = os.fstat(descriptor).st_size
        first = max(begun, size - LOOKED_AT)
        text = os.pread(descriptor, max(size - first, 0), first)
    if uuid is not None:
        text = text.rpartition(f'"uuid":"{uuid}"'.encode())[2]
    return any(map(_is_answer, text.splitlines()))


def _is_answer(line: bytes) -> bool:
    try:
        found = msgspec.json.decode(line, type=_Written)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return False  # a part of a line, or none of Claude's
    return found.type == "assistant" and not found.is_sidechain
