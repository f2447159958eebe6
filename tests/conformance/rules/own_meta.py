"""Keys of `_meta` that are pykoclaw-acp's own, as docs/protocol.md has them: other agents are not held
to them.
"""

from __future__ import annotations

import json
import uuid
from typing import Any, Final

from tests.conformance.agents import WORD, Agent
from tests.conformance.peer import Frame, Peer
from tests.conformance.recording import Recording
from tests.conformance.registry import check, must, unsupported

KEY: Final = "pykoclaw.dev/{}"
SEQ: Final = KEY.format("seq")
OURS: Final = ("pykoclaw-acp", "fake")
# A value that each key of what opens a session refuses.
WRONG: Final[dict[str, Any]] = {
    "systemPrompt": 1,
    "tools": "Bash",
    "allowedTools": {"Bash": True},
    "disallowedTools": 1,
    "maxTurns": 0,
    "settingSources": ["elsewhere"],
    "env": {"ANTHROPIC_API_KEY": "x"},
    "mode": "none",
    "model": [],
    "effort": "none",
    "fast": "maybe",
    "sessionId": "no UUID",
    "awayPolicy": "none",
    "account": 1,
    "steering": "none",
    "unheardOf": True,
}


def own(**values: Any) -> Frame:
    """`_meta` with these keys of ours."""
    return {KEY.format(name): value for name, value in values.items()}


def needs_keys(peer: Peer) -> None:
    """Leave the rule out for agents of others."""
    needs_keys_of(peer.recording)


def needs_keys_of(recording: Recording) -> None:
    """As `needs_keys`."""
    info = recording.agent.get("agentInfo") or {}
    if info.get("name") not in OURS:
        unsupported("the agent has no keys `pykoclaw.dev/…` in `_meta`")


def positions(updates: list[Frame]) -> list[int]:
    """Positions of updates; those that are not in the log have none."""
    return [one["_meta"][SEQ] for one in updates if SEQ in (one.get("_meta") or {})]


@must
async def updates_have_growing_positions(agent: Agent) -> None:
    """Every update of the log has `pykoclaw.dev/seq`, from 1 on, and each a greater one."""
    told = await agent.told()
    async with agent.client() as peer:
        needs_keys(peer)
        since = peer.seen()
        await peer.call("session/load", sessionId=told.session, cwd=str(told.cwd), mcpServers=[])
        found = positions(peer.updates(told.session, since=since))
        check(found and found[0] == 1, f"positions: {found}")
        check(found == sorted(set(found)), f"positions do not grow: {found}")


