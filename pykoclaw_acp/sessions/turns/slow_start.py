"""What clients are shown while a prompt waits for Claude for long, so that nobody takes it for lost."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Final

from pykoclaw_acp.channel.options import McpServer
from pykoclaw_acp.model.turns import Turn, TurnState
from pykoclaw_acp.neutral import neutral
from pykoclaw_acp.sessions.background import BackgroundTurns
from pykoclaw_acp.sessions.ports import Workers
from pykoclaw_acp.sessions.state import SessionState
from pykoclaw_acp.tasks import Tasks

WAIT: Final = 3.0  # s without a sign of Claude

NO_ROOM: Final = "Claude has not started yet: as many workers run as may, and all of them are busy."
STARTING: Final = "Claude is still starting."
NOT_BEGUN: Final = "Claude has the prompt, and has not begun to work on it yet."


class SlowStart:
    """Shows it to a session's clients, once in a turn. The log has nothing of it: it soon says nothing."""

    def __init__(self, state: SessionState, workers: Workers, background: BackgroundTurns) -> None:
        self._state = state
        self._workers = workers
        self._background = background
        self._watched = ""  # the last turn
        self._tasks = Tasks()

    def watch(self, turn: Turn) -> None:
        """Note that the turn waits for nothing but Claude from now on."""
        if turn.turn_id != self._watched and not turn.helper:  # its client takes all as the answer
            self._watched = turn.turn_id
            asyncio.get_running_loop().call_later(WAIT, self._look, turn)

    def _look(self, turn: Turn) -> None:
        if not (turn.taken_up or turn.cancelled.is_set() or turn.ended.done() or self._background):
            self._tasks.start(self._show(turn))

    async def _show(self, turn: Turn) -> None:
        has_worker = self._workers.is_live(self._state.id) or self._workers.has_room
        text = words(turn.state, self._state.options.mcp_servers, has_worker=has_worker)
        for one in list(self._state.subscriptions):
            if one.alive and one.answered.is_set():
                with contextlib.suppress(ConnectionError):
                    message_id = f"{turn.turn_id}-start-shown"
                    await one.client.show(one.session_id, message_id, f"\n\n{text}\n\n")


def words(state: TurnState, servers: tuple[McpServer, ...], *, has_worker: bool) -> str:
    """What a turn in this state waits for, as far as that is known; `servers` are its client's."""
    if state == TurnState.QUEUED:
        return STARTING if has_worker else NO_ROOM
    given = ", ".join(f"`{neutral(one.name, 'command')}`" for one in servers)
    return f"{NOT_BEGUN} It may be waiting for an MCP server{f': {given}' if given else ''}."
