"""Projection of neutral events to ACP v1 `session/update`: pure functions."""

from __future__ import annotations

from typing import Any, Final, assert_never

import msgspec

from pykoclaw_acp.link.meta_keys import LINE, NOTE, OLD_LINE, ORIGIN
from pykoclaw_acp.model.choices import FAST, ON, Choice, Command, Option, Selection
from pykoclaw_acp.model.events import (
    ConfigChanged,
    Event,
    Failure,
    ImagePart,
    Location,
    ModeChanged,
    Plan,
    PlanEntry,
    Text,
    TextPart,
    Thinking,
    TitleChanged,
    ToolEnded,
    ToolPart,
    ToolProgressed,
    ToolStarted,
    Usage,
    UserMessage,
)
from pykoclaw_acp.protocol import tool_results
from pykoclaw_acp.protocol.content import Diff, ImageContent, ShownContent, TextContent, ToolContent
from pykoclaw_acp.protocol.messages import (
    BooleanConfigOption,
    ConfigOption,
    ConfigOptions,
    ConfigValue,
    ModelInfo,
    ModelState,
    ModeState,
    OpenedState,
    SessionMode,
)
from pykoclaw_acp.protocol.times import iso
from pykoclaw_acp.protocol.updates import (
    AgentMessageChunk,
    AgentThoughtChunk,
    AvailableCommand,
    AvailableCommandsUpdate,
    CommandInput,
    ConfigOptionUpdate,
    Cost,
    CurrentModeUpdate,
    PlanEntryUpdate,
    PlanUpdate,
    SessionInfoUpdate,
    ToolCall,
    ToolCallUpdate,
    ToolLocation,
    Update,
    UsageUpdate,
    UserMessageChunk,
)

SEQ: Final = "pykoclaw.dev/seq"
PARENT: Final = "pykoclaw.dev/parentToolCallId"

MODE: Final = "mode"  # ids of the config options
MODEL: Final = "model"
UNREADABLE: Final = "(A part of the history cannot be read any more.)"
FAILED: Final = "\n\n**This turn ended with an error.** {}\n\n"


def update(seq: int, event: Event | None) -> Update:
    """Project the event at `seq`; an unreadable row becomes a placeholder."""
    meta: dict[str, Any] = {SEQ: seq}
    match event:
        case None:
            meta[NOTE] = "note"
            return AgentMessageChunk(
                message_id=f"unreadable-{seq}", content=TextContent(text=UNREADABLE), meta=meta
            )
        case UserMessage():
            if event.origin is not None:
                meta[ORIGIN] = event.origin
            return UserMessageChunk(
                message_id=event.message_id, content=_block(event.content), meta=meta
            )
        case Thinking():
            return AgentThoughtChunk(
                message_id=event.message_id, content=TextContent(text=event.text), meta=meta
            )
        case Failure():
            meta[NOTE] = "failure"
            said = TextContent(text=FAILED.format(event.text))
            return AgentMessageChunk(message_id=event.message_id, content=said, meta=meta)
        case ToolStarted():
            return _tool_call(event, meta)
        case ToolProgressed():
            shown = parts(event.content)
            return ToolCallUpdate(
                tool_call_id=event.tool_call_id,
                status="in_progress",
                content=[] if event.allowed and shown is None else shown,
                raw_input=event.input,
                title=event.title,
                meta=meta,
            )
        case ToolEnded():
            return ToolCallUpdate(
                tool_call_id=event.tool_call_id,
                status=event.status,
                content=parts(tool_results.shown(event)),
                locations=locations(event.locations),
                raw_input=event.input,
                raw_output=tool_results.raw_output(event),
                title=event.title,
                meta=meta,
            )
        case Usage():
            # Claude's CLI adds up floats: 0.8636840000000002.
            cost = None if event.cost is None else Cost(amount=round(event.cost, 6), currency="USD")
            return UsageUpdate(used=event.used, size=event.size, cost=cost, meta=meta)
        case Plan():
            return PlanUpdate(entries=_entries(event.entries), meta=meta)
        case ModeChanged():
            return CurrentModeUpdate(current_mode_id=event.mode, meta=meta)
        case ConfigChanged():
            return ConfigOptionUpdate(config_options=config_options(event.selection), meta=meta)
        case TitleChanged():
            return SessionInfoUpdate(title=event.title, updated_at=iso(event.at), meta=meta)
        case Text():
            if event.note:
                meta[NOTE] = "note"
            return AgentMessageChunk(
                message_id=event.message_id, content=TextContent(text=event.text), meta=meta
            )
        case _:
            assert_never(event)


def inserted(message_id: str, text: str) -> Update:
    """Text of the agent's that is not in the log."""
    return AgentMessageChunk(message_id=message_id, content=TextContent(text=text))


def parts(content: tuple[ToolPart, ...]) -> list[ToolContent] | None:
    """Content of a tool call."""
    return [_part(part) for part in content] or None


def unlogged(message_id: str, text: str) -> Update:
    """A note that is no event of the log, since that has it in another form, or it soon says nothing."""
    return AgentMessageChunk(
        message_id=message_id, content=TextContent(text=text), meta={NOTE: "note"}
    )


