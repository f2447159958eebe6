"""Sessions in which an agent shows all that it can be brought to do, for the rules about every
recording.
"""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from tests.conformance import scripts
from tests.conformance.agents import Agent, Chat
from tests.conformance.peer import CANCELLED, Peer, choosing
from tests.conformance.recording import granted
from tests.conformance.registry import Unsupported, Violation

Part = Callable[[Agent, Peer, Chat], Awaitable[None]]

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
    with contextlib.suppress(Violation):
        async with agent.client() as peer:
            await _visit(agent, peer, (_answers, _decides, _selects, _stops, _returns))
    with contextlib.suppress(Violation):
        async with agent.fresh(**RICH) as peer:
            await _visit(agent, peer, (_answers, _returns))


async def _visit(agent: Agent, peer: Peer, parts: Iterable[Part]) -> None:
    chat = await agent.chat(peer)
    for part in parts:
        with contextlib.suppress(Violation, Unsupported):
            await part(agent, peer, chat)
    peer.permit = choosing("allow_once")
    with contextlib.suppress(Violation):
        await peer.fence()


async def _answers(agent: Agent, peer: Peer, chat: Chat) -> None:
    if not agent.scripted:
        await peer.prompt(chat.session, "Say hello, then list the files here.")
        return
    todo = '{"todos": [{"content": "one", "status": "pending", "activeForm": "Doing one"}]}'
    words = ("thinking Let me think.", "text I look.", "write made.txt <<< one\\n", "read made.txt")
    ends = ("edit made.txt <<< one => two", "bash ls", f"tool TodoWrite {todo}", "text Seen.")
    await peer.prompt(chat.session, agent.script(*words, *ends))


async def _decides(agent: Agent, peer: Peer, chat: Chat) -> None:
    peer.permit = choosing("reject_once")
    await peer.prompt(chat.session, agent.script("write refused.txt <<< x", "text Refused."))
    peer.permit = lambda _: CANCELLED
    await peer.prompt(chat.session, agent.script("write cancelled.txt <<< x", "text Cancelled."))


async def _selects(agent: Agent, peer: Peer, chat: Chat) -> None:
    if modes := chat.made.get("modes"):
        for mode in [*(one["id"] for one in modes["availableModes"]), modes["currentModeId"]]:
            await peer.ask("session/set_mode", sessionId=chat.session, modeId=mode)
    for option in chat.made.get("configOptions") or []:
        value = option["currentValue"]
        kind = {"type": "boolean"} if isinstance(value, bool) else {}
        params = {"sessionId": chat.session, "configId": option["id"], "value": value, **kind}
        await peer.ask("session/set_config_option", **params)


async def _stops(agent: Agent, peer: Peer, chat: Chat) -> None:
    since = peer.seen()
    running = peer.begin_prompt(chat.session, agent.script(scripts.LONG))
    await peer.until(lambda: "w2" in peer.said(chat.session, since=since), "the running answer")
    peer.notify("session/cancel", sessionId=chat.session)
    await peer.answer(running)


async def _returns(agent: Agent, peer: Peer, chat: Chat) -> None:
    offered = peer.recording.agent.get("agentCapabilities")
    for capability, method, params in (
        ("sessionCapabilities.list", "session/list", {}),
        ("loadSession", "session/load", chat.again),
        ("sessionCapabilities.close", "session/close", {"sessionId": chat.session}),
        ("sessionCapabilities.resume", "session/resume", chat.again),
    ):
        if granted(offered, capability):
            await peer.ask(method, **params)
    await peer.ask("_conformance/unknown")
