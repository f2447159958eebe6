"""Sessions in which an agent shows all that it can be brought to do, for the rules about every
recording.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

from tests.conformance import scripts
from tests.conformance.agents import Agent
from tests.conformance.peer import CANCELLED, Peer, choosing
from tests.conformance.recording import granted
from tests.conformance.registry import Unsupported, Violation

# Everything that gates something.
RICH: dict[str, Any] = {
    "fs": {"readTextFile": True, "writeTextFile": True},
    "terminal": True,
    "session": {"configOptions": {"boolean": {}}, "notices": {}, "compaction": {}},
    "auth": {"terminal": True},
    "elicitation": {"form": {}, "url": {}},
    "plan": {},
    "subagents": {},
}


async def drive(agent: Agent) -> None:
    """A client with nothing to offer, and one with everything. What an agent refuses is left out
    here: the rule about it says so.
    """
    every = (_answers, _decides, _selects, _stops, _returns)
    for capabilities, parts in (({}, every), (RICH, (_answers, _returns))):
        async with agent.fresh(**capabilities) as peer:
            session, cwd = await agent.session(peer)
            for part in parts:
                with contextlib.suppress(Violation, Unsupported):
                    await part(agent, peer, session, cwd)
            peer.permit = choosing("allow_once")
            with contextlib.suppress(Violation):
                await peer.fence()


async def _answers(agent: Agent, peer: Peer, session: str, cwd: Path) -> None:
    if not agent.scripted:
        await peer.prompt(session, "Say hello, then list the files here.")
        return
    todo = '{"todos": [{"content": "one", "status": "pending", "activeForm": "Doing one"}]}'
    words = ("thinking Let me think.", "text I look.", "write made.txt <<< one\\n", "read made.txt")
    ends = ("edit made.txt <<< one => two", "bash ls", f"tool TodoWrite {todo}", "text Seen.")
    await peer.prompt(session, agent.script(*words, *ends))


async def _decides(agent: Agent, peer: Peer, session: str, cwd: Path) -> None:
    peer.permit = choosing("reject_once")
    await peer.prompt(session, agent.script("write refused.txt <<< x", "text Refused."))
    peer.permit = lambda _: CANCELLED
    await peer.prompt(session, agent.script("write cancelled.txt <<< x", "text Cancelled."))


async def _selects(agent: Agent, peer: Peer, session: str, cwd: Path) -> None:
    for request, made in peer.recording.results("session/new"):
        assert request
        for mode in (made.get("modes") or {}).get("availableModes", []):
            await peer.ask("session/set_mode", sessionId=session, modeId=mode["id"])
        if made.get("modes"):
            first = made["modes"]["currentModeId"]
            await peer.ask("session/set_mode", sessionId=session, modeId=first)
        for option in made.get("configOptions") or []:
            value = option["currentValue"]
            kind = {"type": "boolean"} if isinstance(value, bool) else {}
            await peer.ask(
                "session/set_config_option",
                **{"sessionId": session, "configId": option["id"], "value": value, **kind},
            )


async def _stops(agent: Agent, peer: Peer, session: str, cwd: Path) -> None:
    since = peer.seen()
    running = peer.begin_prompt(session, agent.script(scripts.LONG))
    await peer.until(lambda: "w2" in peer.said(session, since=since), "the running answer")
    peer.notify("session/cancel", sessionId=session)
    await peer.answer(running)


async def _returns(agent: Agent, peer: Peer, session: str, cwd: Path) -> None:
    offered = peer.recording.agent.get("agentCapabilities")
    known = {"sessionId": session, "cwd": str(cwd), "mcpServers": []}
    for capability, method, params in (
        ("sessionCapabilities.list", "session/list", {}),
        ("loadSession", "session/load", known),
        ("sessionCapabilities.close", "session/close", {"sessionId": session}),
        ("sessionCapabilities.resume", "session/resume", known),
    ):
        if granted(offered, capability):
            await peer.ask(method, **params)
    await peer.ask("_conformance/unknown")
