"""Permission mode and model of a session: choices, storage, delivery to Claude."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Final

import structlog
from msgspec.structs import replace

from pykoclaw_acp.channel.frames import Ready, SetMode, SetModel
from pykoclaw_acp.channel.options import WorkerOptions
from pykoclaw_acp.errors import InvalidParams, StoreUnavailable
from pykoclaw_acp.model import choices as offers
from pykoclaw_acp.model.choices import Choice, Command, Offer, Selection
from pykoclaw_acp.model.events import ConfigChanged, Event, ModeChanged
from pykoclaw_acp.sessions.ports import OfferStore, Workers
from pykoclaw_acp.sessions.state import SessionState

log: Final = structlog.get_logger()


class Choosing:
    """Mode and model of one session. A choice is logged, then sent to the live worker; the next one
    starts with it.
    """

    def __init__(self, state: SessionState, store: OfferStore, workers: Workers) -> None:
        self._state = state
        self._store = store
        self._workers = workers
        self._choice = asyncio.Lock()

    async def selection(self) -> Selection:
        """Current mode and model with their choices, as far as known without Claude."""
        options = self._state.options
        offer = await self._store.offer(options.cwd)
        return offers.selection(
            options.permission_mode, options.model, offer, bypass=options.bypass
        )

    async def commands(self) -> tuple[Command, ...]:
        """Slash commands reported by the last worker in this directory."""
        offer = await self._store.offer(self._state.options.cwd)
        return () if offer is None else offer.commands

    async def choose(
        self, parameter: str, *, mode: str | None = None, model: str | None = None
    ) -> Selection:
        """Change the mode or the model; raises InvalidParams, which names `parameter`, for one that
        is not offered.
        """
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
            before = self._state.options
            await self._state.log.tell(changed)
            log.info(
                "Chosen", action="chosen", session=self._state.id, mode=then.mode, model=then.model
            )
            await self.tell_worker(before)
            return then

    async def tell_worker(self, before: WorkerOptions) -> None:
        """Tell the worker, which was launched or told `before`, what was chosen since; the next one
        starts with it.
        """
        options, epoch = self._state.options, self._state.epoch
        with contextlib.suppress(ConnectionError):
            if options.permission_mode != before.permission_mode:
                await self._workers.send(
                    self._state.id, SetMode(epoch=epoch, mode=options.permission_mode)
                )
            model = options.model or offers.DEFAULT_MODEL
            if model != (before.model or offers.DEFAULT_MODEL):
                await self._workers.send(self._state.id, SetModel(epoch=epoch, model=model))

    async def bring_up_to_date(self, ready: Ready) -> None:
        """Tell an adopted worker what was chosen since the mode and model that it says it runs
        with.
        """
        options = self._state.options
        mode, model = options.permission_mode, options.model or offers.DEFAULT_MODEL
        await self.tell_worker(
            replace(options, permission_mode=ready.mode or mode, model=ready.model or model)
        )

    async def keep_offer(self, offer: Offer) -> None:
        """Store what a worker that is ready offers, and tell clients of commands that are new."""
        cwd = self._state.options.cwd
        known = await self._store.offer(cwd)
        if offer in (known, Offer()):
            return
        with contextlib.suppress(StoreUnavailable):  # the next worker reports it again
            await self._store.keep_offer(cwd, offer)
        if known is None or offer.commands != known.commands:
            for subscription in list(self._state.subscriptions):
                with contextlib.suppress(ConnectionError):
                    await subscription.client.offer(subscription.session_id, offer.commands)


def _require(parameter: str, wanted: str, choices: tuple[Choice, ...]) -> None:
    if all(one.id != wanted for one in choices):
        allowed = ", ".join(one.id for one in choices)
        raise InvalidParams(
            f"`{parameter}`: must be one of {allowed}.", {"allowed": [one.id for one in choices]}
        )
