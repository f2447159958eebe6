"""`_pykoclaw.dev/toolcalls/stop` and `_pykoclaw.dev/rewind`."""

from __future__ import annotations

from typing import Annotated

import msgspec

from pykoclaw_acp.protocol.control.answers import FullAnswer
from pykoclaw_acp.protocol.control.sessions import NamedSessionParams
from pykoclaw_acp.protocol.limits import Name

Named = Annotated[Name, msgspec.Meta(min_length=1)]


class StopTaskParams(NamedSessionParams, frozen=True, kw_only=True):
    """`toolCallId`: the tool call that began the subagent or the command in the background."""

    tool_call_id: Named


class Waited(FullAnswer, frozen=True, kw_only=True):
    """Whether the session would have gone on by itself when a usage limit ends."""

    waited: bool


class RewindParams(NamedSessionParams, frozen=True, kw_only=True):
    """`message`: a message of the turn to rewind; without it the newest prompt that Claude
    knows. `files`: put files back, too; `dryRun`: only say what would change. `environment`: variables
    of the caller, for a worker that is started for the files; they are not kept.
    """

    message: Named | None = None
    files: bool = True
    dry_run: bool = False
    environment: dict[Name, str] | None = None


class RewindResult(FullAnswer, frozen=True, kw_only=True):
    """What changes: the `turns` that Claude forgets, from the prompt `turnId` on, and `files`.
    `filesError`: why files cannot be put back. `deleted`: which of the files were deleted, as they
    did not exist then; null if nothing was done, or an earlier daemon has done it.
    """

    turn_id: str
    turns: int
    files: list[str]
    insertions: int | None
    deletions: int | None
    files_error: str | None
    deleted: list[str] | None = None
