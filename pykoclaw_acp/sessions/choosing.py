"""Permission mode, model and further config options of a session: choices, storage, delivery to
Claude.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import Sequence
from typing import Any, Final
from uuid import uuid4

import structlog
from msgspec.structs import replace

from pykoclaw_acp import crash_points
from pykoclaw_acp.channel.choosing import SetConfig, SetMode, SetModel
from pykoclaw_acp.channel.frames import Ready
from pykoclaw_acp.channel.options import WorkerOptions
from pykoclaw_acp.errors import InvalidParams, StoreUnavailable
from pykoclaw_acp.model import choices as offers
from pykoclaw_acp.model import former_mode
from pykoclaw_acp.model.choices import Chosen, Command, Config, Configuration, Offer, Selection
from pykoclaw_acp.model.events import ConfigChanged, Event, ModeChanged, note_event
from pykoclaw_acp.model.session_options import SessionOptions
from pykoclaw_acp.retries import until_done
from pykoclaw_acp.sessions import worker_options
from pykoclaw_acp.sessions.early_start import EarlyStart
from pykoclaw_acp.sessions.next_worker import NextWorker
from pykoclaw_acp.sessions.ports import OfferStore, Workers
from pykoclaw_acp.sessions.state import SessionState
from pykoclaw_acp.sessions.wanted_choices import WantedChoice, with_wanted
from pykoclaw_acp.tasks import Tasks

STAYS: Final = (
    "**Claude did not leave a permission mode that is forbidden in this session, so its worker was ended. What was said"
    " is kept; the next prompt goes on, without that mode.**"
)

OFFER_WAIT: Final = (
    30.0  # s, for what a starting worker reports; Claude takes two or three, on a busy machine more
)

LEAVING: Final = 30.0  # s in which a worker says that it does not leave a mode; a CLI has 5

log: Final = structlog.get_logger()


class Choosing:
    """What is chosen in one session. A choice is logged, then sent to the live worker, also during a
    turn: the mode holds at once, the model from the next request to it on, effort and fast mode from
    the next turn on. The next worker starts with it.
    """

    def __init__(
        self,
        state: SessionState,
        store: OfferStore,
        workers: Workers,
        next_worker: NextWorker,
        early: EarlyStart,
    ) -> None:
        self._state = state
        self._store = store
        self._workers = workers
        self._next_worker = next_worker
        self._early = early
        self._reported = asyncio.Event()  # what Claude offers
        # Of the worker of this epoch, and what it was launched under.
        self._own: tuple[int, Configuration, Offer] | None = None
        self._service: str | None = None  # of the newest worker; None: of another daemon's
        # Prompts of the session's MCP servers, and the servers that they are of.
        self._of_servers: tuple[object, tuple[Command, ...]] = (None, ())
        self._choice = asyncio.Lock()
        self._telling = asyncio.Lock()
        self._tasks = Tasks()
        self._told = state.options  # what the newest worker runs with, as far as is known
        self._old_epoch: int | None = None  # of a worker whose version does not take SetConfig
        self._forbidden = 0  # forbidden modes that the worker has reported, one soon after another
        self._taken_back = -math.inf  # when the worker was told to leave one (s, the loop's clock)

    async def selection(self) -> Selection:
        """What is chosen with the choices, as far as known without Claude."""
        return self._selection(await self.offer())

    async def offer(self) -> Offer | None:
        """What Claude offers to the session, as far as known without it: what its own worker has
        said while that lives, before what others have said.
        """
        configuration = self._configuration()
        if self._own is not None and self._workers.is_live(self._state.id):
            epoch, under, own = self._own
            if (epoch, under) == (self._state.epoch, configuration):
                return own
        return await self._store.offer(self._state.options.cwd, configuration)

    def _configuration(self) -> Configuration:
        return worker_options.configuration(self._state.record, self._state.options)

    async def _first_offer(self) -> Offer | None:
        """What a worker that is starting says that Claude offers; None if none is, or does not say."""
        if self._early.runs or self._workers.is_live(self._state.id):
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(OFFER_WAIT):
                    await self._reported.wait()
        return await self.offer()

    def _selection(self, offer: Offer | None) -> Selection:
        options = self._state.options
        return offers.selection(_chosen(options), offer, bypass=options.bypass)

    async def commands(self) -> tuple[Command, ...]:
        """Slash commands, as far as known without Claude."""
        offer = await self.offer()
        return () if offer is None else offer.commands + self._server_commands()

    def _server_commands(self) -> tuple[Command, ...]:
        servers, commands = self._of_servers
        return commands if servers == self._state.options.mcp_servers else ()

    async def choose(
        self,
        parameter: str,
        *,
        mode: str | None = None,
        model: str | None = None,
        option: tuple[str, str] | None = None,
    ) -> Selection:
        """Make one change. Raises InvalidParams for a value that is not offered."""
        return await self.choose_all([WantedChoice(parameter, mode, model, option)])

    async def choose_all(
        self, changes: Sequence[WantedChoice], options: SessionOptions | None = None
    ) -> Selection:
        """Make all these changes, and these options the session's, or none of it. What another model
        does not have is reset with it. If Claude starts, which says for the first time what it
        offers, a value that is not known waits for that. Raises InvalidParams, which names the
        parameter, for a value that is not offered.
        """
        begun = asyncio.Event()
        return await self._tasks.finish(self._choose_all(changes, options, begun), begun)

    async def _choose_all(
        self, changes: Sequence[WantedChoice], options: SessionOptions | None, begun: asyncio.Event
    ) -> Selection:

        def change(offer: Offer | None) -> Chosen:
            bypass, chosen = self._state.options.bypass, _chosen(self._state.options)
            for one in changes:
                now = offers.selection(chosen, offer, bypass=bypass)
                chosen = offers.fitting(with_wanted(chosen, one, now, offer), offer)
                offer = offers.about(chosen.model, offer)
            return chosen

        async with self._choice:
            offer = await self.offer()
            try:
                chosen = change(offer)
            except InvalidParams:
                if offer is not None or (offer := await self._first_offer()) is None:
                    raise
                chosen = change(offer)
            now = self._selection(offer)
            begun.set()  # the worker is told what is written down, also if the caller is gone
            if chosen == _chosen(self._state.options):
                if options is not None:
                    await self._state.log.tell([], options=options)
                return now
            then = offers.selection(chosen, offer, bypass=self._state.options.bypass)
            changed: list[Event] = [ConfigChanged(then)]
            if then.mode != now.mode:
                changed.insert(0, ModeChanged(then.mode))
            await self._state.log.tell(changed, options=options)
            crash_points.reached("choice_committed")
            log.info(
                "Chosen",
                action="chosen",
                session=self._state.id,
                mode=chosen.mode,
                model=chosen.model,
                effort=chosen.config.effort,
                fast=chosen.config.fast,
            )
            await self.tell_worker()
            return then

    def note_launched(self, epoch: int, options: WorkerOptions) -> None:
        """Note that a worker is ready, and with what it was launched: it may live on for the next
        prompt when the one that it was launched for is over already.
        """
        self._state.epoch, self._told, self._service = epoch, options, options.service
        self._forbidden, self._taken_back = 0, -math.inf

    def note_reported(self, change: ModeChanged | ConfigChanged) -> None:
        """Note what the worker says that it runs with now."""
        self._told = worker_options.followed(self._told, change)
        if isinstance(change, ModeChanged):
            allowed = worker_options.allowed(change.mode, self._state.record.options)
            since = asyncio.get_running_loop().time() - self._taken_back
            if change.mode == allowed or since > LEAVING:  # it leaves one without a word
                self._forbidden = 0
            self._forbidden += change.mode != allowed

    async def take_back(self) -> None:
        """Tell the worker, which has reported a mode that is forbidden, what holds, and say so; end it
        if it reports one again soon.
        """
        said: list[Event] = []
        if self._forbidden == 2:  # not more: those were under way
            self._forbidden += 1
            log.warning("A worker stays in a forbidden mode", action="mode_forbidden")
            self._workers.kill(self._state.id)
            said.append(note_event(str(uuid4()), STAYS))
        else:
            self._taken_back = asyncio.get_running_loop().time()
            await self.tell_worker()
        unread = "What Claude offers could not be read"
        offer = await until_done(self.offer, unread, after=StoreUnavailable)
        async with self._choice:
            holds = self._selection(offer)
            events = [*said, ModeChanged(holds.mode), ConfigChanged(holds)]
            await self._state.log.tell(events, patient=True)

    async def tell_worker(self) -> None:
        """Tell the worker what was chosen since it was launched or told; the next one starts with
        it.
        """
        async with self._telling:
            with contextlib.suppress(ConnectionError):
                await self._tell_worker(self._state.options, self._state.epoch)

    async def _tell_worker(self, options: WorkerOptions, epoch: int) -> None:
        was, now, former = _chosen(self._told), _chosen(options), options.before_plan
        planned = former if now.mode == former_mode.PLAN else None
        if now.mode != was.mode or planned not in (None, self._told.before_plan):
            mode = SetMode(epoch=epoch, mode=now.mode, before_plan=planned)
            await self._send(mode, permission_mode=now.mode, before_plan=former)
        if now.model != was.model:
            await self._send(SetModel(epoch=epoch, model=now.model), model=now.model)
        if now.config != was.config and epoch != self._old_epoch:
            await self._send(SetConfig(epoch=epoch, config=now.config), config=now.config)
        elif now.config != was.config:
            self._told = replace(self._told, config=now.config)
            self._next_worker.change(options)

    async def _send(self, frame: SetMode | SetModel | SetConfig, **told: Any) -> None:
        await self._workers.send(self._state.id, frame)
        if frame.epoch == self._state.epoch:  # else another worker was launched meanwhile
            self._told = replace(self._told, **told)

    async def bring_up_to_date(self, ready: Ready) -> None:
        """Tell an adopted worker what was chosen since what it says it runs with."""
        if ready.config is None:
            self._old_epoch = self._state.epoch
        self._told = replace(
            self._told,
            permission_mode=ready.mode or self._told.permission_mode,
            model=ready.model or self._told.model,
            config=ready.config or Config(),
            before_plan=self._state.options.before_plan,
        )
        await self.tell_worker()

    async def keep_offer(self, offer: Offer, *, starts: bool) -> None:
        """Store what a worker offers, and tell clients what of it is new. `starts`: its MCP servers
        may not have connected yet.
        """
        if offer == Offer():
            self._reported.set()
            return
        known, options, wanted = None, self._state.options, self._configuration()
        epoch, service = self._state.epoch, self._service
        configuration = wanted if service is None else replace(wanted, service=service)
        of_directory, of_servers = offers.by_place(offer.commands)
        try:
            with contextlib.suppress(StoreUnavailable):  # clients are told all of it
                known = await self.offer()
            if starts:
                of_servers = of_servers or self._server_commands()
            told = None if known is None else known.commands + self._server_commands()
            offer = replace(offer, commands=of_directory)
            self._own = epoch, configuration, offer
            with contextlib.suppress(StoreUnavailable):  # the next worker reports it again
                await self._store.keep_offer(options.cwd, offer, configuration)
            self._of_servers = options.mcp_servers, of_servers
        finally:
            self._reported.set()
        if configuration != wanted:  # a client with another key or service has the session now
            return
        before, now = self._selection(known), self._selection(offer)
        commands = of_directory + of_servers
        for subscription in list(self._state.subscriptions):
            with contextlib.suppress(ConnectionError):
                if now != before:
                    await subscription.client.show_choices(subscription.session_id, now)
                if commands != told:
                    await subscription.client.offer(subscription.session_id, commands)


def _chosen(options: WorkerOptions) -> Chosen:
    return Chosen(options.permission_mode, options.model or offers.DEFAULT_MODEL, options.config)