def plan(entries: tuple[PlanEntry, ...]) -> PlanUpdate:
    """A plan as an update that is no event of the log, since that has it already."""
    return PlanUpdate(entries=_entries(entries))


def state(selection: Selection, *, legacy_models: bool, booleans: bool = False) -> OpenedState:
    """Selected values and choices of a session. `legacy_models`: models also in the field that ACP
    had before config options; `booleans` as for `config_options`.
    """
    modes = ModeState(
        current_mode_id=selection.mode,
        available_modes=[
            SessionMode(id=one.id, name=one.name, description=one.description or None)
            for one in selection.modes
        ],
    )
    models = ModelState(
        current_model_id=selection.model,
        available_models=[
            ModelInfo(model_id=one.id, name=one.name, description=one.description or None)
            for one in selection.models
        ],
    )
    return OpenedState(
        modes=modes,
        models=models if legacy_models else None,
        config_options=config_options(selection, booleans=booleans),
    )


def config_options(selection: Selection, *, booleans: bool = False) -> ConfigOptions:
    """Mode, model and what the model has besides, as config options; `booleans`: what is on or off
    has that type.
    """
    return [
        ConfigOption(
            id=MODE,
            name="Mode",
            category="mode",
            current_value=selection.mode,
            options=_values(selection.modes),
        ),
        ConfigOption(
            id=MODEL,
            name="Model",
            category="model",
            current_value=selection.model,
            options=_values(selection.models),
        ),
        *(
            _switch(one) if booleans and one.id == FAST else _option(one)
            for one in selection.options or ()
        ),
    ]


def _option(one: Option) -> ConfigOption:
    return ConfigOption(
        id=one.id,
        name=one.name,
        description=one.description or None,
        category=one.category,
        current_value=one.value,
        options=_values(one.choices),
    )


def _switch(one: Option) -> BooleanConfigOption:
    return BooleanConfigOption(
        id=one.id,
        name=one.name,
        description=one.description or None,
        category=one.category,
        current_value=one.value == ON,
    )


def choices_update(selection: Selection, *, booleans: bool) -> ConfigOptionUpdate:
    """What can be chosen, as an update which is not in the log."""
    return ConfigOptionUpdate(config_options=config_options(selection, booleans=booleans))


def commands(offered: tuple[Command, ...]) -> AvailableCommandsUpdate:
    """Slash commands as an update, which is not in the log."""
    return AvailableCommandsUpdate(
        available_commands=[
            AvailableCommand(
                name=one.name,
                description=one.description,
                input=CommandInput(hint=one.hint) if one.hint else None,
            )
            for one in offered
        ]
    )


def _entries(entries: tuple[PlanEntry, ...]) -> list[PlanEntryUpdate]:
    return [PlanEntryUpdate(content=one.content, status=one.status) for one in entries]


def _values(choices: tuple[Choice, ...]) -> list[ConfigValue]:
    return [
        ConfigValue(value=one.id, name=one.name, description=one.description or None)
        for one in choices
    ]


def meta_of_call(tool: str, parent_id: str | None) -> dict[str, Any]:
    """What `_meta` says of a call, for our clients and for those of claude-agent-acp."""
    meta: dict[str, Any] = {} if parent_id is None else {PARENT: parent_id}
    known = {"toolName": tool or None, "parentToolUseId": parent_id}  # by which clients nest calls
    if claude := {key: one for key, one in known.items() if one is not None}:
        meta["claudeCode"] = claude
    return meta


def _tool_call(event: ToolStarted, meta: dict[str, Any]) -> ToolCall:
    return ToolCall(
        tool_call_id=event.tool_call_id,
        title=event.title,
        kind=event.tool_kind,
        status="pending" if event.pending else "in_progress",
        name=event.name,
        content=parts(event.content),
        locations=locations(event.locations),
        raw_input=event.input,
        meta=meta | meta_of_call(event.name, event.parent_id),
    )


def locations(found: tuple[Location, ...]) -> list[ToolLocation] | None:
    """The files of a tool call."""
    return [ToolLocation(path=one.path, line=_line(one.line)) for one in found] or None


def _line(number: int | None) -> int | None:
    """A number that ACP has a place for: what a model or a file says may be any."""
    return number if number is not None and 0 <= number < 2**32 else None


def _block(kept: dict[str, Any]) -> dict[str, Any]:
    """A content block as ACP has it, from one of a log whose blob is in place."""
    if kept.get("type") != "resource" or "resource" in kept:
        return kept
    block: dict[str, Any] = {key: kept[key] for key in ("type", "annotations") if key in kept}
    block["resource"] = {key: kept[key] for key in kept if key not in block}
    return block


def _part(part: ToolPart) -> ShownContent | Diff:
    match part:
        case TextPart():
            return ShownContent(content=TextContent(text=part.text))
        case ImagePart():
            return ShownContent(content=ImageContent(data=part.data, mime_type=part.mime_type))
        case _:
            line, old_line = _line(part.line), _line(part.old_line)
            return Diff(
                path=part.path,
                old_text=part.old_text,
                new_text=part.new_text,
                meta=msgspec.UNSET if line is None else {LINE: line, OLD_LINE: old_line},
            )
