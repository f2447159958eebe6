"""What a person sees of a session, live and when it is opened again."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from tests.e2e.harness.client import Client
from tests.e2e.harness.stack import Stack
from tests.promises import ENDED

_STATES: Final = ("usage_update", "current_mode_update", "config_option_update")
_UNENDED: Final = f"SELECT 1 FROM acp_turns WHERE state NOT IN {ENDED}"
_PASSING: Final = ("available_commands_update", "user_message_chunk", *_STATES)


def seen(updates: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Messages whole, tool calls as they are in the end, and the last plan, in order.

    The user's own messages are left out, since their sender gets them in a replay only, and so are
    states that later ones replace.
    """
    shown: dict[str, dict[str, Any]] = {}
    for at, update in enumerate(updates):
        kind = update["sessionUpdate"]
        if kind in _PASSING:
            continue
        name = update.get("toolCallId") or update.get("messageId")
        key = f"tool {name}" if "toolCallId" in update else f"{kind} {name or at}"
        key = kind if kind in ("plan", "session_info_update") else key
        one = {name: value for name, value in update.items() if name != "_meta"}
        meta = {
            name: value
            for name, value in (update.get("_meta") or {}).items()
            if name != "pykoclaw.dev/seq"
        }
        if kind == "plan":
            shown.pop(key, None)
        known = shown.setdefault(key, {})
        if kind.endswith("_chunk") and known:
            known["content"] = {
                **known["content"],
                "text": known["content"]["text"] + one["content"]["text"],
            }
            continue
        first = known.get("sessionUpdate", kind)
        known.update({**one, "sessionUpdate": first})
        known["_meta"] = {**known.get("_meta", {}), **meta}
    return list(shown.values())


def states(updates: Iterable[dict[str, Any]], opened: dict[str, Any]) -> dict[str, Any]:
    """What is shown last of the usage, the mode and each config option; `opened`: with what the
    session was opened.
    """
    shown: dict[str, Any] = {"mode of the session": opened["modes"]["currentModeId"]}
    options = opened["configOptions"]
    for update in updates:
        kind = update["sessionUpdate"]
        if kind == "usage_update":
            shown |= {name: update[name] for name in ("used", "size", "cost") if name in update}
        elif kind == "current_mode_update":
            shown["mode of the session"] = update["currentModeId"]
        elif kind == "config_option_update":
            options = update["configOptions"]
    return shown | {f"option {one['id']}": one["currentValue"] for one in options}


def prompted(client: Client, session: str) -> list[str]:
    """The prompts that the client has sent to the session."""
    sent = [one["params"] for one in client.sent if one.get("method") == "session/prompt"]
    return [
        "".join(block["text"] for block in one["prompt"])
        for one in sent
        if one["sessionId"] == session
    ]


def opening(client: Client, session: str) -> dict[str, Any]:
    """The answer with which the session was made."""
    answers = [one.get("result") or {} for one in client.received]
    return next(one for one in answers if one.get("sessionId") == session)


async def seen_again(stack: Stack, client: Client, session: str, **params: Any) -> Client:
    """The client of a new daemon that has loaded the session: it must see what was seen live.

    Waits for the end of each turn, those that Claude has begun too. `client` is closed, and its
    daemon, which is its own child, ends with it. `params`: of `initialize`.
    """
    await client.until(lambda: not stack.rows(_UNENDED))
    last = stack.log(session)[-1]["seq"]
    await client.until(lambda: client.of(session)[-1]["_meta"]["pykoclaw.dev/seq"] >= last)
    live = seen(client.of(session))
    passed = states(client.of(session), opening(client, session))
    await client.close()
    again = await stack.spawn()
    await again.initialize(**params)
    opened = await again.load(session, stack.work)
    assert seen(again.of(session)) == live
    now = states(again.of(session), opened)
    assert {name: now.get(name) for name in passed} == passed
    _words_of_users_again(client, again, session)
    return again


def _words_of_users_again(client: Client, again: Client, session: str) -> None:
    """The replay has what the client has prompted, and what it was told that others have. One that
    has loaded the session was told its own prompts, too.
    """
    told, replayed = _users(client, session), _users(again, session)
    sent = prompted(client, session)
    assert told.items() <= replayed.items()
    others = {name for name, words in told.items() if words not in sent}
    own = [words for name, words in replayed.items() if name not in others]
    assert "".join(own) == "".join(sent)


def _users(client: Client, session: str) -> dict[str, str]:
    """Messages of users that the client was told, by their ids."""
    told: dict[str, str] = {}
    for one in client.of(session, "user_message_chunk"):
        told[one["messageId"]] = told.get(one["messageId"], "") + one["content"].get("text", "")
    return told
