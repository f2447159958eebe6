"""`initialize`, authentication, and what is offered."""

from __future__ import annotations

from typing import Any

from tests.conformance.agents import Agent
from tests.conformance.peer import Peer
from tests.conformance.recording import Recording
from tests.conformance.registry import alone, check, must, must_always, should_always, unsupported


@must_always
def a_supported_version_is_answered_with_itself(recording: Recording) -> None:
    """To `protocolVersion` 1 the agent answers 1."""
    for request, result in recording.results("initialize"):
        if request["params"].get("protocolVersion") == 1:
            version = result.get("protocolVersion")
            check(version == 1 and version is not True, f"the answer to version 1 is {version!r}")


@must
@alone
async def an_unknown_version_is_answered_with_an_own_one(agent: Agent) -> None:
    """A version that the agent does not know is neither repeated nor refused."""
    async with agent.raw() as peer:
        for asked in (0, 999, 65535):
            version = (await peer.initialize(protocolVersion=asked)).get("protocolVersion")
            check(version in {1, 2}, f"version {asked} is answered with {version!r}")


@must
@alone
async def a_later_client_is_understood(agent: Agent) -> None:
    """`initialize` of protocol version 2, with its fields, succeeds."""
    async with agent.raw() as peer:
        answer = await peer.call(
            "initialize",
            protocolVersion=2,
            info={"name": "later", "version": "1"},
            capabilities={"elicitation": {"form": {}}},
        )
        version = answer.get("protocolVersion")
        check(version in {1, 2}, f"version 2 is answered with {version!r}")


@should_always
def the_agent_says_who_it_is(recording: Recording) -> None:
    """`agentInfo` has name and version."""
    for _, result in recording.results("initialize"):
        info = result.get("agentInfo")
        known = isinstance(info, dict) and info.get("name") and info.get("version")
        check(known, f"agentInfo is {info!r}")


@must
async def initialize_may_be_repeated(agent: Agent) -> None:
    """A second `initialize` succeeds."""
    async with agent.client() as peer:
        await peer.initialize()


@must
@alone
async def malformed_capabilities_fall_back(agent: Agent) -> None:
    """Fields of `clientCapabilities` and `clientInfo` that are malformed count as absent."""
    wrong: tuple[dict[str, Any], ...] = (
        {"clientCapabilities": {"fs": "yes", "terminal": 5, "session": [1]}, "clientInfo": 7},
        {"clientCapabilities": None, "clientInfo": None},
        {"clientCapabilities": "all", "clientInfo": {"name": 1, "version": None}},
    )
    async with agent.raw() as peer:
        for params in wrong:
            await peer.initialize(**params)


@must
@alone
async def a_malformed_version_is_invalid(agent: Agent) -> None:
    """`initialize` with a `protocolVersion` that is no version is answered with -32602."""
    async with agent.raw() as peer:
        for version in ("one", -1, [1]):
            error = await peer.refused("initialize", protocolVersion=version)
            check(error["code"] == -32602, f"version {version!r} is answered with {error}")


def _methods(peer: Peer) -> list[dict[str, Any]]:
    return peer.recording.agent.get("authMethods") or []


@must_always
def terminal_logins_only_where_there_is_a_terminal(recording: Recording) -> None:
    """A login of the type `terminal` is offered only to a client with `auth.terminal`."""
    for request, result in recording.results("initialize"):
        asked = request["params"].get("clientCapabilities")
        capable = isinstance(asked, dict) and (asked.get("auth") or {}).get("terminal") is True
        offered = [one for one in result.get("authMethods") or [] if one.get("type") == "terminal"]
        check(capable or not offered, f"offered to a client without auth.terminal: {offered}")


@must
async def no_login_is_demanded_where_none_is_offered(agent: Agent) -> None:
    """With empty `authMethods`, `session/new` is not answered with -32000."""
    async with agent.client() as peer:
        if _methods(peer):
            unsupported("the agent has authentication methods")
        answer = await peer.ask("session/new", cwd=str(agent.directory()), mcpServers=[])
        error = answer.get("error") or {}
        check(error.get("code") != -32000, f"a login is demanded, and none offered: {error}")


async def _log_in(agent: Agent, peer: Peer) -> None:
    if not _methods(peer):
        unsupported("the agent has no authentication methods")
    if agent.login is None:
        unsupported("logging in may need a person; name a method that does not with --agent-login")
    await peer.call("authenticate", methodId=agent.login)


@must
async def a_login_opens_the_agent(agent: Agent) -> None:
    """After `authenticate`, `session/new` is not answered with -32000."""
    async with agent.client() as peer:
        await _log_in(agent, peer)
        await agent.session(peer)


@must
async def an_unknown_login_is_invalid(agent: Agent) -> None:
    """`authenticate` with a method that was not offered is an error."""
    async with agent.client() as peer:
        if not _methods(peer):
            unsupported("the agent has no authentication methods")
        await peer.refused("authenticate", methodId="no-such-method")


@must
async def a_logout_closes_the_agent(agent: Agent) -> None:
    """After `logout`, new sessions need a login again."""
    async with agent.client() as peer:
        peer.needs("auth.logout")
        await _log_in(agent, peer)
        await peer.call("logout")
        error = await peer.refused("session/new", cwd=str(agent.directory()), mcpServers=[])
        check(error["code"] == -32000, f"not -32000: {error}")
        await peer.call("authenticate", methodId=agent.login)


@must
async def the_state_of_the_login_is_told_to_everybody(agent: Agent) -> None:
    """`auth/status` succeeds whether somebody has logged in or not."""
    async with agent.client() as peer:
        peer.needs("auth.status")
        state = (await peer.call("auth/status")).get("state")
        check(isinstance(state, str) and state, f"the state is {state!r}")


@must
async def providers_are_listed_and_guarded(agent: Agent) -> None:
    """`providers/list` names them; disabling an unknown one succeeds, a required one is -32602."""
    async with agent.client() as peer:
        peer.needs("providers")
        for one in (await peer.call("providers/list"))["providers"]:
            if one["required"]:
                error = await peer.refused("providers/disable", providerId=one["providerId"])
                check(error["code"] == -32602, f"not -32602: {error}")
        await peer.call("providers/disable", providerId="no-such-provider")
