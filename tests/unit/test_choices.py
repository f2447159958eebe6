"""Mode, model and config in the worker: what is set is not told back, what Claude changes itself is."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from claude_agent_sdk import ClaudeSDKClient, Message, SystemMessage, TextBlock
from msgspec.structs import replace

from pykoclaw_acp.channel.choosing import SetConfig, SetMode, SetModel
from pykoclaw_acp.channel.frames import EventFrame, Prompt, TurnEnded
from pykoclaw_acp.model.choices import Config, Model
from pykoclaw_acp.model.events import ConfigChanged, Event, ModeChanged, Text
from pykoclaw_acp.worker import raw_frames, set_choices
from pykoclaw_acp.worker.choices import Choices
from pykoclaw_acp.worker.claude import ClaudeSession
from pykoclaw_acp.worker.database_calls import DatabaseCalls
from pykoclaw_acp.worker.outbox import Outbox
from tests.unit.sdk_messages import result, whole
from tests.workers import OPTIONS, spec

EFFORT = {"supportsEffort": True, "supportedEffortLevels": ["low", "high", "max"]}
MODELS: list[dict[str, Any]] = [
    {
        "value": "default",
        "resolvedModel": "claude-big",
        "displayName": "Default (recommended)",
        **EFFORT,
        "supportsFastMode": True,
        "supportsAutoMode": True,
    },
    {"value": "opus", "resolvedModel": "claude-big", "displayName": "Opus", "description": "Big"},
    {"value": "haiku", "resolvedModel": "claude-small", "displayName": "Haiku"},
    {"displayName": "nameless"},
]
UNKNOWN = {"value": "nonsense-9", "displayName": "nonsense-9", "description": "Custom model"}
COMMANDS = [
    {"name": "review", "description": "Review it", "argumentHint": "[path]"},
    {
        "name": "clear",
        "description": "Start a new session; previous session stays on disk (resumable with /resume)",
        "argumentHint": "[name]",
    },
    {"name": "rename", "description": "Name it"},
    {"name": "login", "description": "Log in"},
    {"name": "loop", "description": "Run a prompt or slash command on a recurring interval"},
    {"name": "focus", "description": "Look at one module (project)"},
    {"name": "cost", "description": "What the cloud costs (user)"},
    {"name": "__hidden", "description": ""},
    {"name": "workflow-launch-exec", "description": "Execute a server-launched workflow"},
    {"name": "two words", "description": ""},
]


class Claude:
    """The SDK's client: `slow` makes it wait, `keeps` carry out what is not answered, `refuse` makes it
    refuse; `info` is of its answer to `initialize`, `effort` and `model` what applies.
    """

    def __init__(self) -> None:
        self.calls: list[Any] = []
        self.refuse = False
        self.keeps = False
        self.slow = asyncio.Event()
        self.slow.set()
        self.info: dict[str, Any] = {}
        self.effort = "medium"
        self.model = "claude-big"
        self.fast = False
        self._query = self

    async def get_server_info(self) -> dict[str, Any]:
        return {"models": MODELS, "commands": COMMANDS, **self.info}

    async def _send_control_request(self, request: dict[str, Any]) -> dict[str, Any]:
        if request["subtype"] == "get_settings":
            own = {"source": "flagSettings", "settings": {"fastMode": self.fast}}
            of_user = {"source": "userSettings", "settings": {"fastMode": True}}
            applied = {"effort": self.effort, "model": self.model}
            return {"applied": applied, "sources": [of_user, own]}
        await self._set(request["settings"])
        self.fast = request["settings"]["fastMode"]
        self.effort = request["settings"]["effortLevel"] or "medium"
        return {}

    async def set_permission_mode(self, mode: str) -> None:
        await self._set(mode)

    async def set_model(self, model: str) -> None:
        await self._set(model)

    async def _set(self, value: Any) -> None:
        if self.keeps:
            self.calls.append(value)
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
        ("review", "Review it", "[path]"),
        ("clear", "Let Claude forget this conversation, which stays here to be read", "[name]"),
        ("rename", "Name it", ""),
        ("focus", "Look at one module (project)", ""),
        ("cost", "What the cloud costs (user)", ""),
    ]
    assert [(one.id, one.name, one.description) for one in made.offer.models] == [
        ("default", "Default (recommended)", ""), ("opus", "Opus", "Big"), ("haiku", "Haiku", ""),
    ]  # fmt: skip


@pytest.mark.parametrize("underway", [True, False])
async def test_choice_that_crosses_with_report_is_told_back(*, underway: bool) -> None:
    """The log has the report behind it; clients must see what Claude is in."""
    told: list[Event] = []
    reports = {"underway": False}
    made, claude = Choices(OPTIONS, told.append, lambda: reports["underway"]), Claude()
    await made.connected(claude)  # type: ignore[arg-type]
    made.follow(status("acceptEdits"))
    reports["underway"] = underway
    before = len(told)
    for mode in ("plan", "default", "plan"):
        made.choose(SetMode(epoch=1, mode=mode))
        reports["underway"] = False
    await made.settled()
    later = [one.mode for one in told[before:] if isinstance(one, ModeChanged)]
    assert later == (["plan"] if underway else [])
    made.choose(SetMode(epoch=1, mode="default"))
    await made.settled()
    assert len(told) == before + 2 * underway


@pytest.mark.parametrize("asked", [True, False])
async def test_model_unknown_to_claude_is_taken_back(*, asked: bool) -> None:
    """Only if it was asked for unchecked: a setting's may be one of a gateway."""
    told: list[Event] = []
    wished = replace(OPTIONS.asked, unchecked_model="nonsense-9" if asked else None)
    options = replace(OPTIONS, model="nonsense-9", asked=wished)
    made, claude = Choices(options, told.append), Claude()
    claude.info = {"models": [*MODELS, UNKNOWN]}
    await made.connected(claude)  # type: ignore[arg-type]
    offered = [one.id for one in made.offer.models]
    if not asked:
        assert (told, claude.calls, made.model) == ([], [], "nonsense-9")
        assert offered[-1] == "nonsense-9"
        return
    note, changed = told
    assert isinstance(note, Text)
    assert "no model `nonsense-9` here" in note.text
    assert "It has default, opus, haiku." in note.text
    assert isinstance(changed, ConfigChanged)
    assert (changed.selection.model, made.model) == ("default", "default")
    assert claude.calls == ["default"], "before the first prompt"
    assert offered == ["default", "opus", "haiku"]


