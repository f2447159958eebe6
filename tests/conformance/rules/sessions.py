"""Making sessions, opening them again, and ending them."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from uuid import uuid4

from tests.conformance import scripts
from tests.conformance.agents import WORD, Agent, Chat
from tests.conformance.peer import Frame, Peer, result_of
from tests.conformance.recording import Recording
from tests.conformance.registry import alone, check, must, must_always, should

HISTORY = {"user_message_chunk", "agent_message_chunk", "agent_thought_chunk", "tool_call", "plan"}


def _opening(session: str, cwd: Path) -> Frame:
    return {"sessionId": session, "cwd": str(cwd), "mcpServers": []}


# --- session/new


@must
async def session_ids_are_unique(agent: Agent) -> None:
    """Each new session has an id of its own that is not empty."""
    async with agent.client() as peer:
        made = [(await agent.session(peer))[0] for _ in range(3)]
        check(all(made) and len(set(made)) == 3, f"ids of three new sessions: {made}")


@must
async def a_session_works_in_its_directory(agent: Agent) -> None:
    """Relative paths of tools are those of the session's `cwd`, wherever the agent was started."""
    async with agent.client() as peer:
        chat = await agent.chat(peer)
        await peer.prompt(chat.session, agent.script("write here.txt <<< x", "text Done."))
        check((chat.cwd / "here.txt").exists(), "a file with a relative path is not below cwd")


@must
async def relative_directories_are_invalid(agent: Agent) -> None:
    """`session/new` with a relative `cwd` is answered with -32602."""
    async with agent.client() as peer:
        error = await peer.refused("session/new", cwd="relative/path", mcpServers=[])
        check(error["code"] == -32602, f"not -32602: {error}")


@must
async def required_parameters_are_demanded(agent: Agent) -> None:
    """`session/new` without `cwd` or `mcpServers`, or with another kind of value, is -32602."""
    async with agent.client() as peer:
        cwd = str(agent.directory())
        wrong: tuple[Frame, ...] = (
            {"mcpServers": []},
            {"cwd": cwd},
            {"cwd": [cwd], "mcpServers": []},
            {"cwd": cwd, "mcpServers": "none"},
        )
        for params in wrong:
            error = await peer.refused("session/new", **params)
            check(error["code"] == -32602, f"{params} is answered with {error}")


@must
async def malformed_mcp_servers_are_invalid(agent: Agent) -> None:
    """A malformed entry of `mcpServers` is answered with -32602, and not left out."""
    async with agent.client() as peer:
        cwd = str(agent.directory())
        for server in ({"name": "a"}, "a", {"name": "a", "command": 7, "args": [], "env": []}):
            error = await peer.refused("session/new", cwd=cwd, mcpServers=[server])
            check(error["code"] == -32602, f"{server} is answered with {error}")


# A stdio server of MCP that leaves a mark where it was told to.
MCP_SERVER = """
import json, os, sys
open(os.environ["CONFORMANCE_MARK"], "w").close()
for line in sys.stdin:
    asked = json.loads(line)
    if "id" not in asked:
        continue
    result = {}
    if asked["method"] == "initialize":
        result = {"protocolVersion": asked["params"]["protocolVersion"], "capabilities": {"tools": {}},
                  "serverInfo": {"name": "mark", "version": "1"}}
    elif asked["method"] == "tools/list":
        result = {"tools": []}
    print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": result}), flush=True)
"""


@must
async def mcp_servers_on_stdio_are_started(agent: Agent) -> None:
    """The agent starts a stdio MCP server of the session, with its arguments and environment."""
    async with agent.client() as peer:
        program = agent.directory() / "server.py"
        program.write_text(MCP_SERVER)
        mark = program.with_suffix(".started")
        environment = [{"name": "CONFORMANCE_MARK", "value": str(mark)}]
        server = {"name": "mark", "command": sys.executable, "args": [str(program)]}
        session, _ = await agent.session(peer, mcpServers=[{**server, "env": environment}])
        await peer.prompt(session, agent.text("Started."))
        await peer.prompt(session, agent.text("Surely."))
        check(mark.exists(), "the server was not started within two prompts")


