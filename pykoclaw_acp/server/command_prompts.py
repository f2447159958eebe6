"""`_pykoclaw.dev/prompt`: a prompt of a command, whose turn runs whether the command lives or not."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import msgspec

from pykoclaw_acp.errors import InvalidParams, StoreUnavailable
from pykoclaw_acp.model import prompt_text
from pykoclaw_acp.model.events import ToolEnded, ToolProgressed, ToolStarted, UserMessage
from pykoclaw_acp.model.log import Logged
from pykoclaw_acp.model.turns import Outcome, PromptKeys, Turn, TurnState
from pykoclaw_acp.model.work import Work
from pykoclaw_acp.protocol.control.following import (
    QUESTION,
    TAKEN,
    WAITS,
    QuestionNotification,
    TakenNotification,
    WaitsNotification,
)
from pykoclaw_acp.protocol.control.prompts import CommandPromptParams, Prompted
from pykoclaw_acp.protocol.jsonrpc import encode_notification
from pykoclaw_acp.server.call import Call
from pykoclaw_acp.server.command_client import CommandClient, given_by, whole
from pykoclaw_acp.server.dispatch import Later, Method
from pykoclaw_acp.server.kept_turns import read
from pykoclaw_acp.server.lifecycle import absolute
from pykoclaw_acp.server.peer import Peer
from pykoclaw_acp.server.prompts import next_daemon
from pykoclaw_acp.sessions import folders, work
from pykoclaw_acp.sessions.registry import Sessions
from pykoclaw_acp.sessions.session import Session
from pykoclaw_acp.sessions.turns import outcomes
from pykoclaw_acp.store import turns
from pykoclaw_acp.store import work as work_rows
from pykoclaw_acp.store.database import Database
from pykoclaw_acp.tasks import in_pieces

CLIENT: Final = "cli"
LOOK: Final = 1.0  # s between two looks for requests that nobody is there to answer

Find = Callable[[], Awaitable[Work]]
FindSession = Callable[[str], Awaitable[Session]]


class CommandPrompts:
    """Prompts that commands send. `find` finds a session by id or name."""

    def __init__(
        self, sessions: Sessions, database: Database, data: Path, find: FindSession
    ) -> None:
        self._sessions = sessions
        self._database = database
        self._data = data
        self._find = find

    @property
    def methods(self) -> dict[str, Method[Call, Any]]:
        """The dispatch table of this method."""
        return {
            "_pykoclaw.dev/prompt": Method(CommandPromptParams, self.prompt, before_initialize=True)
        }

    async def prompt(self, call: Call, params: CommandPromptParams) -> Prompted | Later:
        """Accept the prompt; show the turn's events, and answer when it has ended."""
        if not params.text.strip():
            raise InvalidParams("`text`: must not be empty.")
        if bool(params.session) == bool(params.new):
            raise InvalidParams("Give `session` or `new`.")
        session = await (self._new(params) if params.new else self._find(params.session))
        await folders.ensure(session, self._data)
        turn = await self._turn(session, params)
        if self._sessions.awaits_recovery and await self._sessions.in_journal(session, turn.keys):
            return Later(next_daemon())
        known = await session.accept_unattended(turn)
        joined = known is not turn
        if params.detach and not known.ended.done():
            return _prompted(session, known, joined=joined)
        return Later(self._show(call, params, session, known, joined=joined))

    async def _show(
        self,
        call: Call,
        params: CommandPromptParams,
        session: Session,
        known: Turn,
        *,
        joined: bool,
    ) -> Prompted:
        if params.new:  # the caller may go before anything else comes
            taken = encode_notification(TAKEN, TakenNotification(session=session.id))
            await call.client.peer.notify(taken)
        find = partial(read, partial(work_rows.of_turn, self._database, known.turn_id))
        client = _TurnClient(
            call.client.peer, known, find if params.whole else None, present=params.present
        )
        if params.whole:
            client.calls |= (await find()).calls
        after = params.after
        if after is None:
            after = await read(partial(turns.place, self._database, known.turn_id))
        end = session.last_seq
        subscription = session.subscribe(client, end if after is None else min(after, end))
        watching = asyncio.get_running_loop().create_task(
            self._tell_questions(call, session), name="questions for nobody"
        )
        if params.present:  # it is asked itself
            watching.cancel()
        led_to, goes_on = Work((known.turn_id,)), False
        try:
            outcome, seq = await asyncio.shield(known.ended)
            await subscription.reached(seq)
            if subscription.cursor >= seq:
                # what was sent is what the caller has: nobody else is told of it
                session.mark_answered(known)
            if params.whole and outcome.state == TurnState.DONE:
                led_to, goes_on = await self._work(call, session, find)
                outcome = led_to.failed or outcome
                seq = session.last_seq
                await subscription.reached(seq)
        finally:
            subscription.close()
            watching.cancel()
        text = await read(partial(work_rows.words, self._database, *led_to.turns))
        blocked = await read(partial(work_rows.blocked, self._database, known.turn_id))
        if await self._sessions.find(session.id) is None:  # what was read of it is not the whole
            outcome, text, goes_on = outcomes.CANCELLED, "", False
        ended = _prompted(session, known, outcome, seq, text, joined=joined)
        return msgspec.structs.replace(ended, goes_on=goes_on, blocked=blocked)

    async def _work(self, call: Call, session: Session, find: Find) -> tuple[Work, bool]:
        """What the turn has led to, when it has ended; the command is told that it is waited for."""
        until_now = await find()
        if work.is_waited_for(session, until_now):
            waits = encode_notification(WAITS, WaitsNotification(session=session.id))
            await call.client.peer.notify(waits)
        return await work.over(session, until_now, find)

    async def _new(self, params: CommandPromptParams) -> Session:
        """A new session; the one that was made for the prompt before, if it comes again."""
        cwd, key = absolute("new", params.new), params.idempotency_key
        begun = await self._sessions.beginnings.begin(given_by(params.environment))
        made = None if key is None else f"prompt/{key}"
        return await self._sessions.create(cwd, (), (), made, CLIENT, begun=begun)

    async def _turn(self, session: Session, params: CommandPromptParams) -> Turn:
        content: list[dict[str, Any]] = [{"type": "text", "text": params.text}]
        fingerprint = await in_pieces(prompt_text.fingerprint(content))
        return Turn(
            str(uuid4()),
            session.id,
            content,
            PromptKeys(idempotency=params.idempotency_key or str(uuid4()), fingerprint=fingerprint),
            client=CLIENT,
            sent=self._sessions.clock.now(),
            unattended=True,
            detached=params.detach,
            given=given_by(params.environment),
        )

    async def _tell_questions(self, call: Call, session: Session) -> None:
        """Tell the command of each request that waits for somebody else."""
        told: set[str] = set()
        while True:
            await asyncio.sleep(LOOK)
            if set(session.permissions.pending_ids) - told:
                with suppress(StoreUnavailable):  # the next look may succeed
                    await self._tell_pending(call, session, told)

    async def _tell_pending(self, call: Call, session: Session, told: set[str]) -> None:
        for one in await self._sessions.requests.list_pending():
            if one.session_id != session.id or one.request.ask_id in told:
                continue
            told.add(one.request.ask_id)
            shown = QuestionNotification(
                id=one.request.ask_id,
                session=session.id,
                title=one.request.title,
                always=one.request.always is not None,
                **whole(one.request),
            )
            await call.client.peer.notify(encode_notification(QUESTION, shown))


