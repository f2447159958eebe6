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
from pykoclaw_acp.sessions.ports.journal import TurnsAndNotes
from pykoclaw_acp.sessions.state import SessionState
from pykoclaw_acp.sessions.subscription import Subscription
from pykoclaw_acp.sessions.turns import undisturbed
from pykoclaw_acp.tasks import Tasks

WAIT: Final = 5.0  # s without a sign of Claude

NO_ROOM: Final = "Claude has not started yet: as many workers run as may, and all of them are busy."
STARTING: Final = "Claude is still starting."
NOT_BEGUN: Final = "Claude has the prompt, and has not begun to work on it yet."


class SlowStart:
    """Shows it to a session's clients, once in a turn. The log has nothing of it: it soon says nothing."""

    def __init__(
        self,
        state: SessionState,
        journal: TurnsAndNotes,
        workers: Workers,
        background: BackgroundTurns,
    ) -> None:
        self._state = state
        self._journal = journal
        self._workers = workers
        self._background = background
        self._shown = ""  # the last turn
        self._watching: asyncio.Task[None] | None = None
        self._tasks = Tasks()

    def watch(self, turn: Turn) -> None:
        """Note that the turn waits for nothing but Claude from now on, until `pause`."""
        self.pause()
        if turn.turn_id != self._shown and not turn.helper:  # its client takes all as the answer
            self._watching = self._tasks.start(self._watch(turn), name="watch-slow-start")

    def pause(self) -> None:
        """Note that the turn waits for something else than Claude, such as the user."""
        if self._watching is not None:
            self._watching.cancel()

    async def _watch(self, turn: Turn) -> None:
        """Show it after `WAIT`, which begins anew while the database cannot be written: a sign of
        Claude is not seen before it is stored.
        """
        while not await undisturbed.wait(self._journal, turn, WAIT):
            pass
        if not (turn.taken_up or turn.cancelled.is_set() or turn.ended.done() or self._background):
            self._show(turn)

    def _show(self, turn: Turn) -> None:
        """Show it to those who have seen all else: others see it too late, or amid a replay."""
        self._shown = turn.turn_id
        has_worker = self._workers.is_live(self._state.id) or self._workers.has_room
        text = words(turn.state, self._state.options.mcp_servers, has_worker=has_worker)
        for one in self._state.subscriptions:
            if one.alive and one.answered.is_set() and one.cursor >= self._state.last_seq:
                showing = _show_to(one, f"{turn.turn_id}-start-shown", text)
                self._tasks.start(showing, name="show-slow-start")


async def _show_to(one: Subscription, message_id: str, text: str) -> None:
    with contextlib.suppress(ConnectionError):
        await one.client.show(one.session_id, message_id, f"\n\n{text}\n\n")


def words(state: TurnState, servers: tuple[McpServer, ...], *, has_worker: bool) -> str:
    """What a turn in this state waits for, as far as that is known; `servers` are its client's."""
    if state == TurnState.QUEUED:
        return STARTING if has_worker else NO_ROOM
    given = ", ".join(f"`{neutral(one.name, 'command')}`" for one in servers)
    return f"{NOT_BEGUN} It may be waiting for an MCP server{f': {given}' if given else ''}."
