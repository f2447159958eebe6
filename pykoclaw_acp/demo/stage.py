"""State shared by the demo's scenes: editor and front, session, received updates, processes."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from acp.schema import PromptResponse

from pykoclaw_acp.demo import client, processes, script
from pykoclaw_acp.demo.client import Agent, AnyUpdate, Arrival, AskedPermission, Editor, seq_of
from pykoclaw_acp.demo.findings import Findings
from pykoclaw_acp.demo.home import environment
from pykoclaw_acp.demo.processes import DemoProcess
from pykoclaw_acp.demo.show import DemoOutput
from pykoclaw_acp.scripted_model.process import ScriptedModel


@dataclass(frozen=True, slots=True)
class Greeting:
    """Response to `initialize`: whether it is as expected, and the time since the agent's start."""

    seen: str
    right: bool
    ms: float


class Stage:
    """One run of the demo in its own home. `log`: stderr of the editors' fronts."""

    def __init__(self, page: DemoOutput, findings: Findings, home: Path) -> None:
        self.page = page
        self.project = home / "project"
        self.log = home / "front.log"
        self.model: ScriptedModel
        self.agent: Agent  # the one that runs now
        self.editor: Editor
        self.session = ""
        self.claude = ""
        self.held: list[AnyUpdate] = []  # of the session's log, as they came live
        self.asked_late = False
        self._findings = findings
        self._home = home
        self._scenes = 0
        self._mark = 0
        self._agents: list[Agent] = []
        self._turns: list[asyncio.Task[PromptResponse]] = []

    @property
    def front_end(self) -> str:
        """End of the newest front: a signal's name, or its exit status."""
        status = self._agents[-1].process.returncode if self._agents else None
        if status is None:
            return "it was not started"
        return signal.Signals(-status).name if status < 0 else f"exit status {status}"

    def scene(self, title: str) -> None:
        """Begin a scene."""
        self._scenes += 1
        self.page.scene(self._scenes, title)

    def saw(self, step: str, seen: str, *, right: bool, ms: float | None = None) -> None:
        """Record and show the observation of a step."""
        self.page.finding(self._findings.saw(step, seen, right=right, ms=ms))

    # --- the editor

    async def open_editor(self) -> Greeting:
        """Start an editor with its front."""
        self.editor, self._mark = Editor(self.page.speech.update, self._asked), 0
        begun = time.perf_counter()
        self.agent = await Agent.start(self.editor, self._environment(), self.project, self.log)
        self._agents.append(self.agent)
        can = await self.agent.initialize()
        ms = since(begun)
        abilities = can.agent_capabilities
        offers = {
            "load": bool(abilities and abilities.load_session),
            "resume": bool(
                abilities
                and abilities.session_capabilities
                and abilities.session_capabilities.resume
            ),
            "close": bool(
                abilities
                and abilities.session_capabilities
                and abilities.session_capabilities.close
            ),
        }
        offered = ", ".join(name for name, there in offers.items() if there) or "nothing"
        who = (
            f"{can.agent_info.name} {can.agent_info.version}"
            if can.agent_info
            else "an agent without a name"
        )
        return Greeting(
            f"{who}, ACP {can.protocol_version}: {offered}",
            can.protocol_version == 1 and all(offers.values()),
            ms,
        )

    def ask(self, prompt: str) -> asyncio.Task[PromptResponse]:
        """Send a prompt."""
        self._mark = len(self.editor.arrivals)
        self.page.speech.user(prompt)
        turn = asyncio.create_task(self.agent.prompt(self.session, prompt), name="demo-prompt")
        self._turns.append(turn)
        return turn

    @property
    def heard(self) -> list[Arrival]:
        """Updates since the editor's last prompt, or since its start."""
        return self.editor.arrivals[self._mark :]

    def keep(self) -> list[Arrival]:
        """Updates of the turn after its end; stored for comparison with the replay."""
        self.held += logged(self.heard)
        return self.heard

    def _asked(self, question: AskedPermission) -> None:
        self.asked_late = (self.project / script.FILE).exists()
        self.page.speech.asked(question)

    # --- model, processes

    async def requests(self) -> list[dict[str, Any]]:
        """Requests that the model has received."""
        return await asyncio.to_thread(self.model.requests)

    async def times_asked(self, prompt: str) -> int:
        """Number of requests with the prompt itself; those with tool results are later steps of a
        turn.
        """
        return sum(
            request["user_texts"][-1:] == [prompt] and not request["messages"][-1]["tool_results"]
            for request in await self.requests()
        )

    async def command(self, *arguments: str) -> str:
        """Run a command of ours in the editor's environment; returns its output."""
        return await client.run_command(self._environment(), self.project, *arguments)

    def processes(self) -> list[DemoProcess]:
        """Processes of this home."""
        return processes.find(self._home)

    def send(self, role: str, number: signal.Signals) -> str:
        """Send a signal to the processes with this role; returns their description."""
        pids = processes.send(self._home, role, number)
        return f"the {role}, pid {pids[0]}" if pids else f"no {role}"

    async def gone(self) -> list[DemoProcess]:
        """Wait until no process is left; returns those that do not end."""
        return await asyncio.to_thread(processes.wait, self._home)

    def kill_everything(self) -> None:
        """SIGKILL all processes of this home."""
        processes.kill(self._home)

    async def clear(self) -> None:
        """End all remaining processes."""
        self.kill_everything()
        for agent in self._agents:
            await agent.forget()
        await asyncio.gather(*self._turns, return_exceptions=True)

    def _environment(self) -> dict[str, str]:
        return environment(os.environ, self.model.url, self._home)


def since(begun: float) -> float:
    """Milliseconds since this time (`time.perf_counter`)."""
    return (time.perf_counter() - begun) * 1000


def logged(arrivals: list[Arrival]) -> list[AnyUpdate]:
    """Updates that are in the session's log; commands, for instance, are not."""
    return [arrival.update for arrival in arrivals if seq_of(arrival.update)]
