"""In-process log of a session: publishes committed events to subscriptions."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from pykoclaw_acp.errors import StoreUnavailable
from pykoclaw_acp.model import folding
from pykoclaw_acp.model.events import (
    Event,
    OpenTools,
    Plan,
    PlanEntry,
    ToolProgressed,
    ToolStarted,
    size,
)
from pykoclaw_acp.model.log import Logged, TurnsPlace
from pykoclaw_acp.model.seams import CutMessage
from pykoclaw_acp.model.session_options import SessionOptions
from pykoclaw_acp.model.turns import SessionRecord
from pykoclaw_acp.sessions import contents
from pykoclaw_acp.sessions.ports.journal import LogAndBlobs
from pykoclaw_acp.sessions.tail import Tail
from pykoclaw_acp.tasks import Tasks

END_LOST: Final = "How this call ended cannot be read any more. It does not run now."


class SessionLog:
    """The newest events in memory, the rest in the database. `apply` is called with each event that
    was committed.
    """

    def __init__(
        self, record: SessionRecord, store: LogAndBlobs, apply: Callable[[Event | None], None]
    ) -> None:
        self.open_tools = OpenTools()
        self._record = record
        self._store = store
        self._apply = apply
        self._tail = Tail()
        self._news = asyncio.Event()
        self._closed = False
        self._tasks = Tasks()
        self._plan: tuple[PlanEntry, ...] | None = None  # None: not looked for yet

    @property
    def last_seq(self) -> int:
        """Position of the newest event."""
        return self._record.last_seq

    async def read_after(self, cursor: int, limit: int) -> list[Logged]:
        """Next events after the cursor, parts of a message merged; waits for them."""
        while cursor >= self._record.last_seq:
            await self._news.wait()
        if recent := self._tail.after(cursor):
            return recent if len(recent) == 1 else folding.merged(recent)
        end = self._record.last_seq
        read = await self._store.read(self._record.session_id, cursor, limit)
        merged = folding.merged(read)
        while merged and merged[-1].seq < end and folding.may_go_on(merged[-1]):
            if len(merged) > 1:  # its rest is on the next page: it comes there, whole
                return merged[:-1]
            more = await self._store.read(self._record.session_id, merged[-1].seq, limit)
            grown = folding.merged([*merged, *more])
            if not more or len(grown) > 1:
                return grown[:1]
            merged = grown
        return merged or [Logged(end, None, None)]

    async def replay_after(self, cursor: int, limit: int) -> Sequence[Logged]:
        """Read events after a cursor, with the list of tasks as each turn has left it."""
        page = folding.replayed(await self.read_after(cursor, limit))
        at = folding.open_plan(page)
        if at is None or not await self._store.plan_goes_on(self._record.session_id, page[at].seq):
            return page
        if at == len(page) - 1:  # the next page begins with it, and with what covers its place
            return page[:at] or page
        after = page[at + 1]
        covering = replace(after, count=after.count + page[at].count)
        return [*page[:at], covering, *page[at + 2 :]]

    async def last_turns(self, turns: int) -> TurnsPlace:
        """Where the newest turns begin."""
        return await self._store.last_turns(self._record.session_id, turns)

    async def in_effect(self, upto: int) -> list[Logged]:
        """Events that still hold at this place: running tool calls, the plan, the title."""
        return await self._store.in_effect(self._record.session_id, upto)

    async def plan(self) -> tuple[PlanEntry, ...]:
        """Claude's newest list of tasks."""
        if self._plan is None:
            found = await self._store.last_plan(self._record.session_id)
            self._plan = found if self._plan is None else self._plan
        return self._plan

    async def is_before_window(self, seq: int, window: TurnsPlace) -> bool:
        """Whether a client that asks again for the window, and has got up to `seq`, has nothing of it
        but what still held there. Else a window that has moved on since would leave a gap.
        """
        if seq >= window.after or seq <= self._record.pruned_upto:
            return seq < window.after
        return any(one.seq == seq for one in await self.in_effect(window.after))

    async def close_lost(self) -> None:
        """Let the newest tool calls fail that have no end in the log, as when its row is damaged; once.

        Nothing may run in the session. Calls of other programs are left to the import. While nothing
        can be stored, they stay open.
        """
        if self._closed:
            return
        self._closed = True
        lost, known = OpenTools(), set(self.open_tools)
        for one in await self.in_effect(self._record.last_seq):
            if isinstance(one.event, ToolStarted | ToolProgressed) and not (
                one.imported or one.event.tool_call_id in known
            ):
                lost.follow(one.event)
        try:
            if ends := lost.failed(END_LOST):
                await self.tell(ends)
        except StoreUnavailable:
            self._closed = False

    async def said_before(self, seq: int) -> CutMessage | None:
        """The message of Claude's that the newest event up to `seq` is a part of, if it is one."""
        return await self._store.said_before(self._record.session_id, seq)

    async def whole(self, one: Logged) -> Logged:
        """The event with its blob in place."""
        return await contents.logged(self._store, one)

    async def tell(
        self,
        events: Sequence[Event],
        *,
        options: SessionOptions | None = None,
        patient: bool = False,
    ) -> None:
        """Commit and publish events of no turn, also if the caller is cancelled, and with them what
        the session's options become; `patient`: wait while the database cannot be written.
        """
        await self._tasks.finish(self._tell(events, options, patient=patient))

    async def _tell(
        self, events: Sequence[Event], options: SessionOptions | None, *, patient: bool
    ) -> None:
        seqs = await self._store.append(
            self._record.session_id, events, options=options, patient=patient
        )
        if options is not None:
            self._record.options = options
        self.committed(seqs, None, events)

    def committed(self, seqs: Sequence[int], turn_id: str | None, events: Sequence[Event]) -> None:
        """Publish committed events."""
        self.publish(
            [
                Logged(seq, turn_id, event, size(event))
                for seq, event in zip(seqs, events, strict=True)
            ]
        )

    def publish(self, logged: Sequence[Logged]) -> None:
        """Pass committed events to readers."""
        if not logged:
            return
        for one in logged:
            if not (one.imported and isinstance(one.event, ToolStarted)):
                self.open_tools.follow(one.event)
            if isinstance(one.event, Plan):
                self._plan = one.event.entries
            self._apply(one.event)
        self._tail.extend(logged)
        self._record.last_seq = max(self._record.last_seq, logged[-1].seq)
        self._news.set()
        self._news = asyncio.Event()

    def forget(self) -> None:
        """Free the tail: later readers use the database."""
        self._tail.clear()

    def pruned(self) -> None:
        """Note that all events were deleted from the database."""
        self._record.pruned_upto = self._record.last_seq
        self._tail.clear()
