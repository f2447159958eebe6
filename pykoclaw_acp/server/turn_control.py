"""The handlers of `_pykoclaw.dev/toolcalls/stop`, `_pykoclaw.dev/waits/stop` and
`_pykoclaw.dev/rewind`.
"""

from __future__ import annotations

from typing import Any

from pykoclaw_acp.protocol.control.sessions import NamedSessionParams
from pykoclaw_acp.protocol.control.turns import RewindParams, RewindResult, StopTaskParams, Waited
from pykoclaw_acp.protocol.messages import Empty
from pykoclaw_acp.server.call import Call
from pykoclaw_acp.server.command_client import given_by
from pykoclaw_acp.server.dispatch import Method
from pykoclaw_acp.server.session_finder import SessionFinder
from pykoclaw_acp.sessions.registry import Sessions
from pykoclaw_acp.sessions.rewinding import Rewinding
from pykoclaw_acp.store.database import Database
from pykoclaw_acp.store.journal.branches import SqlBranchStore


class TurnControl:
    """What Claude does in a session, and did."""

    def __init__(self, sessions: Sessions, database: Database, finder: SessionFinder) -> None:
        self._finder = finder
        self._rewinding = Rewinding(SqlBranchStore(database), sessions.workers)

    @property
    def methods(self) -> dict[str, Method[Call, Any]]:
        """The dispatch table of these methods."""
        return {
            "_pykoclaw.dev/toolcalls/stop": Method(
                StopTaskParams, self.stop_task, before_initialize=True
            ),
            "_pykoclaw.dev/waits/stop": Method(
                NamedSessionParams, self.stop_waiting, before_initialize=True, changes=True
            ),
            "_pykoclaw.dev/rewind": Method(
                RewindParams, self.rewind, before_initialize=True, slow=True
            ),
        }

    async def stop_task(self, call: Call, params: StopTaskParams) -> Empty:  # noqa: ARG002
        """Stop a subagent, or a command in the background; the turn goes on."""
        session = await self._finder.find(params.session)
        await session.requests.stop_task(params.tool_call_id)
        return Empty()

    async def stop_waiting(self, call: Call, params: NamedSessionParams) -> Waited:  # noqa: ARG002
        """Cancel the automatic resume after a usage limit."""
        session = await self._finder.find(params.session)
        return Waited(waited=await session.limit_wait.stop())

    async def rewind(self, call: Call, params: RewindParams) -> RewindResult:
        """Put files, and what Claude remembers, back to what was before a prompt."""
        session = await self._finder.find(params.session)
        done = await self._rewinding.rewind(
            session,
            params.message,
            files=params.files,
            dry=params.dry_run,
            request_key=call.key,
            given=given_by(params.environment),
        )
        return RewindResult(
            turn_id=done.turn_id,
            turns=done.turns,
            files=done.files,
            insertions=done.insertions,
            deletions=done.deletions,
            files_error=done.files_error,
            deleted=done.deleted,
        )
