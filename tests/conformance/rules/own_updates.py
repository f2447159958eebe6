"""Keys and notifications that are pykoclaw-acp's own, in what it says of turns and sessions, as
docs/protocol.md has them.
"""

from __future__ import annotations

import json
import uuid
from itertools import takewhile
from typing import Any, Final

from tests.conformance import scripts
from tests.conformance.agents import WORD, Agent, Chat
from tests.conformance.peer import Frame, Peer, choosing, result_of, selected
from tests.conformance.recording import Recording
from tests.conformance.registry import check, must, must_always, unsupported
from tests.conformance.rules.own_meta import KEY, needs_keys, needs_keys_of, own
from tests.waiting import eventually

LINE, OLD_LINE = KEY.format("line"), KEY.format("oldLine")
PARENT, NOTE = KEY.format("parentToolCallId"), KEY.format("note")
TRANSCRIPT, CHANNEL, ORIGIN = (KEY.format(one) for one in ("transcript", "channel", "origin"))
FORKED: Final = KEY.format("forkedFrom")
REASON: Final = "Use the other file."
EVENT, QUESTION, SETTLED = (f"_{KEY.format(one)}" for one in ("event", "question", "settled"))


def _meta(one: Frame) -> Frame:
    return one.get("_meta") or {}


def _said(updates: list[Frame], mark: str | None) -> str:
    """The text of the chunks with this note; None: of those without one."""
    found = [one for one in updates if _meta(one).get(NOTE) == mark]
    return "".join(one["content"].get("text", "") for one in found)


async def _loaded(peer: Peer, chat: Chat, *kinds: str) -> list[Frame]:
    since = peer.seen()
    await peer.call("session/load", **chat.again)
    return peer.updates(chat.session, *kinds, since=since)


@must
async def changes_of_files_say_at_which_line_they_are(agent: Agent) -> None:
    """A diff of an edited file has `pykoclaw.dev/line` and `pykoclaw.dev/oldLine`, from 1, and
    `locations` has the first changed line.
    """
    async with agent.client() as peer:
        needs_keys(peer)
        chat, since = await agent.chat(peer), peer.seen()
        words = ("write lines.txt <<< a\\nb\\nc\\n", "edit lines.txt <<< b => two", "text Changed.")
        await peer.prompt(chat.session, agent.script(*words))
        found = 0
        for update in peer.updates(chat.session, "tool_call_update", since=since):
            lines = {one.get("line") for one in update.get("locations") or []}
            for part in update.get("content") or []:
                is_change = part["type"] == "diff" and part.get("oldText")
                if update.get("status") != "completed" or not is_change:
                    continue
                places = [_meta(part).get(key) for key in (LINE, OLD_LINE)]
                check(
                    all(isinstance(one, int) and one > 0 for one in places), f"no lines: {update}"
                )
                old, new = (str(part[key]).splitlines() for key in ("oldText", "newText"))
                same = sum(
                    1
                    for _ in takewhile(lambda pair: pair[0] == pair[1], zip(old, new, strict=False))
                )
                changed = int(places[0] or 0) + same
                check(changed in lines, f"the first changed line is no location: {update}")
                found += 1
        check(found, "no diff of the edited file")


@must
async def calls_of_a_subagent_name_the_call_that_began_it(agent: Agent) -> None:
    """Tool calls of a subagent, and permission requests for them, have
    `pykoclaw.dev/parentToolCallId`: the id of the call that began it.
    """
    async with agent.client() as peer:
        needs_keys(peer)
        chat, since, asked = await agent.chat(peer), peer.seen(), len(peer.asked)
        inner = {
            "description": "look",
            "subagent_type": "claude",
            "run_in_background": False,
            "prompt": f"[[script write {uuid.uuid4()}.txt <<< x ;; text Inner.]]",
        }
        await peer.prompt(
            chat.session, agent.script(f"tool Agent {json.dumps(inner)}", "text Outer.")
        )
        calls = peer.updates(chat.session, "tool_call", since=since)
        begun = {one["toolCallId"] for one in calls if PARENT not in _meta(one)}
        parents = [_meta(one)[PARENT] for one in calls if PARENT in _meta(one)]
        check(parents and set(parents) <= begun, f"calls of {parents}; begun: {begun}")
        inside = {one["toolCallId"] for one in calls} - begun
        requests = [one["toolCall"] for one in peer.asked[asked:]]
        of_requests = [_meta(one).get(PARENT) for one in requests if one["toolCallId"] in inside]
        check(of_requests and set(of_requests) <= begun, f"permission requests: {of_requests}")


