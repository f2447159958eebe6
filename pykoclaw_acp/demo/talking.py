"""Scenes of the demo without faults: an editor starts, prompts, is asked for permission, cancels,
quits.
"""

from __future__ import annotations

import json
import os
import signal
import time
from typing import Any, Final

from acp.schema import AgentMessageChunk, AgentThoughtChunk, ToolCallProgress

from pykoclaw_acp.demo import script
from pykoclaw_acp.demo.client import texts
from pykoclaw_acp.demo.processes import pids
from pykoclaw_acp.demo.speech import spoken
from pykoclaw_acp.demo.stage import Stage, since

EXIT_LIMIT: Final = 1.0  # s; the front promises a tenth of it, which a busy machine may miss
# that come and go; the quickest end counts, as a busy machine delays one or another
MORE_EDITORS: Final = 2
SPREAD: Final = 0.1  # s between first and last piece; an answer that comes in one go has none


async def start(stage: Stage) -> None:
    """Start an editor with a front, which starts the daemon."""
    stage.scene("An editor starts the agent")
    greeting = await stage.open_editor()
    stage.saw("initialize", greeting.seen, right=greeting.right, ms=greeting.ms)
    begun = time.perf_counter()
    stage.session = await stage.agent.new(stage.project)
    ms = since(begun)
    found = stage.processes()
    claudes = pids(found, "claude")
    seen = f"{stage.session[:8]}…, {len(claudes)} Claude processes"
    stage.saw("session/new", seen, right=bool(stage.session) and not claudes, ms=ms)
    fronts, daemons = pids(found, "front"), pids(found, "daemon")
    apart = len(fronts) == len(daemons) == 1 and os.getsid(daemons[0]) not in (
        os.getsid(fronts[0]),
        os.getsid(0),
    )
    seen = f"{len(daemons)}, {'in a session of its own' if apart else 'NOT apart from the front'}"
    stage.saw("daemon", seen, right=apart)
    stage.page.pause()
    stage.page.processes("Processes:", found)


async def talk(stage: Stage) -> None:
    """Run a turn with thinking, tools and a permission request."""
    stage.scene("A turn: thinking, a tool, a streamed answer")
    begun = time.perf_counter()
    answer = await stage.ask(script.NAME)
    arrivals = stage.keep()
    stage.page.pause()

    spoke = [
        one.at for one in arrivals if isinstance(one.update, AgentThoughtChunk | AgentMessageChunk)
    ]
    pieces = texts(arrivals)
    spread = pieces[-1].at - pieces[0].at if pieces else 0.0
    streamed = len(pieces) > 2 and spread > SPREAD
    seen = f"{len(pieces)} pieces of text within {spread * 1000:.0f} ms"
    stage.saw("first token", seen, right=streamed, ms=(spoke[0] - begun) * 1000 if spoke else None)

    questions = stage.editor.questions
    options = ", ".join(option for question in questions for option in question.options)
    seen = f"{len(questions)} question: {options}" if questions else "not asked"
    right = (
        len(questions) == 1 and questions[0].options[:1] == ("allow_once",) and not stage.asked_late
    )
    stage.saw("permission", seen, right=right)

    file = stage.project / script.FILE
    written = file.read_text() if file.exists() else None
    ended = [one.update.status for one in arrivals if isinstance(one.update, ToolCallProgress)]
    right = (
        written == script.ENTRY and ended[-1:] == ["completed"] and answer.stop_reason == "end_turn"
    )
    seen = (
        f"{script.FILE} holds {written!r}, {answer.stop_reason}"
        if written
        else f"{script.FILE} is not there"
    )
    stage.saw("tool", seen, right=right)


async def remember(stage: Stage) -> None:
    """Show what the model is sent, and so what Claude remembers."""
    stage.scene("Does Claude still know?")
    await stage.ask(script.QUESTION)
    stage.page.pause()
    requests = await stage.requests()
    request = requests[-1] if requests else {"messages": [], "user_texts": []}
    messages = [(message["role"], _digest(message)) for message in request["messages"]]
    stage.page.messages("What the model was sent with it:", messages)
    stage.page.pause()
    results = [result for message in request["messages"] for result in message["tool_results"]]
    answers = "\n".join(
        message["text"] for message in request["messages"] if message["role"] == "assistant"
    )
    whole = [
        "Done: your name stands",
        *(" ".join(script.words_of(tale)) for tale in (script.TALE, script.SECOND_TALE)),
    ]
    told = request["user_texts"] == list(
        script.PROMPTS[: script.PROMPTS.index(script.QUESTION) + 1]
    )
    right = told and len(results) == 1 and all(answer in answers for answer in whole)
    seen = f"{len(request['user_texts'])} prompts, {len(results)} tool result, {len(messages)} messages in all"
    stage.saw("context", seen, right=right)


async def stop(stage: Stage) -> None:
    """Cancel a turn."""
    stage.scene("The user stops an answer")
    turn = stage.ask(script.COUNT)
    await stage.agent.streaming(turn, script.COUNT_PIECES)
    stage.page.speech.stop()
    begun = time.perf_counter()
    await stage.agent.sdk.cancel(session_id=stage.session)
    answer = await turn
    ms = since(begun)
    stage.page.pause()
    seen = f"the turn ended: {answer.stop_reason}"
    stage.saw("session/cancel", seen, right=answer.stop_reason == "cancelled", ms=ms)
    counts = [await stage.times_asked(prompt) for prompt in script.PROMPTS]
    seen = f"requests per prompt: {', '.join(map(str, counts))}"
    stage.saw("sent once", seen, right=all(count == 1 for count in counts))


async def leave(stage: Stage) -> None:
    """Quit the editor, then two others: the fronts end, the daemon stays until it is stopped."""
    stage.scene("The editor quits, and the daemon is told to end")
    before = pids(stage.processes(), "daemon")
    ends = [await stage.agent.end_of_input()]
    for _ in range(MORE_EDITORS):
        await stage.open_editor()
        ends.append(await stage.agent.end_of_input())
    found = stage.processes()
    stage.page.processes("Processes that stay:", found)
    stage.page.pause()
    turns = json.loads(await stage.command("status", "--json"))
    busy = turns["running"] + turns["waiting"]
    stays = pids(found, "daemon") == before != [] and not pids(found, "front")
    statuses, seconds = {status for status, _ in ends}, min(took for _, took in ends)
    there = "stays" if stays else "is NOT there"
    seen = f"exit {', '.join(map(str, statuses))}; the daemon {there}, {busy} turns in it"
    right = statuses == {0} and seconds < EXIT_LIMIT and stays and not busy
    stage.saw("end of input", seen, right=right, ms=seconds * 1000)

    stage.page.pause()
    stage.page.speech.command("pykoclaw-acp workers stop", await stage.command("workers", "stop"))
    begun = time.perf_counter()
    stage.page.speech.signal("SIGTERM", stage.send("daemon", signal.SIGTERM))
    left = await stage.gone()
    ms = since(begun)
    stage.page.pause()
    stage.page.processes("Processes after:", left)
    stage.page.pause()
    stage.saw("SIGTERM", f"{len(left)} processes left", right=not left, ms=ms)


def _digest(message: dict[str, Any]) -> str:
    """A message in one line."""
    parts = [spoken(message["text"])]
    parts += [f"[calls {use['name']}]" for use in message["tool_uses"]]
    parts += [f"[result] {result['text']}" for result in message["tool_results"]]
    return " ".join(" ".join(parts).split())
