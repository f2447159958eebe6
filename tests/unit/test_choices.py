"""Mode and model in the worker: what is set is not told back, what Claude changes itself is."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from claude_agent_sdk import SystemMessage

from pykoclaw_acp.channel.frames import SetMode, SetModel
from pykoclaw_acp.model.events import ConfigChanged, Event, ModeChanged
from pykoclaw_acp.worker.choices import Choices
from tests.workers import OPTIONS

MODELS = [
    {"value": "default", "resolvedModel": "claude-big", "displayName": "Default (recommended)"},
    {"value": "opus", "resolvedModel": "claude-big", "displayName": "Opus", "description": "Big"},
    {"value": "haiku", "resolvedModel": "claude-small", "displayName": "Haiku"},
    {"displayName": "nameless"},
]
COMMANDS = [
    {"name": "review", "description": "Review it", "argumentHint": "[path]"},
    {"name": "login", "description": "Log in"},
    {"name": "__hidden", "description": ""},
    {"name": "two words", "description": ""},
]


class Claude:
    """The SDK's client: `slow` makes it wait, `refuse` makes it refuse."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.refuse = False
        self.slow = asyncio.Event()
        self.slow.set()

    async def get_server_info(self) -> dict[str, Any]:
        return {"models": MODELS, "commands": COMMANDS}

    async def set_permission_mode(self, mode: str) -> None:
        await self._set(mode)

    async def set_model(self, model: str) -> None:
        await self._set(model)

    async def _set(self, value: str) -> None:
        await self.slow.wait()
        if self.refuse:
            raise Exception("Cannot set it")  # noqa: TRY002  as the SDK does
        self.calls.append(value)


def choices(told: list[Event]) -> Choices:
    return Choices(OPTIONS, told.append)


def status(mode: str) -> SystemMessage:
    return SystemMessage("status", {"permissionMode": mode})


def turn(model: str) -> SystemMessage:
    return SystemMessage("init", {"model": model, "permissionMode": "default"})


async def connected(told: list[Event]) -> tuple[Choices, Claude]:
    made, claude = choices(told), Claude()
    await made.connected(claude)  # type: ignore[arg-type]
    return made, claude


async def test_offer_omits_what_clients_cannot_use() -> None:
    made, _ = await connected([])
    assert [(one.name, one.description, one.hint) for one in made.offer.commands] == [
        ("review", "Review it", "[path]")
    ]
    assert [(one.id, one.name, one.description) for one in made.offer.models] == [
        ("default", "Default (recommended)", ""), ("opus", "Opus", "Big"), ("haiku", "Haiku", ""),
    ]  # fmt: skip


async def test_choices_apply_in_order_including_those_before_connection() -> None:
    told: list[Event] = []
    made, claude = choices(told), Claude()
    claude.slow.clear()
    for frame in (
        SetMode(epoch=1, mode="plan"),
        SetModel(epoch=1, model="haiku"),
        SetMode(epoch=1, mode="default"),
    ):
        made.choose(frame)
    await made.connected(claude)  # type: ignore[arg-type]
    claude.slow.set()
    await made.settled()
    assert claude.calls == ["plan", "haiku", "default"]
    for mode in ("plan", "default"):
        made.follow(status(mode))
    made.follow(turn("claude-small"))
    assert told == []


async def test_a_mode_that_claude_changes_is_told_once() -> None:
    told: list[Event] = []
    made, _ = await connected(told)
    made.choose(SetMode(epoch=1, mode="plan"))
    await made.settled()
    for mode in ("plan", "acceptEdits", "acceptEdits"):
        made.follow(status(mode))
    changed, config = told
    assert changed == ModeChanged("acceptEdits")
    assert isinstance(config, ConfigChanged)
    assert (config.selection.mode, config.selection.model) == ("acceptEdits", "default")
    made.follow(SystemMessage("status", {"status": "compacting"}))
    assert len(told) == 2


@pytest.mark.parametrize("frame", [SetMode(epoch=1, mode="plan"), SetModel(epoch=1, model="haiku")])
async def test_a_refused_choice_is_taken_back(frame: SetMode | SetModel) -> None:
    told: list[Event] = []
    made, claude = await connected(told)
    claude.refuse = True
    made.choose(frame)
    await made.settled()
    *before, last = told
    assert before == ([ModeChanged("default")] if isinstance(frame, SetMode) else [])
    assert isinstance(last, ConfigChanged)
    assert (last.selection.mode, last.selection.model) == ("default", "default")


async def test_another_model_that_the_user_typed_is_told() -> None:
    told: list[Event] = []
    made, _ = await connected(told)
    made.follow(turn("claude-big"))
    made.follow(turn("claude-big"))
    assert told == []
    made.follow(turn("claude-small"))
    made.follow(turn("claude-big"))
    made.follow(turn("claude-unheard-of"))
    models = [event.selection.model for event in told if isinstance(event, ConfigChanged)]
    assert models == ["haiku", "opus", "claude-unheard-of"]
    assert all(
        any(one.id == e.selection.model for one in e.selection.models)
        for e in told
        if isinstance(e, ConfigChanged)
    )
