"""Prompts: what they may contain, how they end, and how they are cancelled."""

from __future__ import annotations

import asyncio
import base64
from typing import Any

from tests.conformance import scripts
from tests.conformance.agents import WORD, Agent
from tests.conformance.peer import Frame, Peer, choosing
from tests.conformance.recording import Recording, granted
from tests.conformance.registry import Violation, check, must, must_always, should, unsupported

TURN = {
    "agent_message_chunk",
    "agent_thought_chunk",
    "tool_call",
    "tool_call_update",
    "plan",
}
REFUSED = ("text I will not.", "stop refusal") * 4  # Claude has the model go on, some times


async def _running(agent: Agent, peer: Peer) -> tuple[str, asyncio.Future[Frame]]:
    """A session in the middle of a long answer, and the future of the prompt's answer."""
    session = (await agent.chat(peer)).session
    since = peer.seen()
    running = peer.begin_prompt(session, agent.script(scripts.LONG))
    await peer.until(lambda: "w2" in peer.said(session, since=since), "the running answer")
    return session, running


async def _reason(peer: Peer, running: asyncio.Future[Frame]) -> Any:
    answer = await peer.answer(running, "the running prompt")
    check("error" not in answer, f"the prompt is answered with an error: {answer.get('error')}")
    return answer["result"].get("stopReason")


# --- contents


@must
async def text_is_accepted(agent: Agent) -> None:
    """A prompt of text blocks is answered with a stop reason, after the answer's text."""
    async with agent.client() as peer:
        session = (await agent.chat(peer)).session
        since = peer.seen()
        reason = await peer.prompt(session, "Please.", agent.text("Here it is."))
        check(reason == "end_turn", f"the stop reason is {reason}")
        said = peer.said(session, since=since)
        check("Here it is." in said, f"before the answer to the prompt came only {said!r}")


@must
async def links_are_accepted(agent: Agent) -> None:
    """`resource_link` in a prompt is accepted, whatever the agent advertises."""
    async with agent.client() as peer:
        session = (await agent.chat(peer)).session
        link = {"type": "resource_link", "uri": "file:///tmp/notes.md", "name": "notes.md"}
        full = {**link, "title": "Notes", "description": "x", "mimeType": "text/plain", "size": 3}
        reason = await peer.prompt(session, link, full, agent.text("Seen."))
        check(reason == "end_turn", f"the stop reason is {reason}")


DOT = base64.b64encode(
    bytes.fromhex(
        "89504e470d0a1a0a0000000d4948445200000001000000010802000000907753de"
        "0000000c49444154789c63f8cfc0000003010100c9fe92ef0000000049454e44ae426082"
    )
).decode()
OFFERED: dict[str, tuple[Frame, ...]] = {
    "image": ({"type": "image", "data": DOT, "mimeType": "image/png"},),
    "audio": ({"type": "audio", "data": "UklGRg==", "mimeType": "audio/wav"},),
    "embeddedContext": (
        {"type": "resource", "resource": {"uri": "file:///a.txt", "text": "The word is ananas."}},
        {"type": "resource", "resource": {"uri": "file:///b.bin", "blob": "AAAA"}},
    ),
}


@must
async def advertised_content_is_accepted(agent: Agent) -> None:
    """Images, audio and embedded resources are accepted as `promptCapabilities` says."""
    async with agent.client() as peer:
        offered = peer.recording.agent["agentCapabilities"].get("promptCapabilities") or {}
        wanted = [one for kind, blocks in OFFERED.items() if offered.get(kind) for one in blocks]
        if not wanted:
            unsupported("the agent advertises no content but text and links")
        session = (await agent.chat(peer)).session
        for block in wanted:
            reason = await peer.prompt(session, block, agent.text("Seen."))
            check(reason == "end_turn", f"{block['type']}: the stop reason is {reason}")


@must
async def malformed_content_is_invalid(agent: Agent) -> None:
    """A prompt with a malformed block is answered with -32602."""
    async with agent.client() as peer:
        session = (await agent.chat(peer)).session
        for block in ({"type": "text"}, {"type": "_dance", "text": "x"}, "text"):
            error = await peer.refused("session/prompt", sessionId=session, prompt=[block])
            check(error["code"] == -32602, f"{block} is answered with {error}")


@must
async def a_refusal_is_a_stop_reason(agent: Agent) -> None:
    """If the model refuses, the prompt is answered with `refusal`, not with an error."""
    async with agent.client() as peer:
        session = (await agent.chat(peer)).session
        reason = await peer.prompt(session, agent.script(*REFUSED))
        check(reason == "refusal", f"the stop reason is {reason}")


