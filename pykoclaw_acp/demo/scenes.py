"""The scenes of the demo, and what is looked at in each of them."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from pathlib import Path
from typing import Any, Final

from acp.schema import PromptResponse, ToolCallProgress, UserMessageChunk

from pykoclaw_acp.demo import processes, script
from pykoclaw_acp.demo.client import Agent, Editor, Question, Update, seq_of, text_of, texts
from pykoclaw_acp.demo.findings import Findings
from pykoclaw_acp.demo.show import Page
from pykoclaw_acp.demo.speech import spoken
from pykoclaw_acp.demo.surroundings import environment
from pykoclaw_acp.scripted_model.process import ScriptedModel

EXIT_LIMIT: Final = 3.0  # s; what the server promises
SPREAD: Final = 0.1  # s between first and last piece; an answer that comes in one go has none
ROLES: Final = {"server", "fork server", "worker", "claude"}
_BROKEN: Final = "ended without an answer"


class Scenes:
    """One run of the story, in a home of its own. `log` is what its servers write to stderr."""

    def __init__(self, page: Page, findings: Findings, home: Path) -> None:
        self._page = page
        self._findings = findings
        self._home = home
        self._project = home / "project"
        self.log = home / "server.log"
        self._model: ScriptedModel
        self._agent: Agent  # the one that runs now
        self._agents: list[Agent] = []
        self._turns: list[asyncio.Task[PromptResponse]] = []
        self._editor: Editor
        self.session = ""
        self.claude = ""
        self._live: list[Update] = []
        self._asked_late = False

    async def play(self, model: ScriptedModel) -> None:
        """All scenes. Raises whatever breaks them off; then, too, none of its processes lives."""
        self._model = model
        try:
            await self._start()
            await self._talk()
            await self._kill()
            await self._load()
            await self._ask()
            await self._cancel()
            await self._quit()
        finally:
            processes.kill(self._home)
            for agent in self._agents:
                await agent.forget()
            await asyncio.gather(*self._turns, return_exceptions=True)

    @property
    def server_end(self) -> str:
        """How the newest server ended: a signal's name, or its exit status."""
        status = self._agents[-1].process.returncode if self._agents else None
        if status is None:
            return "it was not started"
        return signal.Signals(-status).name if status < 0 else f"exit status {status}"

    # --- scenes -----------------------------------------------------------------------------------------------------

    async def _start(self) -> None:
        self._page.scene(1, "An editor starts the agent")
        await self._initialize("initialize")
        begun = time.perf_counter()
        self.session = await self._agent.new(self._project)
        ms = _since(begun)
        claudes = [one for one in processes.find(self._home) if one.role == "claude"]
        self._saw(
            "session/new",
            f"{self.session[:8]}…, {len(claudes)} Claude processes",
            right=bool(self.session) and not claudes,
            ms=ms,
        )

    async def _talk(self) -> None:
        self._page.scene(2, "A turn: thinking, a tool, a streamed answer")
        self._page.speech.user(script.NAME)
        begun = time.perf_counter()
        answer = await self._agent.prompt(self.session, script.NAME)
        arrivals = self._editor.arrivals
        self._live += [arrival.update for arrival in arrivals]
        self._page.pause()

        pieces = texts(arrivals)
        spread = pieces[-1].at - pieces[0].at if pieces else 0.0
        streamed = len(pieces) > 2 and spread > SPREAD
        seen = f"{len(pieces)} pieces of text within {spread * 1000:.0f} ms"
        self._saw("first token", seen, right=streamed, ms=(arrivals[0].at - begun) * 1000 if arrivals else None)

        questions = self._editor.questions
        options = ", ".join(option for question in questions for option in question.options)
        seen = f"{len(questions)} question: {options}" if questions else "not asked"
        right = len(questions) == 1 and questions[0].options[:1] == ("allow_once",) and not self._asked_late
        self._saw("permission", seen, right=right)

        file = self._project / script.FILE
        written = file.read_text() if file.exists() else None
        ended = [update.status for update in self._live if isinstance(update, ToolCallProgress)]
        right = written == script.ENTRY and ended == ["completed"] and answer.stop_reason == "end_turn"
        seen = f"{script.FILE} holds {written!r}, {answer.stop_reason}" if written else f"{script.FILE} is not there"
        self._saw("tool", seen, right=right)

    async def _kill(self) -> None:
        self._page.scene(3, "SIGKILL of every process, in mid-answer")
        self._page.speech.user(script.TALE)
        before = len(self._editor.arrivals)
        turn = self._begin_turn(script.TALE)
        await self._agent.streaming(turn, script.TALE_PIECES)
        tree = processes.find(self._home)
        self.claude = next((one.program for one in tree if one.role == "claude"), "")
        processes.kill(self._home)
        left = processes.find(self._home)
        await asyncio.wait([turn])  # the editor has now read what was on its way
        await self._agent.forget()
        self._live += [arrival.update for arrival in self._editor.arrivals[before:]]
        self._page.pause()
        self._page.processes("Processes before:", tree)
        self._page.processes("Processes after:", left)
        self._page.pause()
        complete = {one.role for one in tree} >= ROLES
        broken_off = isinstance(turn.exception(), ConnectionError)
        seen = f"{len(tree)} killed, {len(left)} left, after {len(texts(self._editor.arrivals[before:]))} words"
        self._saw("SIGKILL", seen, right=complete and not left and broken_off)

    async def _load(self) -> None:
        self._page.scene(4, "A new process, the same conversation")
        await self._initialize("start again")
        begun = time.perf_counter()
        await self._agent.load(self.session, self._project)
        ms = _since(begun)
        self._page.pause()

        history = [arrival.update for arrival in self._editor.arrivals]
        said = "".join(text_of(update) for update in history if isinstance(update, UserMessageChunk))
        agents = [update for update in history if not isinstance(update, UserMessageChunk)]
        same = agents[: len(self._live)] == self._live
        gapless = [seq_of(update) for update in history] == list(range(1, len(history) + 1))
        seen = f"{len(history)} updates; the {len(self._live)} live ones {'equal' if same else 'NOT equal'}"
        seen += "" if gapless else ", numbers with gaps"
        self._saw("session/load", seen, right=same and gapless and said == script.NAME + script.TALE, ms=ms)

        last = " ".join(text_of(history[-1]).replace("**", "").split()) if history else ""
        sentences = ". ".join(last.split(". ")[:2])
        self._saw("broken turn", f"“{sentences}”" if last else "nothing is said about it", right=_BROKEN in last)

    async def _ask(self) -> None:
        self._page.scene(5, "Does Claude still know?")
        self._page.speech.user(script.QUESTION)
        await self._agent.prompt(self.session, script.QUESTION)
        self._page.pause()
        requests = await asyncio.to_thread(self._model.requests)
        request = requests[-1] if requests else {"messages": [], "user_texts": []}
        messages = [(message["role"], _digest(message)) for message in request["messages"]]
        self._page.messages("What the model was sent with it:", messages)
        self._page.pause()
        results = [result for message in request["messages"] for result in message["tool_results"]]
        answers = "\n".join(message["text"] for message in request["messages"] if message["role"] == "assistant")
        told = request["user_texts"] == [script.NAME, script.TALE, script.QUESTION]
        right = told and len(results) == 1 and "Done: your name stands" in answers
        seen = f"{len(request['user_texts'])} prompts, {len(results)} tool result, {len(messages)} messages in all"
        self._saw("context", seen, right=right)

    async def _cancel(self) -> None:
        self._page.scene(6, "The user stops an answer")
        self._page.speech.user(script.COUNT)
        turn = self._begin_turn(script.COUNT)
        await self._agent.streaming(turn, script.COUNT_PIECES)
        self._page.speech.stop()
        begun = time.perf_counter()
        await self._agent.sdk.cancel(session_id=self.session)
        answer = await turn
        ms = _since(begun)
        self._page.pause()
        self._saw(
            "session/cancel", f"the turn ended: {answer.stop_reason}", right=answer.stop_reason == "cancelled", ms=ms
        )

    async def _quit(self) -> None:
        self._page.scene(7, "The editor quits")
        requests = await asyncio.to_thread(self._model.requests)
        counts = [sum(_asks(request, prompt) for request in requests) for prompt in script.PROMPTS]
        seen = f"requests per prompt: {', '.join(map(str, counts))}"
        self._saw("sent once", seen, right=all(count == 1 for count in counts))
        status, seconds = await self._agent.end_of_input()
        left = processes.find(self._home)
        right = status == 0 and seconds < EXIT_LIMIT and not left
        self._saw("end of input", f"exit {status}, {len(left)} processes left", right=right, ms=seconds * 1000)

    # --- parts of scenes --------------------------------------------------------------------------------------------

    async def _initialize(self, step: str) -> None:
        self._editor = Editor(self._page.speech.update, self._asked)
        surroundings = environment(os.environ, self._model.url, self._home)
        begun = time.perf_counter()
        self._agent = await Agent.start(self._editor, surroundings, self._project, self.log)
        self._agents.append(self._agent)
        can = await self._agent.initialize()
        ms = _since(begun)
        abilities = can.agent_capabilities
        offers = {
            "load": bool(abilities and abilities.load_session),
            "resume": bool(abilities and abilities.session_capabilities and abilities.session_capabilities.resume),
            "close": bool(abilities and abilities.session_capabilities and abilities.session_capabilities.close),
        }
        offered = ", ".join(name for name, there in offers.items() if there) or "nothing"
        who = f"{can.agent_info.name} {can.agent_info.version}" if can.agent_info else "an agent without a name"
        right = can.protocol_version == 1 and all(offers.values())
        self._saw(step, f"{who}, ACP {can.protocol_version}: {offered}", right=right, ms=ms)

    def _begin_turn(self, prompt: str) -> asyncio.Task[PromptResponse]:
        turn = asyncio.get_running_loop().create_task(self._agent.prompt(self.session, prompt))
        self._turns.append(turn)
        return turn

    def _asked(self, question: Question) -> None:
        self._asked_late = (self._project / script.FILE).exists()
        self._page.speech.asked(question)

    def _saw(self, step: str, seen: str, *, right: bool, ms: float | None = None) -> None:
        self._page.finding(self._findings.saw(step, seen, right=right, ms=ms))


def _since(begun: float) -> float:
    """Milliseconds since then."""
    return (time.perf_counter() - begun) * 1000


def _asks(request: dict[str, Any], prompt: str) -> bool:
    """Whether this is the request with which the prompt itself reached the model, and not one with a tool's result."""
    return request["user_texts"][-1:] == [prompt] and not request["messages"][-1]["tool_results"]


def _digest(message: dict[str, Any]) -> str:
    """A message in a line."""
    parts = [spoken(message["text"])]
    parts += [f"[calls {use['name']}]" for use in message["tool_uses"]]
    parts += [f"[result] {result['text']}" for result in message["tool_results"]]
    return " ".join(" ".join(parts).split())
