"""What a client has in the end, as a fold over the events that it was told: text and states."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from pykoclaw_acp.model.events import (
    Event,
    Plan,
    Text,
    Thinking,
    ToolEnded,
    ToolProgressed,
    ToolStarted,
    Usage,
)


def seen(events: Iterable[Event | None]) -> list[Any]:
    """Messages with their whole text and everything else in its order; tools with their newest
    title and content; the usage; the list of tasks, and those that were emptied.
    """
    shown: list[Any] = []
    tools: dict[str, dict[str, Any]] = {}
    usage: Usage | None = None
    plan: list[Plan] = []
    for event in _without_announcements(events):
        if isinstance(event, Text | Thinking):
            if shown and shown[-1][:2] == [type(event), event.message_id]:
                shown[-1] = [*shown[-1][:2], shown[-1][2] + event.text]
            else:
                shown.append([type(event), event.message_id, event.text])
        elif isinstance(event, Usage):
            usage = event
        elif isinstance(event, Plan):
            plan = [*plan[: -1 if plan and plan[-1].entries and event.entries else None], event]
        elif isinstance(event, ToolStarted):
            tools[event.tool_call_id] = {
                "status": "in_progress",
                "title": event.title,
                "content": event.content,
            }
            shown.append([event])
        elif isinstance(event, ToolProgressed | ToolEnded):
            tool = tools.setdefault(event.tool_call_id, {})
            tool["status"] = event.status if isinstance(event, ToolEnded) else "in_progress"
            tool["title"] = tool.get("title") if event.title is None else event.title
            allowed = isinstance(event, ToolProgressed) and event.allowed
            tool["content"] = event.content if allowed else event.content or tool.get("content")
        else:
            shown.append([event])
    return [shown, tools, usage, plan]


def _without_announcements(events: Iterable[Event | None]) -> list[Event | None]:
    """Without calls that are told whole later."""
    kept: list[Event | None] = []
    told: set[str] = set()
    for event in reversed(list(events)):
        if isinstance(event, ToolStarted):
            if event.pending and event.tool_call_id in told:
                continue
            told.add(event.tool_call_id)
        kept.append(event)
    return kept[::-1]


def told(updates: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """ACP updates without their places, the chunks of one message as one, and without states that a
    replay has only once: what was live and a replay are equal so. Of lists of tasks the last one is
    left.
    """
    joined: list[dict[str, Any]] = []
    known = list(updates)
    plans = [one for one in known if one["sessionUpdate"] == "plan"]
    for update in known:
        if any(update is one for one in plans[:-1]):
            continue
        progress = update["sessionUpdate"] == "tool_call_update" and (
            update.get("status") == "in_progress"
        )
        if progress or update["sessionUpdate"] == "usage_update":
            continue
        one = {
            **update,
            "_meta": {
                key: value for key, value in update["_meta"].items() if key != "pykoclaw.dev/seq"
            },
        }
        last = joined[-1] if joined else {}
        same = all(last.get(key) == one.get(key) for key in ("sessionUpdate", "messageId"))
        if same and one["sessionUpdate"] in ("agent_message_chunk", "agent_thought_chunk"):
            joined[-1] = {
                **last,
                "content": {
                    "type": "text",
                    "text": last["content"]["text"] + one["content"]["text"],
                },
            }
        else:
            joined.append(one)
    return joined


def is_part(part: Sequence[dict[str, Any]], whole: Sequence[dict[str, Any]]) -> bool:
    """Whether what was told in `part` is in `whole`, in order; messages may go on there, or have
    begun before.
    """
    rest = iter(whole)
    return all(any(_within(one, other) for other in rest) for one in part)


def _within(one: dict[str, Any], other: dict[str, Any]) -> bool:
    if one["sessionUpdate"] not in ("agent_message_chunk", "agent_thought_chunk"):
        return one == other
    return {**one, "content": None} == {**other, "content": None} and one["content"][
        "text"
    ] in other["content"]["text"]