@must
async def meta_is_no_parameter(agent: Agent) -> None:
    """What `_meta` contains does not take the place of a parameter."""
    async with agent.client() as peer:
        evil = {"cwd": "relative", "mcpServers": 7, "sessionId": "evil", "self": 1}
        session, _ = await agent.session(peer, _meta=evil)
        check(session != "evil", "the id of the session is that in _meta")
        session = (await agent.chat(peer)).session
        block = {"type": "text", "text": agent.text("Here.")}
        params = {"sessionId": session, "prompt": [block], "_meta": {"sessionId": "evil"}}
        await peer.call("session/prompt", **params)


# --- unknown sessions


@must
async def a_prompt_for_an_unknown_session_is_not_found(agent: Agent) -> None:
    """`session/prompt` with an unknown session is answered with -32002."""
    async with agent.client() as peer:
        block = {"type": "text", "text": "x"}
        error = await peer.refused("session/prompt", sessionId="no-such-session", prompt=[block])
        check(error["code"] == -32002, f"not -32002: {error}")


@must
async def loading_an_unknown_session_is_not_found(agent: Agent) -> None:
    """`session/load` of an unknown session is answered with -32002."""
    async with agent.client() as peer:
        peer.needs("loadSession")
        unknown = _opening("00000000-0000-4000-8000-000000000000", agent.directory())
        error = await peer.refused("session/load", **unknown)
        check(error["code"] == -32002, f"not -32002: {error}")


@must
async def resuming_an_unknown_session_is_not_found(agent: Agent) -> None:
    """`session/resume` of an unknown session is answered with -32002."""
    async with agent.client() as peer:
        peer.needs("sessionCapabilities.resume")
        unknown = _opening("00000000-0000-4000-8000-000000000000", agent.directory())
        error = await peer.refused("session/resume", **unknown)
        check(error["code"] == -32002, f"not -32002: {error}")


# --- session/load and session/resume


@must
async def a_session_is_not_loaded_in_another_directory(agent: Agent) -> None:
    """`session/load` with another `cwd` than that of the session is refused."""
    told = await agent.told()
    async with agent.client() as peer:
        peer.needs("loadSession")
        elsewhere = _opening(told.session, agent.directory())
        await peer.refused("session/load", **elsewhere)


@must
async def loading_replays_everything_before_the_answer(agent: Agent) -> None:
    """`session/load` sends the whole conversation as updates, in its order, and then answers."""
    told = await agent.told()
    live = _told(told.recording, told.session)
    async with agent.client() as peer:
        peer.needs("loadSession")
        since = peer.seen()
        await peer.call("session/load", **_opening(told.session, told.cwd))
        replayed = _told(peer.recording.until_answered("session/load", since), told.session)
        kinds = [kind for kind, _ in replayed if kind != "user_message_chunk"]
        shown = [kind for kind, _ in live if kind != "user_message_chunk"]
        check(  # another rule may have gone on with the session
            kinds[: len(shown)] == shown,
            f"what was shown: {live}; what the load replays: {replayed}",
        )
        said, words = _words(replayed), _words(live)
        check(said.startswith(words), f"the answers were {words!r}, the load says {said!r}")
        asked = "".join(text for kind, text in replayed if kind == "user_message_chunk")
        check(WORD in asked, f"the user's words are missing: {asked!r}")
        first = replayed[0][0] if replayed else None
        check(first == "user_message_chunk", f"the replay begins with {first}")
        await peer.fence()
        every = _told(peer.recording.later(since), told.session)
        check(every == replayed, f"replayed after the answer: {every[len(replayed) :]}")


def _told(recording: Recording, session: str) -> list[tuple[str, str]]:
    """Kind and text of the history's updates, the pieces of a message joined."""
    told: list[tuple[str, str]] = []
    for one, update in recording.updates(*HISTORY):
        kind = update["sessionUpdate"]
        if one != session or str(update.get("messageId")).endswith("-start-shown"):
            continue  # the latter tells of a busy machine
        if kind.endswith("_chunk"):
            words = update["content"].get("text", "")
            if told and told[-1][0] == kind:
                words = told.pop()[1] + words
            told.append((kind, words))
        else:
            told.append((kind, str(update.get("toolCallId"))))
    return told