class _TurnClient(CommandClient):
    """Shows one turn, without the prompt itself; with `find`, which reads what it has led to, also
    what follows from it. `calls`: tool calls that do.
    """

    def __init__(self, peer: Peer, turn: Turn, find: Find | None, *, present: bool) -> None:
        super().__init__(peer, present=present)
        self.calls: set[str] = set()
        self._turn = turn
        self._find = find
        self._known = {turn.turn_id: True}

    async def deliver(self, session_id: str, logged: Logged) -> None:
        """Send the event if it is one of the turn, or follows from it."""
        if isinstance(logged.event, UserMessage) or not await self._belongs(logged):
            return
        if isinstance(logged.event, ToolStarted):
            self.calls.add(logged.event.tool_call_id)
        await super().deliver(session_id, logged)

    async def _belongs(self, logged: Logged) -> bool:
        turn_id, event = logged.turn_id, logged.event
        if self._find is None or turn_id == self._turn.turn_id:
            return turn_id == self._turn.turn_id
        if turn_id is None:
            if isinstance(event, ToolStarted):
                return not self.calls.isdisjoint((event.parent_id, event.continues))
            if isinstance(event, ToolProgressed | ToolEnded):
                return event.tool_call_id in self.calls
            return False
        if turn_id not in self._known:
            self._known[turn_id] = turn_id in (await self._find()).turns
        return self._known[turn_id]


def _prompted(
    session: Session,
    turn: Turn,
    outcome: Outcome | None = None,
    seq: int | None = None,
    text: str = "",
    *,
    joined: bool,
) -> Prompted:
    failure = None if outcome is None else outcome.failure
    return Prompted(
        session=session.id,
        turn_id=turn.turn_id,
        state=turn.state if outcome is None else outcome.state,
        stop_reason=None if outcome is None else outcome.stop_reason,
        error=None if failure is None else {"kind": failure.kind, "message": failure.message},
        text=text,
        seq=session.last_seq if seq is None else seq,
        joined=joined,
    )
