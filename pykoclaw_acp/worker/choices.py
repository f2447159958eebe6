"""Claude's permission mode and model in this worker: set by the daemon, reported when Claude
changes them itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final, cast

import structlog
from claude_agent_sdk import ClaudeSDKClient, SystemMessage
from claude_agent_sdk.types import PermissionMode

from pykoclaw_acp.channel.frames import SetMode, SetModel
from pykoclaw_acp.channel.options import WorkerOptions
from pykoclaw_acp.model import choices
from pykoclaw_acp.model.choices import Choice, Command, Offer
from pykoclaw_acp.model.events import ConfigChanged, Event, ModeChanged

LIMIT: Final = 5.0  # s; the CLI answers in milliseconds, also in the middle of a turn

log: Final = structlog.get_logger()


class Choices:
    """Applies the mode and model that the daemon sets, and reports changes; `tell` takes events
    outside of turns.
    """

    def __init__(self, options: WorkerOptions, tell: Callable[[Event], None]) -> None:
        self.offer = Offer()
        self._tell = tell
        self._mode = options.permission_mode
        self._model = options.model or choices.DEFAULT_MODEL
        self._bypass = options.bypass
        self._client: ClaudeSDKClient | None = None
        self._connected = asyncio.Event()
        self._resolved: dict[
            str, str
        ] = {}  # model ids of the offer to the names that Claude itself uses
        self._running: str | None = None  # the last turn's model, in Claude's words
        self._expected: list[str] = []  # modes that were set, whose notices have not come yet
        self._last: asyncio.Task[None] | None = None

    @property
    def mode(self) -> str:
        """The permission mode that Claude is in."""
        return self._mode

    @property
    def model(self) -> str:
        """The id of the model that Claude uses."""
        return self._model

    async def connected(self, client: ClaudeSDKClient) -> None:
        """Learn from the connected CLI what it offers."""
        info = await client.get_server_info() or {}
        models = [one for one in _dicts(info.get("models")) if isinstance(one.get("value"), str)]
        self._resolved = {one["value"]: str(one.get("resolvedModel")) for one in models}
        self.offer = Offer(
            commands=choices.fit(
                tuple(_command(one) for one in _dicts(info.get("commands")) if one.get("name"))
            ),
            models=tuple(_model(one) for one in models),
        )
        self._client = client
        self._connected.set()

    def choose(self, frame: SetMode | SetModel) -> None:
        """Set the mode or the model, after earlier choices."""
        self._last = asyncio.get_running_loop().create_task(self._choose(frame, self._last))

    async def settled(self) -> None:
        """Wait until all choices are set: they hold for the next prompt."""
        if self._last is not None:
            await asyncio.wait([self._last])

    def follow(self, message: SystemMessage) -> None:
        """Report changes that Claude makes itself: it leaves plan mode, or the user
        types `/model`.
        """
        mode = message.data.get("permissionMode")
        if message.subtype == "status" and isinstance(mode, str):
            if mode in self._expected:
                del self._expected[: self._expected.index(mode) + 1]
            elif mode != self._mode:
                self._changed(mode=mode)
        elif message.subtype == "init":
            self._turn_runs_with(message.data.get("model"))

    def _turn_runs_with(self, model: object) -> None:
        if not isinstance(model, str):
            return
        before, self._running = self._running, model
        if before not in (None, model):
            named = (
                one
                for one, name in self._resolved.items()
                if name == model and one != choices.DEFAULT_MODEL
            )
            self._changed(model=next(named, model))

    async def _choose(self, frame: SetMode | SetModel, before: asyncio.Task[None] | None) -> None:
        if before is not None:
            await asyncio.wait([before])
        await self._connected.wait()
        assert self._client is not None
        mode, model = self._mode, self._model
        try:
            if isinstance(frame, SetMode):
                self._mode = frame.mode
                self._expected.append(frame.mode)
                async with asyncio.timeout(LIMIT):
                    await self._client.set_permission_mode(cast("PermissionMode", frame.mode))
            else:
                self._model, self._running = frame.model, None
                async with asyncio.timeout(LIMIT):
                    await self._client.set_model(frame.model)
        except Exception as error:  # noqa: BLE001  the SDK raises bare ones
            log.warning("Claude refused a choice", action="choice_refused", error=str(error)[:300])
            self._expected.clear()
            if isinstance(frame, SetMode):
                self._changed(mode=mode)
            else:
                self._changed(model=model)

    def _changed(self, *, mode: str | None = None, model: str | None = None) -> None:
        if mode is not None:
            self._mode = mode
            self._tell(ModeChanged(mode))
        self._model = model or self._model
        self._tell(
            ConfigChanged(
                choices.selection(self._mode, self._model, self.offer, bypass=self._bypass)
            )
        )


def _dicts(value: object) -> list[dict[str, Any]]:
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def _command(given: dict[str, Any]) -> Command:
    return Command(
        str(given["name"]),
        str(given.get("description") or ""),
        str(given.get("argumentHint") or ""),
    )


def _model(given: dict[str, Any]) -> Choice:
    return Choice(
        given["value"],
        str(given.get("displayName") or given["value"]),
        str(given.get("description") or ""),
    )