def _words(told: list[tuple[str, str]]) -> str:
    return "".join(text for kind, text in told if kind == "agent_message_chunk")


async def _remembers(agent: Agent, peer: Peer) -> None:
    session, since = (await agent.told()).session, peer.seen()
    # Words of their own: an agent may take the same ones for a prompt that comes again
    await peer.prompt(session, f"{uuid4()} {agent.script('report')}")
    report = peer.said(session, since=since)
    check(WORD in report, f"the model gets no earlier words: {report[:1000]}")


@must
async def a_loaded_session_remembers(agent: Agent) -> None:
    """After `session/load` the model knows what was said."""
    told = await agent.told()
    async with agent.client() as peer:
        peer.needs("loadSession")
        await peer.call("session/load", **_opening(told.session, told.cwd))
        await _remembers(agent, peer)


@must
@alone
async def a_resumed_session_remembers(agent: Agent) -> None:
    """After `session/resume`, which replays nothing, the model knows what was said."""
    told = await agent.told()
    async with agent.fresh() as peer:
        peer.needs("sessionCapabilities.resume")
        await peer.call("session/resume", **_opening(told.session, told.cwd))
        await _remembers(agent, peer)


@must
async def resuming_replays_nothing(agent: Agent) -> None:
    """`session/resume` sends no history before its answer."""
    told = await agent.told()
    async with agent.client() as peer:
        peer.needs("sessionCapabilities.resume")
        since = peer.seen()
        await peer.call("session/resume", **_opening(told.session, told.cwd))
        replayed = _told(peer.recording.until_answered("session/resume", since), told.session)
        check(not replayed, f"replayed by a resume: {replayed}")


@must
@alone
async def a_session_without_prompts_can_be_resumed(agent: Agent) -> None:
    """`session/resume` works for a session that never had a prompt."""
    async with agent.client() as peer:
        peer.needs("sessionCapabilities.resume")
        session, cwd = await agent.session(peer)
    async with agent.fresh() as peer:
        await peer.call("session/resume", **_opening(session, cwd))


@must_always
def notices_are_not_replayed(recording: Recording) -> None:
    """A load repeats no `notice`."""
    loading: str | None = None
    for line in recording.lines:
        frame = line.frame or {}
        if not line.by_agent and frame.get("method") == "session/load":
            loading = json.dumps(frame["id"])
        elif line.by_agent and "method" not in frame and json.dumps(frame.get("id")) == loading:
            loading = None
        elif loading is not None and frame.get("method") == "session/update":
            kind = frame["params"]["update"]["sessionUpdate"]
            check(kind != "notice", f"a notice within a load: {frame}")


# --- session/close


@must
async def closing_cancels_what_runs(agent: Agent) -> None:
    """`session/close` ends a running prompt with the stop reason `cancelled`, then answers."""
    async with agent.client() as peer:
        peer.needs("sessionCapabilities.close")
        chat, since = await agent.chat(peer), peer.seen()
        running = peer.begin_prompt(chat.session, agent.script(scripts.LONG))
        await peer.until(lambda: "w2" in peer.said(chat.session, since=since), "the answer")
        closing = peer.begin("session/close", sessionId=chat.session)
        answer = await peer.answer(running, "the running prompt")
        reason = (answer.get("result") or {}).get("stopReason")
        check(reason == "cancelled", f"the running prompt is answered with {answer}")
        result_of(await peer.answer(closing, "session/close"), "session/close")
        await _open_again(peer, chat)


async def _open_again(peer: Peer, chat: Chat) -> None:
    offered = peer.recording.agent["agentCapabilities"]
    method = "session/load" if offered.get("loadSession") else "session/resume"
    await peer.call(method, **chat.again)


@should
async def a_closed_session_can_be_opened_again(agent: Agent) -> None:
    """After `session/close`, `session/load` or `session/resume` opens the session."""
    async with agent.client() as peer:
        peer.needs("sessionCapabilities.close")
        chat = await agent.chat(peer)
        if not peer.said(chat.session):
            await peer.prompt(chat.session, agent.text("Once."))
        await peer.call("session/close", sessionId=chat.session)
        await _open_again(peer, chat)