@must
async def a_refused_prompt_is_forgotten(agent: Agent) -> None:
    """A prompt that ended with `refusal`, and what came after it, is not in the next request to the
    model; what was said before is.
    """
    async with agent.client() as peer:
        session, _ = await agent.session(peer)
        await peer.prompt(session, "The first word is papaya.\n" + agent.text("Remembered."))
        await peer.prompt(session, f"The word is {WORD}.\n" + agent.script(*REFUSED))
        since = peer.seen()
        await peer.prompt(session, agent.script("report"))
        report = peer.said(session, since=since)
        check("papaya" in report, f"what was said before is missing: {report[:1000]}")
        check(WORD not in report, f"the refused prompt is there: {report[:1000]}")


@must
async def too_long_an_answer_is_a_stop_reason(agent: Agent) -> None:
    """If the answer reaches the model's limit, the prompt is answered with `max_tokens`."""
    async with agent.client() as peer:
        session = (await agent.chat(peer)).session
        steps = ("text Half of", "stop max_tokens") * 9  # Claude has the model go on, some times
        reason = await peer.prompt(session, agent.script(*steps))
        check(reason == "max_tokens", f"the stop reason is {reason}")


# --- the turn


@must_always
def updates_of_a_turn_precede_its_answer(recording: Recording) -> None:
    """The updates of a turn are sent before the answer to its prompt. What comes later belongs to
    the next one.
    """
    running: dict[str, int] = {}
    answered: set[str] = set()
    sessions: dict[str, str] = {}
    for line in recording.lines:
        frame = line.frame or {}
        params = frame.get("params")
        if not line.by_agent:
            if frame.get("method") == "session/prompt" and isinstance(params, dict):
                session = str(params.get("sessionId"))
                sessions[str(frame.get("id"))] = session
                running[session] = running.get(session, 0) + 1
            elif isinstance(params, dict) and "id" in frame:
                answered.discard(str(params.get("sessionId")))  # a load, for instance
        elif "method" not in frame and str(frame.get("id")) in sessions:
            session = sessions.pop(str(frame["id"]))
            running[session] -= 1
            answered.add(session)
        elif frame.get("method") == "session/update" and isinstance(params, dict):
            session, update = str(params.get("sessionId")), params.get("update") or {}
            late = session in answered and not running.get(session)
            words = (update.get("content") or {}) if update.get("sessionUpdate") in TURN else None
            if late and words is not None and update.get("sessionUpdate") != "tool_call_update":
                check(False, f"after the answer to the prompt: {frame}")


@must
async def a_prompt_is_pending_until_its_turn_is_over(agent: Agent) -> None:
    """While the model answers, updates come and the prompt is not answered."""
    async with agent.client() as peer:
        session = (await agent.chat(peer)).session
        since = peer.seen()
        running = peer.begin_prompt(session, agent.script("repeat 30x50ms w{n} ", "text Over."))
        await peer.until(lambda: "w2" in peer.said(session, since=since), "the running answer")
        check(not running.done(), "the prompt was answered before its turn was over")
        check(await _reason(peer, running) == "end_turn", "it does not end with end_turn")
        check("Over." in peer.said(session, since=since), "the answer came before the last text")


@must
async def a_second_prompt_does_no_harm(agent: Agent) -> None:
    """A prompt during a turn is answered, with a result or an error, and the first one gets its
    whole answer.
    """
    async with agent.client() as peer:
        session = (await agent.chat(peer)).session
        since = peer.seen()
        words = "".join(f"w{n} " for n in range(1, 21))
        running = peer.begin_prompt(session, agent.script("repeat 20x50ms w{n} "))
        await peer.until(lambda: "w2" in peer.said(session, since=since), "the running answer")
        second = peer.begin_prompt(session, agent.text("The second."))
        check(await _reason(peer, running) == "end_turn", "the first does not end with end_turn")
        await peer.answer(second, "the second prompt")
        said = peer.said(session, since=since)
        check(words.strip() in said, f"the first answer is not whole: {said!r}")


# --- session/cancel


@must
async def a_cancelled_prompt_is_answered_so(agent: Agent) -> None:
    """After `session/cancel` the prompt is answered with `cancelled`, and never with an error."""
    async with agent.client() as peer:
        session, running = await _running(agent, peer)
        peer.notify("session/cancel", sessionId=session)
        reason = await _reason(peer, running)
        check(reason == "cancelled", f"the stop reason is {reason}")


