"""The directories that a session has beside its own."""

from __future__ import annotations

from typing import Any

from tests.conformance.agents import Agent
from tests.conformance.peer import Peer
from tests.conformance.recording import granted
from tests.conformance.registry import check, must, unsupported
from tests.conformance.rules.catalogue import LIST, listed

MORE = "sessionCapabilities.additionalDirectories"
OPENING = {
    "session/load": "loadSession",
    "session/resume": "sessionCapabilities.resume",
    "session/fork": "sessionCapabilities.fork",
}


@must
async def malformed_directories_are_invalid(agent: Agent) -> None:
    """A malformed entry of `additionalDirectories` is answered with -32602."""
    async with agent.client() as peer:
        peer.needs(MORE)
        made: dict[str, Any] = {"cwd": str(agent.directory()), "mcpServers": []}
        for entry in (7, "relative/path"):
            error = await peer.refused("session/new", **made, additionalDirectories=[entry])
            check(error["code"] == -32602, f"{entry!r} is answered with {error}")


async def _reported(peer: Peer, session: str) -> list[str]:
    """The directories that a list says of a session."""
    found = {one["sessionId"]: one for one in await listed(peer)}
    check(session in found, f"{session} is not listed")
    return list(found[session].get("additionalDirectories") or [])


@must
async def directories_that_are_left_out_are_none(agent: Agent) -> None:
    """`additionalDirectories` is the whole list, in `session/new` and whatever opens a session again:
    omitted and empty mean none, whatever the session had before.
    """
    async with agent.client() as peer:
        peer.needs(MORE)
        peer.needs(LIST)
        more = [str(agent.directory())]
        session, cwd = await agent.session(peer, additionalDirectories=more)
        await peer.prompt(session, agent.text("With more."))
        if await _reported(peer, session) != more:
            unsupported("lists of the agent do not say which directories a session has")
        plain, _ = await agent.session(peer)
        await peer.prompt(plain, agent.text("Without."))
        check(await _reported(peer, plain) == [], "a new session has directories of another one")
        again = {"sessionId": session, "cwd": str(cwd), "mcpServers": []}
        offered = peer.recording.agent["agentCapabilities"]
        for method in (one for one, needed in OPENING.items() if granted(offered, needed)):
            for sent in (None, more, [], more):
                given = {} if sent is None else {"additionalDirectories": sent}
                opened = await peer.call(method, **again, **given)
                found = await _reported(peer, opened.get("sessionId", session))
                check(found == (sent or []), f"{method} with {given}: the session has {found}")
