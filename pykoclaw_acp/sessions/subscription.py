"""Subscription of a client to a session's log: replay and live delivery read from one cursor."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from typing import Final

import structlog

from pykoclaw_acp.errors import StoreClosed, StoreUnavailable
from pykoclaw_acp.model import cutting, folding
from pykoclaw_acp.model.cursors import Reader
from pykoclaw_acp.model.events import Event, UserMessage
from pykoclaw_acp.model.log import Logged, TurnsPlace
from pykoclaw_acp.model.seams import Left
from pykoclaw_acp.model.session_environment import ClientEnvironment
from pykoclaw_acp.retries import passes
from pykoclaw_acp.sessions.live_pace import LivePace
from pykoclaw_acp.sessions.log import SessionLog
from pykoclaw_acp.sessions.ports import Client
from pykoclaw_acp.sessions.seams import SeamInserter
from pykoclaw_acp.tasks import Pace, told_elsewhere

PAGE: Final = 500  # events per read
TOGETHER: Final = 8  # permission requests that a client is asked at a time, if it shows several
HELD_BACK: Final = 5.0  # s; as the answer to a notification, or to what was lost, never comes
LEFT_OUT: Final = "*({turns} earlier turn{s} of this conversation left out.)*\n\n"
NOT_SHOWN: Final = (
    "*(A part of this conversation cannot be shown; the log of pykoclaw-acp says why.)*\n\n"
)
READ_AGAIN: Final = 1.0  # s, until the log is read again that could not be read

_NOT_THE_EVENTS: Final = (ConnectionError, StoreUnavailable, StoreClosed)

log: Final = structlog.get_logger()


class Subscription:
    """Delivers a session's events to one client, in order, each once, from `after` on; calls `end`
    when it ends.

    `session_id` is the ACP id under which the client knows the session; everything that it is told
    carries this one. A client is not sent its own message live: `own` are the turns that it
    submitted and whose message is still to come. `number` is the client's line that asked for
    everything, or 0. `hold` (s) lets the client get ready first. `inserter` knows where in a message it
    begins. With a `window` only what follows its place is delivered, and what holds there. Up to
    `replays_upto` long payloads are cut. `reader` is whose cursor moves with what it confirms, if that
    is anybody's. `given`: the client's own environment. `pace` is that of all the client's
    subscriptions.
    """

    def __init__(
        self,
        session_id: str,
        session_log: SessionLog,
        client: Client,
        after: int,
        end: Callable[[Subscription], None],
        *,
        number: int = 0,
        hold: float = 0,
    ) -> None:
        self.session_id = session_id
        self.client = client
        self.own: set[str] = set()
        self.cursor = after
        self.begun_at = session_log.last_seq
        """The log's end then: what comes after it is shown live."""
        self.inserter = SeamInserter()
        self.left: Left | None = None
        """The place that the client had left, if a resume has begun there."""
        self.reader: Reader | None = None
        self.window: TurnsPlace | None = None
        self.replays_upto = 0
        self.given: ClientEnvironment | None = None
        self.pace = LivePace()
        self.opened_at: float | None = None
        """When the client was answered that the session is open (s, monotonic)."""
        self.certain = after
        """Up to where the client has certainly taken what it was sent."""
        self.trouble: Exception | None = None
        """Why the log cannot be read now; it is read again."""
        self.leaves = False
        """Whether the session was closed, and the client has not opened it since."""
        self.owed = 0
        """What the client is sent before the answer to its prompt, besides the turn's updates."""
        self._planned: str | None = None  # the own prompt for which the plan was shown again last
        self._shown: object = None  # the message that was shown last, if that is what it was
        self._log = session_log
        self._end = end
        self._number = number
        self._hold = hold
        self._begun = False
        self.answered = asyncio.Event()
        """Not set while the client waits for the answer to what opened the session, which nothing
        overtakes, or its load is to come again.
        """
        self.answered.set()
        self.asking = asyncio.Semaphore(TOGETHER if client.asks_together else 1)
        self.noticed = asyncio.Event()  # a sign of life of the client in this session
        self._moved = asyncio.Event()
        self._task = asyncio.get_running_loop().create_task(
            self._deliver(), name=f"deliver-{session_id}"
        )
        self._task.add_done_callback(told_elsewhere)  # it has logged what ended it

    def hold_back(self) -> None:
        """Deliver nothing until `answered` is set, or `HELD_BACK` seconds are over."""
        self.answered.clear()
        asyncio.get_running_loop().call_later(HELD_BACK, self.answered.set)

    @property
    def alive(self) -> bool:
        """Whether events are still delivered."""
        return not self._task.done()

    @property
    def last_seq(self) -> int:
        """Position of the newest event in the log."""
        return self._log.last_seq

    async def reached(self, seq: int, *, patient: bool = True) -> None:
        """Wait until the client was sent everything up to `seq`, or the subscription was closed; not
        `patient`, no longer than until the log cannot be read.

        A patient caller waits while the database cannot be read, but not if reading fails for another
        reason. Raises ConnectionError if the client is gone; what keeps the log from being read only to
        one that is not patient.
        """
        while (self.cursor < seq or not self._begun) and self.alive:
            if self.trouble is not None and not (patient and passes(self.trouble)):
                break
            self._moved.clear()
            await self._moved.wait()
        if self.cursor >= seq:
            return
        error: BaseException | None = self.trouble
        if not self.alive and not self._task.cancelled():
            error = self._task.exception()
        if error is not None and (isinstance(error, ConnectionError) or not patient):
            raise error

    async def end_line(self) -> None:
        """Send an empty line after text whose end the client does not see, if that is to be done, once:
        then, or before the client's own next turn.
        """
        if ending := self.inserter.take_ending():
            await self.client.insert(self.session_id, f"line-{self.cursor}", ending)

    def close(self) -> None:
        """End the subscription."""
        self._task.cancel()
        self._end(self)

    async def _deliver(self) -> None:
        try:
            await self.client.start_updates(self.session_id, self.cursor, self._number)
            await self.answered.wait()
            if self._hold:
                await asyncio.sleep(self._hold)
            self._begun = True
            self._moved.set()
            await self._insert(self.inserter.again())
            while True:
                try:
                    if self.window is not None and self.cursor < self.window.after:
                        await self._skip(self.window)
                    await self._show(await self._next_page())
                    self.trouble = None
                except ConnectionError:
                    raise
                except Exception as error:  # noqa: BLE001  it is logged there
                    await self._rest(error)
        except ConnectionError:
            log.info("The client is gone", action="client_gone", session=self.session_id)
            raise
        except Exception:
            log.exception(
                "The log could not be shown", action="delivery_failed", session=self.session_id
            )
            raise
        finally:
            self._end(self)
            # Those who wait look again once this task is done.
            asyncio.get_running_loop().call_soon(self._moved.set)

    async def _rest(self, error: Exception) -> None:
        """Note why the log cannot be read, and pause: the client waits, and its session goes on."""
        if self.trouble is None and not isinstance(error, StoreClosed):
            log.warning(
                "The log cannot be read now",
                action="delivery_waits",
                session=self.session_id,
                exc_info=None if isinstance(error, StoreUnavailable) else error,
                reason=error.reason if isinstance(error, StoreUnavailable) else repr(error),
            )
        lasts = isinstance(error, StoreUnavailable) and not error.retryable
        if lasts and (self.trouble is None or passes(self.trouble)):
            await self.client.insert(self.session_id, f"not-shown-{self.cursor + 1}", NOT_SHOWN)
        self.trouble = error
        self._moved.set()
        await asyncio.sleep(READ_AGAIN)

    async def _show(self, page: Sequence[Logged]) -> None:
        pace = Pace()  # now: what others did during the wait is no work of this page
        for logged in page:
            if self._is_own(logged):
                self.inserter.follow(logged)
                await self.end_line()
                await self.client.skip_own(self.session_id, logged.seq)
                await self._show_plan(logged.event)
            else:
                await self._show_one(logged, await self._log.whole(logged))
                await self.inserter.read(pace)
            self.cursor = logged.seq
            self._shown = folding.message(logged.event)
            await pace.step()
        self._moved.set()

    async def _show_one(self, logged: Logged, whole: Logged) -> None:
        """Deliver the event; what cannot be shown holds up nothing that comes after it."""
        try:
            before, continued = self.inserter.follow(whole)
            if logged.seq <= self.replays_upto:
                continued = cutting.cut(self.session_id, continued)
            await self._insert(before)
            await self.client.deliver(self.session_id, continued)
        except _NOT_THE_EVENTS:
            raise
        except Exception:
            log.exception(
                "An event could not be shown",
                action="delivery_failed",
                session=self.session_id,
                seq=logged.seq,
            )
            await self.client.insert(self.session_id, f"not-shown-{logged.seq}", NOT_SHOWN)
            await self.client.skip_own(self.session_id, logged.seq)

    async def _show_plan(self, own: Event | None) -> None:
        """Show the plan again, once, to a client that has dropped it with this prompt of its own, if
        something of it is to be done.
        """
        prompt = own.message_id if isinstance(own, UserMessage) else None
        if not self.client.drops_plan or prompt == self._planned:
            return
        self._planned = prompt
        with contextlib.suppress(StoreUnavailable, StoreClosed):  # what is delivered is in memory
            entries = await self._log.plan()
            if any(one.status != "completed" for one in entries):
                await self.client.show_plan(self.session_id, entries)

    async def _next_page(self) -> Sequence[Logged]:
        caught_up = self.cursor >= self._log.last_seq
        if self.cursor < self.replays_upto:
            return await self._log.replay_after(self.cursor, PAGE)
        page = await self._log.read_after(self.cursor, PAGE)
        goes_on = folding.message(page[0].event) if caught_up and len(page) == 1 else None
        if goes_on is not None and goes_on == self._shown and await self.pace.turn():
            page = await self._log.read_after(self.cursor, PAGE)
        return page

    async def _skip(self, window: TurnsPlace) -> None:
        """Go on at the window's place: with what holds there, and a mark of what is left out."""
        for logged in await self._log.in_effect(window.after):
            await self.client.deliver(self.session_id, cutting.cut(self.session_id, logged))
        text = LEFT_OUT.format(turns=window.left_out, s="" if window.left_out == 1 else "s")
        await self.client.insert(self.session_id, f"left-out-{window.after}", text)
        await self.client.skip_own(self.session_id, window.after)
        self.cursor = window.after
        self._moved.set()

    async def _insert(self, text: str) -> None:
        if text:
            await self.client.insert(self.session_id, self.inserter.message_id, text)

    def _is_own(self, logged: Logged) -> bool:
        event = logged.event
        return isinstance(event, UserMessage) and event.message_id in self.own