@must
async def a_cancelled_session_goes_on(agent: Agent) -> None:
    """After a cancelled turn the session takes prompts."""
    async with agent.client() as peer:
        session, running = await _running(agent, peer)
        peer.notify("session/cancel", sessionId=session)
        await _reason(peer, running)
        since = peer.seen()
        reason = await peer.prompt(session, agent.text("It goes on."))
        check(reason == "end_turn", f"the stop reason is {reason}")
        said = peer.said(session, since=since)
        check("It goes on." in said and "w9" not in said, f"the next answer is {said!r}")


@must
async def a_cancel_ends_what_waits_for_a_permission(agent: Agent) -> None:
    """`session/cancel` while a permission request is open: once the client has answered it with
    `cancelled`, the prompt is answered with `cancelled`, and the tool does not run.
    """
    async with agent.client() as peer:
        session, path = (await agent.chat(peer)).session, agent.directory() / "made.txt"
        peer.permit = lambda _: None
        running = peer.begin_prompt(session, agent.script(f"write {path} <<< x", "text Done."))
        question = await _asked(peer, running)
        peer.notify("session/cancel", sessionId=session)
        peer.reply(question, {"outcome": {"outcome": "cancelled"}})
        reason = await _reason(peer, running)
        check(reason == "cancelled", f"the stop reason is {reason}")
        check(not path.exists(), "the tool has run")
        peer.permit = choosing("allow_once")


async def _asked(peer: Peer, running: asyncio.Future[Frame]) -> Frame:
    """The permission request that the prompt leads to; the rule is left out if there is none."""

    def look() -> bool:
        return bool(peer.open_questions) or running.done()

    await peer.until(look, "a permission request")
    if not peer.open_questions:
        unsupported("the agent asks for no permission")
    return peer.open_questions[0]


@must
async def a_cancel_without_a_turn_is_ignored(agent: Agent) -> None:
    """`session/cancel` for an idle or unknown session says and breaks nothing."""
    async with agent.client() as peer:
        session = (await agent.chat(peer)).session
        peer.notify("session/cancel", sessionId=session)
        peer.notify("session/cancel", sessionId="no-such-session")
        await peer.fence()
        reason = await peer.prompt(session, agent.text("Not cancelled."))
        check(reason == "end_turn", f"the next prompt ends with {reason}")


# --- $/cancel_request


@must
async def a_cancelled_request_is_still_answered(agent: Agent) -> None:
    """`$/cancel_request` for a prompt, where it is supported: a result, or the error -32800."""
    async with agent.client() as peer:
        session, running = await _running(agent, peer)
        message_id = peer.last_id
        peer.notify("$/cancel_request", requestId=message_id)
        patience, peer.patience = peer.patience, peer.patience / 3
        try:
            answer = await peer.answer(running, "the cancelled prompt")
        except Violation:
            peer.patience = patience
            peer.notify("session/cancel", sessionId=session)
            await peer.answer(running, "the prompt")
            unsupported("the agent does not support $/cancel_request")
        finally:
            peer.patience = patience
        if "error" in answer:
            check(answer["error"]["code"] == -32800, f"not -32800: {answer['error']}")
        else:
            reason = answer["result"].get("stopReason")
            check(reason == "cancelled", f"the stop reason is {reason}")


@must
async def cancelling_an_unknown_request_is_ignored(agent: Agent) -> None:
    """`$/cancel_request` with an id that is not pending says and breaks nothing."""
    async with agent.client() as peer:
        since = peer.seen()
        peer.notify("$/cancel_request", requestId="never")
        peer.notify("$/cancel_request", requestId=1)
        await peer.fence()
        frames = [one.frame or {} for one in peer.recording.lines[since:] if one.by_agent]
        answers = [frame for frame in frames if "method" not in frame]
        check(len(answers) == 1, f"something was answered that must not be: {answers[:-1]}")


@should
async def what_an_agent_offers_it_keeps(agent: Agent) -> None:
    """Every session method that is advertised is known."""
    async with agent.client() as peer:
        offered = peer.recording.agent.get("agentCapabilities")
        for capability, method in METHODS.items():
            if granted(offered, capability):
                answer = await peer.ask(method)
                code = (answer.get("error") or {}).get("code")
                check(code != -32601, f"{capability} is advertised, but there is no {method}")


METHODS = {
    "loadSession": "session/load",
    "sessionCapabilities.archive": "session/archive",
    "sessionCapabilities.close": "session/close",
    "sessionCapabilities.delete": "session/delete",
    "sessionCapabilities.fork": "session/fork",
    "sessionCapabilities.list": "session/list",
    "sessionCapabilities.resume": "session/resume",
    "sessionCapabilities.status": "session/status",
    "sessionCapabilities.title": "session/set_title",
}
