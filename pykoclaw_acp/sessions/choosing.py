"""A session's permission mode and model: what is chosen, how a choice is kept, and how it reaches Claude."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Final

import structlog
from msgspec.structs import replace

from pykoclaw_acp.channel.frames import Ready, SetMode, SetModel
from pykoclaw_acp.channel.options import WorkerOptions
from pykoclaw_acp.errors import InvalidParams, StoreUnavailable
from pykoclaw_acp.model import choices as offers
from pykoclaw_acp.model.choices import Choice, Command, Offer, Selection
from pykoclaw_acp.model.events import ConfigChanged, Event, ModeChanged
from pykoclaw_acp.sessions.ports import OfferStore, Workers

if TYPE_CHECKING:
    from pykoclaw_acp.sessions.session import Session

log: Final = structlog.get_logger()


class Choosing:
    """One session's. A choice is logged before it is answered; the live worker is told, the next one launched so."""

    def __init__(self, session: Session, journal: OfferStore, workers: Workers) -> None:
        self._session = session
        self._journal = journal
        self._workers = workers
        self._choice = asyncio.Lock()

    async def selection(self) -> Selection:
        """What is chosen, and what can be, as far as it is known without asking Claude."""
        options = self._session.options
        offer = await self._journal.offer(options.cwd)
        return offers.selection(options.permission_mode, options.model, offer, bypass=options.bypass)

    async def commands(self) -> tuple[Command, ...]:
        """The slash commands, as the last worker in this directory knew them."""
        offer = await self._journal.offer(self._session.options.cwd)
        return () if offer is None else offer.commands

    async def choose(self, parameter: str, *, mode: str | None = None, model: str | None = None) -> Selection:
        """Change the mode or the model; raises InvalidParams, which names `parameter`, for one that is not offered."""
        async with self._choice:
            now = await self.selection()
            if mode is not None:
                _require(parameter, mode, now.modes)
            if model is not None:
                _require(parameter, model, now.models)
            then = Selection(mode or now.mode, now.modes, model or now.model, now.models)
            if then == now:
                return now
            changed: list[Event] = [ConfigChanged(then)]
            if then.mode != now.mode:
                changed.insert(0, ModeChanged(then.mode))
            before = self._session.options
            await self._session.tell(changed)
            log.info("Chosen", action="chosen", session=self._session.id, mode=then.mode, model=then.model)
            await self.apply(before)
            return then

    async def apply(self, before: WorkerOptions) -> None:
        """Tell the worker, which knows `before`, what was chosen since; without one the next is launched so."""
        options, epoch = self._session.options, self._session.epoch
        with contextlib.suppress(ConnectionError):
            if options.permission_mode != before.permission_mode:
                await self._workers.send(self._session.id, SetMode(epoch=epoch, mode=options.permission_mode))
            model = options.model or offers.DEFAULT_MODEL
            if model != (before.model or offers.DEFAULT_MODEL):
                await self._workers.send(self._session.id, SetModel(epoch=epoch, model=model))

    async def settle(self, ready: Ready) -> None:
        """An adopted worker says what it runs with, and may not have got what was chosen or set since."""
        options = self._session.options
        mode, model = options.permission_mode, options.model or offers.DEFAULT_MODEL
        await self.apply(replace(options, permission_mode=ready.mode or mode, model=ready.model or model))

    def follow(self, event: Event | None) -> None:
        """An event is in the log: from now on it is so."""
        if isinstance(event, ModeChanged):
            self._session.record.mode = event.mode
            self._session.options = replace(self._session.options, permission_mode=event.mode)
        elif isinstance(event, ConfigChanged):
            model = event.selection.model
            if self._session.options.model is not None or model != offers.DEFAULT_MODEL:
                self._session.record.model = model
                self._session.options = replace(self._session.options, model=model)

    async def offered(self, offer: Offer) -> None:
        """A worker is ready, and says what there is; clients are told if its commands are news."""
        cwd = self._session.options.cwd
        known = await self._journal.offer(cwd)
        if offer in (known, Offer()):
            return
        with contextlib.suppress(StoreUnavailable):  # the next worker says it again
            await self._journal.keep_offer(cwd, offer)
        if known is None or offer.commands != known.commands:
            for subscription in list(self._session.subscriptions):
                with contextlib.suppress(ConnectionError):
                    await subscription.client.offer(subscription.session_id, offer.commands)


def _require(parameter: str, wanted: str, choices: tuple[Choice, ...]) -> None:
    if all(one.id != wanted for one in choices):
        allowed = ", ".join(one.id for one in choices)
        raise InvalidParams(f"`{parameter}`: must be one of {allowed}.", {"allowed": [one.id for one in choices]})