@must
async def words_that_are_not_claudes_are_marked(agent: Agent) -> None:
    """What the agent says of a turn has `pykoclaw.dev/note`: `failure` where it says why the turn
    failed, else `note`. What Claude says has none.
    """
    async with agent.client() as peer:
        needs_keys(peer)
        session, cwd = await agent.session(peer)
        chat = Chat(session, cwd, {})
        running = peer.begin_prompt(session, agent.script(scripts.LONG))
        await peer.until(lambda: "w2" in peer.said(session), "the running answer")
        peer.notify("session/cancel", sessionId=session)
        await peer.answer(running)
        prompt = [{"type": "text", "text": agent.script("error 400 Broken.")}]
        await peer.refused("session/prompt", sessionId=session, prompt=prompt)
        chunks = await _loaded(peer, chat, "agent_message_chunk")
        check("Cancelled." in _said(chunks, "note"), f"no note of the cancel: {chunks}")
        check("Broken." in _said(chunks, "failure"), f"no failure: {chunks}")
        words = _said(chunks, None)
        check("w2" in words and "Cancelled." not in words, f"Claude said: {words}")


@must
async def a_fork_ends_with_the_turn_of_its_message(agent: Agent) -> None:
    """With `pykoclaw.dev/messageId` a fork has nothing after the turn of that message; its response
    says in `pykoclaw.dev/forkedFrom` what it was made of. An unknown message is -32602.
    """
    told = await agent.told()
    source = Chat(told.session, told.cwd, {})
    async with agent.client() as peer:
        needs_keys(peer)
        messages = await _loaded(peer, source, "user_message_chunk")
        first = messages[0]["messageId"]
        last = max(_meta(one).get(KEY.format("seq"), 0) for one in messages)
        forked = await peer.call("session/fork", **source.again, _meta=own(messageId=first))
        point = _meta(forked).get(FORKED) or {}
        check(point.get("sessionId") == told.session, f"forked from {point}")
        check(point.get("runningTurnLeftOut") is False, f"no turn ran: {point}")
        check(0 < point.get("seq", 0) < last, f"up to {point}, the next turn is at {last}")
        copy = Chat(forked["sessionId"], told.cwd, {})
        words = await _loaded(peer, copy, "user_message_chunk")
        check({one["messageId"] for one in words} == {first}, f"it has {words}")
        check(WORD in str(words), f"the first turn is missing: {words}")
        for wrong in ("no-such-message", "", 7):
            again = {**source.again, "_meta": own(messageId=wrong)}
            error = await peer.refused("session/fork", **again)
            check(error["code"] == -32602, f"{wrong!r} is not -32602: {error}")


@must
async def the_reason_of_a_refusal_reaches_the_model(agent: Agent) -> None:
    """`pykoclaw.dev/reason` in the outcome of a permission request is told to the model."""
    async with agent.client() as peer:
        needs_keys(peer)
        chat, since = await agent.chat(peer), peer.seen()

        def refuse(params: Frame) -> Frame:
            option = next(one for one in params["options"] if one["kind"] == "reject_once")
            chosen = selected(option["optionId"])
            return {"outcome": {**chosen["outcome"], "_meta": own(reason=REASON)}}

        peer.permit = refuse
        await peer.prompt(chat.session, agent.script("write why.txt <<< x", "report"))
        check(REASON in peer.said(chat.session, since=since), "the model was not told why")
        check(not (chat.cwd / "why.txt").exists(), "the file was written")