@must
async def a_resume_goes_on_after_a_position(agent: Agent) -> None:
    """With `pykoclaw.dev/after` a resume is followed by what comes after it; a position beyond the
    end is -32602 with `data.lastSeq`.
    """
    told = await agent.told()
    again = {"sessionId": told.session, "cwd": str(told.cwd), "mcpServers": []}
    async with agent.client() as peer:
        needs_keys(peer)
        since = peer.seen()
        await peer.call("session/load", **again)
        everything = positions(peer.updates(told.session, since=since))
        since = peer.seen()
        place, last = everything[len(everything) // 2], everything[-1]
        await peer.call("session/resume", _meta=own(after=place), **again)
        await peer.until(
            lambda: last in positions(peer.updates(told.session, since=since)), "the last update"
        )
        found = positions(peer.updates(told.session, since=since))
        check(found == [one for one in everything if one > place], f"after {place}: {found}")
        error = await peer.refused("session/resume", _meta=own(after=last + 1000), **again)
        check(error["code"] == -32602, f"not -32602: {error}")
        check((error.get("data") or {}).get("lastSeq") == last, f"no lastSeq: {error}")


@must
async def a_load_of_the_newest_turns_has_no_others(agent: Agent) -> None:
    """With `pykoclaw.dev/replay` a load has the newest turns only, and its response says where they
    begin and how many are left out; another value is -32602.
    """
    told = await agent.told()
    again = {"sessionId": told.session, "cwd": str(told.cwd), "mcpServers": []}
    async with agent.client() as peer:
        needs_keys(peer)
        since = peer.seen()
        made = await peer.call("session/load", _meta=own(replay={"last": 1}), **again)
        place = (made.get("_meta") or {}).get(KEY.format("replay")) or {}
        check(place.get("turnsLeftOut", 0) > 0, f"no turn is left out: {place}")
        said = peer.said(told.session, "user_message_chunk", since=since)
        check(WORD not in said, f"the first turn is there: {said}")
        found = positions(peer.updates(told.session, "user_message_chunk", since=since))
        check(found and found[0] > place.get("after", 0), f"{found} after {place}")
        for value in ({"last": 0}, {"last": "1"}, 1):
            error = await peer.refused("session/load", _meta=own(replay=value), **again)
            check(error["code"] == -32602, f"{value} is not -32602: {error}")


@must
async def wrong_values_of_own_keys_are_refused(agent: Agent) -> None:
    """Each key of ours in `session/new` is checked: a value that it cannot have is -32602, as is a
    key that there is not.
    """
    async with agent.client() as peer:
        needs_keys(peer)
        cwd = str(agent.directory())
        for name, value in WRONG.items():
            error = await peer.refused(
                "session/new", cwd=cwd, mcpServers=[], _meta=own(**{name: value})
            )
            check(error["code"] == -32602, f"{name} is not -32602: {error}")


@must
async def a_session_can_be_given_its_id(agent: Agent) -> None:
    """`pykoclaw.dev/sessionId` is the id of the new session; once."""
    async with agent.client() as peer:
        needs_keys(peer)
        wanted = str(uuid.uuid4())
        session, cwd = await agent.session(peer, _meta=own(sessionId=wanted))
        check(session == wanted, f"{session} instead of {wanted}")
        again = {"cwd": str(cwd), "mcpServers": [], "_meta": own(sessionId=wanted)}
        error = await peer.refused("session/new", **again)
        check(error["code"] == -32602, f"not -32602: {error}")


@must
async def prompts_with_one_key_are_one_prompt(agent: Agent) -> None:
    """Prompts with the same `pykoclaw.dev/idempotencyKey` run once; with another text it is -32602."""
    async with agent.client() as peer:
        needs_keys(peer)
        chat = await agent.chat(peer)
        since = peer.seen()
        params: Frame = {
            "sessionId": chat.session,
            "prompt": [{"type": "text", "text": agent.text("Once only.")}],
            "_meta": own(idempotencyKey=str(uuid.uuid4())),
        }
        for _ in range(2):
            await peer.call("session/prompt", **params)
        said = peer.said(chat.session, since=since)
        check(said.count("Once only.") == 1, f"not once: {said}")
        other = [{"type": "text", "text": "Something else."}]
        error = await peer.refused("session/prompt", **{**params, "prompt": other})
        check(error["code"] == -32602, f"not -32602: {error}")


@must
async def steering_without_a_turn_begins_one(agent: Agent) -> None:
    """The response to a prompt with `pykoclaw.dev/steering` says what became of it."""
    async with agent.client() as peer:
        needs_keys(peer)
        chat = await agent.chat(peer)
        blocks = [{"type": "text", "text": agent.text("Alone.")}]
        made = await peer.call(
            "session/prompt", sessionId=chat.session, prompt=blocks, _meta=own(steering="steer")
        )
        told = (made.get("_meta") or {}).get(KEY.format("steering"))
        check(told == "startedNewTurn", f"it says {told}")


@must
async def a_response_waits_for_a_report_on_a_subagent(agent: Agent) -> None:
    """With `pykoclaw.dev/whole` a prompt is answered after what Claude says when a subagent has
    ended; a value that is neither true nor false is -32602.
    """
    async with agent.client() as peer:
        needs_keys(peer)
        chat = await agent.chat(peer)
        since = peer.seen()
        given = {"description": "look", "prompt": agent.text("Eight.")}
        begun = (f"tool Agent {json.dumps(given)}", "text It looks.", "stop end_turn")
        params: Frame = {
            "sessionId": chat.session,
            "prompt": [{"type": "text", "text": agent.script(*begun, "text It has looked.")}],
        }
        await peer.call("session/prompt", **params, _meta=own(whole=True))
        said = peer.said(chat.session, since=since)
        check("It has looked." in said, f"the report is missing: {said}")
        error = await peer.refused("session/prompt", **params, _meta=own(whole="yes"))
        check(error["code"] == -32602, f"not -32602: {error}")


@must
async def too_many_requests_are_a_stop_reason(agent: Agent) -> None:
    """A turn that reaches `pykoclaw.dev/maxTurns` is answered with `max_turn_requests`. ACP has the
    stop reason, but no way to set the bound.
    """
    async with agent.client() as peer:
        needs_keys(peer)
        session, cwd = await agent.session(peer, _meta=own(maxTurns=1))
        script = agent.script("write one.txt <<< x", "write two.txt <<< x", "text Over.")
        reason = await peer.prompt(session, script)
        check(reason == "max_turn_requests", f"the stop reason is {reason}")
        check((cwd / "one.txt").exists(), "the first request was not carried out")
        check(not (cwd / "two.txt").exists(), "a second request was made")