@pytest.mark.parametrize("model", ["opus", "claude-small", "older-1", "best", "opus[1m]"])
async def test_a_model_that_claude_knows_stays(model: str) -> None:
    """It does not list all of them, not even if it was started with one."""
    told: list[Event] = []
    options = replace(OPTIONS, model=model, asked=replace(OPTIONS.asked, unchecked_model=model))
    made, claude = Choices(options, told.append), Claude()
    older = {"value": "older-1", "displayName": "Older 1", "description": "Newer version available"}
    claude.info = {"models": [*MODELS, older]}
    await made.connected(claude)  # type: ignore[arg-type]
    assert (told, claude.calls, made.model) == ([], [], model)


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


@pytest.mark.parametrize(
    ("frame", "unanswered", "kept"),
    [
        (SetMode(epoch=1, mode="plan"), "plan", "default"),
        (SetModel(epoch=1, model="haiku"), "haiku", "default"),
        (
            SetConfig(epoch=1, config=Config(effort="max")),
            {"effortLevel": "max", "fastMode": False},
            {"effortLevel": None, "fastMode": False},
        ),
    ],
)
async def test_unanswered_choice_is_taken_back(
    frame: SetMode | SetModel | SetConfig,
    unanswered: Any,
    kept: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The CLI, which reads no input for a while, carries out both requests."""
    monkeypatch.setattr(set_choices, "WAIT", 0.01)
    monkeypatch.setattr(set_choices, "WRITTEN", 0.01)
    told: list[Event] = []
    made, claude = await connected(told)
    claude.keeps = True
    claude.slow.clear()
    made.choose(frame)
    await made.settled()
    assert claude.calls == [unanswered, kept]
    assert "has not answered for 0.01 s, so this choice was taken back" in str(told)
    assert (made.mode, made.model, made.config) == ("default", "default", Config())


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


def held(told: list[Event]) -> tuple[str, str, str]:
    """Mode, model and effort that clients show in the end."""
    modes = [one.mode for one in told if isinstance(one, ModeChanged)]
    shown = [one.selection for one in told if isinstance(one, ConfigChanged)][-1]
    assert shown.mode == (modes or [OPTIONS.permission_mode])[-1]
    return shown.mode, shown.model, values(told)[-1]["effort"]


@pytest.mark.parametrize("later", [[], ["plan"]])
async def test_mode_chosen_just_before_claude_changes_it_holds(later: list[str]) -> None:
    """Claude leaves plan mode, and only then takes what the user has chosen."""
    told: list[Event] = []
    made, _ = await connected(told)
    modes = ["bypassPermissions", *later]
    for mode in modes:
        made.choose(SetMode(epoch=1, mode=mode))
    await made.settled()
    for mode in ("acceptEdits", *modes):
        made.follow(status(mode))
    assert [one.mode for one in told if isinstance(one, ModeChanged)] == ["acceptEdits", modes[-1]]
    assert held(told)[0] == made.mode == modes[-1]


@pytest.mark.parametrize(
    ("frame", "shown"),
    [
        (SetMode(epoch=1, mode="acceptEdits"), ("acceptEdits", "default", "default")),
        (SetModel(epoch=1, model="haiku"), ("plan", "haiku", "default")),
        (SetConfig(epoch=1, config=Config("high")), ("plan", "default", "high")),
    ],
)
async def test_choice_outlasts_what_claude_reports_meanwhile(
    frame: SetMode | SetModel | SetConfig, shown: tuple[str, str, str]
) -> None:
    told: list[Event] = []
    wished = replace(OPTIONS.asked, unchecked_model="nonsense-9")
    made = Choices(replace(OPTIONS, model="nonsense-9", asked=wished), told.append)
    claude = Claude()
    claude.info = {"current_permission_mode": "plan", "models": [*MODELS, UNKNOWN]}
    made.choose(frame)
    await made.connected(claude)  # type: ignore[arg-type]
    await made.settled()
    assert held(told) == (made.mode, made.model, made.config.effort or "default") == shown
    if isinstance(frame, SetConfig):
        assert {one["effort"] for one in values(told)} == {"high"}, "it is never shown as gone"


@pytest.mark.parametrize(
    "frame",
    [
        SetMode(epoch=1, mode="plan"),
        SetModel(epoch=1, model="haiku"),
        SetConfig(epoch=1, config=Config("high")),
    ],
)
async def test_a_refused_choice_is_taken_back(frame: SetMode | SetModel | SetConfig) -> None:
    told: list[Event] = []
    made, claude = await connected(told)
    claude.refuse = True
    made.choose(frame)
    await made.settled()
    words, *before, last = told
    assert isinstance(words, Text)
    assert words.note
    assert "Cannot set it" in words.text
    assert before == ([ModeChanged("default")] if isinstance(frame, SetMode) else [])
    assert isinstance(last, ConfigChanged)
    assert (last.selection.mode, last.selection.model) == ("default", "default")
    assert last.selection.config == Config()


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


def values(told: list[Event]) -> list[dict[str, str]]:
    """Values of the options besides mode and model, each time that they were told."""
    return [
        {one.id: one.value for one in event.selection.options or ()}
        for event in told
        if isinstance(event, ConfigChanged)
    ]


async def test_what_models_can_do_is_learnt_from_claude() -> None:
    made, _ = await connected([])
    default, opus, _ = made.offer.models
    assert default == Model(
        "default", "Default (recommended)", "", "claude-big", ("low", "high", "max"), True, True
    )
    assert (opus.efforts, opus.fast, opus.auto) == (None, False, False)


async def test_effort_and_fast_mode_are_set_and_reset() -> None:
    told: list[Event] = []
    made, claude = await connected(told)
    made.choose(SetConfig(epoch=1, config=Config("high", True)))
    made.choose(SetConfig(epoch=1, config=Config()))
    await made.settled()
    assert claude.calls == [
        {"effortLevel": "high", "fastMode": True},
        {"effortLevel": None, "fastMode": False},
    ], "None would be what the CLI was started with"
    assert told == []


async def test_effort_user_typed_is_told_once() -> None:
    told: list[Event] = []
    made, claude = await connected(told)
    await made.command_ran()
    assert told == [], "a command that changed nothing"
    claude.effort = "high"
    for _ in range(2):
        await made.command_ran()
    assert values(told) == [{"effort": "high", "fast": "off"}]
    assert made.config == Config("high")


@pytest.mark.parametrize(
    ("chosen", "runs", "shown"),
    [
        (None, "claude-small", ["haiku"]),
        (None, "claude-of-a-gateway", ["claude-of-a-gateway"]),
        (None, "claude-big", []),
        (None, "claude-big[1m]", []),
        ("opus", "claude-small", []),
    ],
)
async def test_foreign_or_set_model_shows_before_first_turn(
    chosen: str | None, runs: str, shown: list[str]
) -> None:
    told: list[Event] = []
    made, claude = Choices(replace(OPTIONS, model=chosen), told.append), Claude()
    claude.model = runs
    await made.connected(claude)  # type: ignore[arg-type]
    await made.command_ran()
    made.follow(turn(runs))
    assert [one.selection.model for one in told if isinstance(one, ConfigChanged)] == shown
    assert made.model == (shown or [chosen or "default"])[-1]


async def test_model_user_typed_is_told_after_command() -> None:
    told: list[Event] = []
    made, claude = await connected(told)
    await made.command_ran()
    made.follow(SystemMessage("init", {"model": "claude-big"}))
    claude.model, claude.effort = "claude-small", "max"
    for _ in range(2):
        await made.command_ran()
    made.follow(SystemMessage("init", {"model": "claude-small"}))
    (changed,) = told
    assert isinstance(changed, ConfigChanged)
    assert changed.selection.model == made.model == "haiku"
    assert made.config == Config(), "the effort is the model's own, not chosen"


@pytest.mark.parametrize(
    ("chosen", "typed", "runs", "shown"),
    [
        ("opus", "default", "claude-big", ["default"]),
        ("default", "opus", "claude-big", ["opus"]),
        ("haiku", "default", "claude-big", ["default"]),
        ("haiku", "haiku", "claude-small", []),
        ("opus", "", "claude-big", []),
        ("opus", "opusplan", "claude-small", ["haiku"]),
        ("opus", "haiku", "claude-big", []),
    ],
)
async def test_model_user_typed_is_shown_as_typed(
    chosen: str, typed: str, runs: str, shown: list[str]
) -> None:
    """Where it is what runs, also if the same model ran before by another name."""
    told: list[Event] = []
    made, claude = Choices(replace(OPTIONS, model=chosen), told.append), Claude()
    claude.model = "claude-small" if chosen == "haiku" else "claude-big"
    await made.connected(claude)  # type: ignore[arg-type]
    made.follow(turn(claude.model))
    claude.model = runs
    made.command_runs({"local_command_run": {"command": "model", "args": typed}})
    for _ in range(2):
        await made.command_ran()
    made.follow(turn(runs))
    assert [one.selection.model for one in told if isinstance(one, ConfigChanged)] == shown
    assert made.model == (shown or [chosen])[-1]


async def typing(made: Choices, command: str, args: str) -> None:
    """What the CLI says to a command, and that it has ended."""
    made.command_runs({"local_command_run": {"command": command, "args": args}})
    await made.command_ran()


async def test_typed_model_is_told_before_turn_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[Any] = []
    outbox = cast("Outbox", SimpleNamespace(put=told.append))
    session = ClaudeSession(spec(tmp_path), str(tmp_path), outbox, cast("DatabaseCalls", None))
    claude = Claude()
    session.client = cast("ClaudeSDKClient", claude)
    await session.choices.connected(claude)  # type: ignore[arg-type]
    ran = {"local_command_run": {"command": "model", "args": "haiku"}}

    async def received(*_: object) -> AsyncIterator[tuple[Message, raw_frames.RawFrame]]:
        yield whole(TextBlock("Set model to Haiku")), ran
        claude.model = "claude-small"
        yield result(user_message_uuids=["t"], num_turns=0), raw_frames.NO_FRAME

    monkeypatch.setattr(raw_frames, "received", received)
    session.turns.expect("t")
    await session.run()
    kinds = [type(one.event if isinstance(one, EventFrame) else one) for one in told]
    assert kinds.index(ConfigChanged) < kinds.index(TurnEnded)


@pytest.mark.parametrize("args", ["off", ""])
async def test_fast_mode_user_turned_off_is_told(args: str) -> None:
    told: list[Event] = []
    made, claude = await connected(told)
    made.choose(SetConfig(epoch=1, config=Config("high", True)))
    await made.settled()
    claude.fast = False
    for _ in range(2):
        await typing(made, "fast", args)
    assert values(told) == [{"effort": "high", "fast": "off"}]
    assert made.config == Config("high")


@pytest.mark.parametrize(
    ("chosen", "words", "sent", "fast"),
    [
        (False, "/fast", "/fast on", True),
        (False, " /fast on\n", "/fast on", True),
        (False, "/fast off", "/fast off", False),
        (False, "/fast on please", "/fast on please", False),
        (True, "/fast", "/fast", False),
    ],
)
async def test_fast_command_is_carried_out_as_option(
    words: str, sent: str, *, chosen: bool, fast: bool
) -> None:
    """Claude toggles by itself what is on; to turn it on it takes from the option alone."""
    told: list[Event] = []
    made, claude = await connected(told)
    made.choose(SetConfig(epoch=1, config=Config(fast=chosen)))
    prompt = Prompt(epoch=1, turn_id="t", content=[{"type": "text", "text": words}])
    await made.settled()
    prepared = await made.prepared(prompt)
    assert prepared.content[0]["text"].strip() == sent
    assert claude.fast == (chosen or fast)
    claude.fast = fast
    await typing(made, "fast", "")
    assert [one["fast"] for one in values(told)] == (
        [] if chosen == fast else ["on" if fast else "off"]
    )
    assert made.config == Config(fast=fast)


@pytest.mark.parametrize("refuse", [False, True])
async def test_fast_command_sets_model_and_is_told_once(*, refuse: bool) -> None:
    told: list[Event] = []
    made, claude = await connected(told)
    made.choose(SetModel(epoch=1, model="haiku"))
    await made.settled()
    claude.refuse = refuse
    prompt = Prompt(epoch=1, turn_id="t", content=[{"type": "text", "text": "/fast"}])
    assert (await made.prepared(prompt)).content[0]["text"] == "/fast on"
    await typing(made, "fast", "on")
    shown = [one.selection for one in told if isinstance(one, ConfigChanged)]
    (now,) = shown
    assert (now.model, "fast" in values(told)[0]) == (
        ("haiku", False) if refuse else ("default", True)
    )
    assert made.config.fast != refuse
    assert claude.calls[-1] == ("haiku" if refuse else "default")


async def test_fast_command_is_left_where_nobody_has_it() -> None:
    told: list[Event] = []
    made, claude = choices(told), Claude()
    claude.info = {"fast_mode_disabled_reason": "free"}
    await made.connected(claude)  # type: ignore[arg-type]
    prompt = Prompt(epoch=1, turn_id="t", content=[{"type": "text", "text": "/fast"}])
    assert await made.prepared(prompt) is prompt
    assert (told, claude.calls) == ([], [])


async def test_model_user_typed_lacking_fast_mode_ends_it() -> None:
    told: list[Event] = []
    made, claude = await connected(told)
    made.choose(SetConfig(epoch=1, config=Config(fast=True)))
    made.follow(turn("claude-big"))
    await made.settled()
    claude.model = "claude-small"
    await typing(made, "model", "haiku")
    assert (made.model, made.config) == ("haiku", Config())
    assert "fast" not in values(told)[-1]
    assert claude.fast is False


@pytest.mark.parametrize(
    ("chosen", "typed", "applies", "kept"),
    [
        ("high", "auto", "medium", None),
        (None, "medium", "medium", "medium"),
        (None, "ultracode on", "medium", None),
    ],
)
async def test_effort_user_typed_is_kept_as_typed(
    chosen: str | None, typed: str, applies: str, kept: str | None
) -> None:
    told: list[Event] = []
    made, claude = await connected(told)
    made.choose(SetConfig(epoch=1, config=Config(chosen)))
    await made.settled()
    claude.effort = applies
    await typing(made, "effort", typed)
    assert made.config == Config(kept)
    assert len(told) == (chosen != kept)


async def test_mode_claude_did_not_enter_is_taken_back() -> None:
    told: list[Event] = []
    made, claude = Choices(replace(OPTIONS, permission_mode="auto"), told.append), Claude()
    claude.info = {"current_permission_mode": "default"}
    await made.connected(claude)  # type: ignore[arg-type]
    words, mode, _ = told
    assert isinstance(words, Text)
    assert "`auto`" in words.text
    assert mode == ModeChanged("default")
    assert made.mode == "default"


@pytest.mark.parametrize("turn_begins", [False, True])
async def test_account_lacking_fast_mode_is_told_in_words(*, turn_begins: bool) -> None:
    told: list[Event] = []
    made, claude = Choices(replace(OPTIONS, config=Config(fast=True)), told.append), Claude()
    lacks = {"fast_mode_state": "off", "fast_mode_disabled_reason": "free"}
    if not turn_begins:
        claude.info = lacks
    await made.connected(claude)  # type: ignore[arg-type]
    if turn_begins:
        assert told == []
        made.follow(SystemMessage("init", {"model": "claude-big", **lacks}))
    words, changed = told
    assert isinstance(words, Text)
    assert "no paid plan" in words.text
    assert isinstance(changed, ConfigChanged)
    assert made.config == Config()
    assert made.offer.models[0].fast == turn_begins, "it is not offered where it cannot be had"


@pytest.mark.parametrize(
    ("model", "mode", "config", "lacks"),
    [
        ("haiku", "plan", Config("max"), "the effort `max`"),
        ("haiku", "auto", Config("max", fast=True), "`auto`, the effort `max`, fast mode"),
        ("default", "auto", Config("max", fast=True), ""),
        ("claude-of-mine", "auto", Config("max", fast=True), ""),
    ],
)
async def test_choice_before_first_offer_is_checked(
    model: str, mode: str, config: Config, lacks: str
) -> None:
    told: list[Event] = []
    options = replace(OPTIONS, model=model, permission_mode=mode, config=config)
    made, claude = Choices(options, told.append), Claude()
    claude.info = {"models": [*MODELS[:2], {**MODELS[2], "supportsEffort": False}]}
    await made.connected(claude)  # type: ignore[arg-type]
    if not lacks:
        assert (told, made.mode, made.config) == ([], mode, config)
        return
    assert isinstance(told[0], Text)
    assert lacks in told[0].text
    assert made.config == Config()
    assert made.mode == ("default" if mode == "auto" else mode)
    assert claude.calls[-1] == {"effortLevel": None, "fastMode": False}
    assert "effort" not in values(told)[-1]