@must
async def sessions_and_messages_of_others_say_whose_they_are(agent: Agent) -> None:
    """A listed session that only Claude knows has `pykoclaw.dev/transcript`, one of a channel
    `pykoclaw.dev/channel`. After a load of the first, its messages have `pykoclaw.dev/origin`.
    """
    async with agent.client() as peer:
        needs_keys(peer)
        session, _ = await agent.session(peer)
        await peer.prompt(session, agent.text("Of this client."))
        cwd, foreign = agent.directory(), str(uuid.uuid4())
        await agent.leave_transcript(foreign, cwd, "Of the terminal.")
        await agent.leave_conversation("wa-conformance", agent.directory())

        async def listed() -> dict[str, Frame]:
            every = {one["sessionId"]: one for one in await _sessions(peer)}
            channels = [_meta(one).get(CHANNEL) for one in every.values()]
            return every if foreign in every and "wa" in channels else {}

        try:
            found: dict[str, Frame] = await eventually(listed, peer.patience)
        except AssertionError:
            found = {}
        check(_meta(found.get(foreign, {})).get(TRANSCRIPT) is True, f"not marked: {found}")
        check(not {TRANSCRIPT, CHANNEL} & _meta(found[session]).keys(), f"marked: {found[session]}")
        updates = await _loaded(peer, Chat(foreign, cwd, {}), "user_message_chunk")
        origins = {_meta(one).get(ORIGIN) for one in updates}
        check(origins == {"terminal"}, f"origins: {origins}")
        own_words = await _loaded(
            peer, Chat(session, _cwd(found, session), {}), "user_message_chunk"
        )
        check(not any(ORIGIN in _meta(one) for one in own_words), f"an origin: {own_words}")


def _cwd(found: dict[str, Frame], session: str) -> Any:
    return found[session]["cwd"]


async def _sessions(peer: Peer) -> list[Frame]:
    found: list[Frame] = []
    page = await peer.call("session/list")
    while True:
        found += page["sessions"]
        if page.get("nextCursor") is None:
            return found
        page = await peer.call("session/list", cursor=page["nextCursor"])


@must_always
def pages_have_at_most_50_sessions(recording: Recording) -> None:
    """A page of `session/list` has at most 50 sessions. ACP has pages, but no bound of them."""
    needs_keys_of(recording)
    for _, result in recording.results("session/list"):
        found = len(result.get("sessions") or [])
        check(found <= 50, f"a page has {found} sessions")


@must
async def a_follower_is_told_what_is_said_and_asked(agent: Agent) -> None:
    """`_pykoclaw.dev/follow` sends the log as `_pykoclaw.dev/event`, with growing positions; `live`
    until the session is closed, and to somebody who is `present` also `_pykoclaw.dev/question` and
    `_pykoclaw.dev/settled`, under one id.
    """
    async with agent.client() as peer:
        needs_keys(peer)
        session, _ = await agent.session(peer)
        await peer.prompt(session, agent.text("Before."))
        answer = await peer.ask(f"_{KEY.format('follow')}", session=session)
        if (answer.get("error") or {}).get("code") == -32601:
            unsupported("the agent has no methods for commands, as with `serve --stdio`")
        done = result_of(answer, "follow")
        seqs = [one["seq"] for one in _told(peer, EVENT, session)]
        check(seqs and seqs[0] == 1 and seqs == sorted(set(seqs)), f"positions: {seqs}")
        check(done.get("seq") == seqs[-1], f"it ends at {done}, the last was {seqs[-1]}")
        present = {"session": session, "after": seqs[-1], "live": True, "present": True}
        live = peer.begin(f"_{KEY.format('follow')}", **present)
        peer.permit = lambda _: None
        running = peer.begin_prompt(
            session, agent.script("write followed.txt <<< x", "text After.")
        )
        await peer.until(lambda: _told(peer, QUESTION) and peer.open_questions, "the question")
        (question,) = peer.open_questions
        peer.reply(question, choosing("allow_once")(question["params"]))
        await peer.answer(running)
        await peer.until(lambda: _told(peer, SETTLED), "the question is settled")
        (asked,), (settled,) = _told(peer, QUESTION), _told(peer, SETTLED)
        check(asked["session"] == session and asked["title"], f"the question: {asked}")
        check(settled["id"] == asked["id"], f"{settled} settles {asked}")
        await peer.until(lambda: "After." in str(_told(peer, EVENT, session)), "the answer")
        await peer.call("session/close", sessionId=session)
        check("seq" in ((await peer.answer(live)).get("result") or {}), "it has no end")


def _told(peer: Peer, method: str, session: str | None = None) -> list[Frame]:
    found = [one["params"] for one in peer.recording.calls(method)]
    return [one for one in found if session in (None, one.get("session"))]
