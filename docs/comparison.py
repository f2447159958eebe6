"""`make comparison PEER=claude-agent-acp`: docs/comparison.md, what this agent and another show of
the same conversations.

Both are real: each with its own Claude CLI, on one scripted model, in a home of its own.
"""

from __future__ import annotations

import argparse
import base64
import json
import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from docs.features import FEATURES, QUIET, VERDICTS, Feature
from pykoclaw_acp.demo.home import environment, temporary_home
from pykoclaw_acp.scripted_model.process import ScriptedModel

PAGE: Final = Path(__file__).with_suffix(".md")
SERVER: Final = Path(__file__).parent.parent / "tests/e2e/mcp_server.py"
ANSWER_WAIT: Final = 120.0  # s
WIDTH: Final = 138  # characters of a line of the page
RICH: Final[dict[str, Any]] = {
    "elicitation": {"form": {}},
    "session": {"notices": {}, "compaction": {}},
    "_meta": {"terminal_output": True},
}
CLIENT: Final = {
    "name": "comparison",
    "title": "A client that both know nothing of",
    "version": "1",
}
TERMINALS: Final = (
    "terminal_output",
    "terminal_exit",
)  # in `_meta`, shown by a client with terminals
LINES: Final = "".join(f"line {number}\n" for number in range(1, 61))


NOTEBOOK: Final = {
    "cells": [
        {
            "cell_type": "code",
            "id": "c1",
            "metadata": {},
            "source": "print(1)",
            "outputs": [],
            "execution_count": None,
        }
    ],
    "metadata": {},
    "nbformat": 4,
    "nbformat_minor": 5,
}
DOT: Final = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR4nGP4z8AAAAMBAQDJ/pLvAAAAAElFTkSuQmCC"
)
ABOUT: Final = """\
What a client gets from pykoclaw-acp and from claude-agent-acp {version} for one and the same answer of
the model: each agent with the Claude CLI that it brings, on the scripted model, in the mode
`default`, with a client that shows forms, notices, compactions and the terminals of commands
unless it is said (plain). `make comparison` wrote this page, with the judgements of docs/features.py.

{table}

What claude-agent-acp shows and pykoclaw-acp does not, and why:

{whys}

What it has besides, which is not compared here, and why pykoclaw-acp has not:

* An option `agent`, and `_meta.claudeCode.options.agent`, for the agent of the main thread: Claude
  goes on as itself, without a word, if it does not find that agent, and an agent may bring another
  model and other tools than the session shows. Claude has the agents of `.claude/agents` as
  subagents.
* An option `ultracode`: Claude forgets it with its process, and a session has many, one after the
  other. `/effort ultracode` turns it on in the one that runs.
* Prompt suggestions: each takes a request with the whole conversation.
* `providers/list`, `providers/set` and `providers/disable`: one daemon serves many clients, and a
  session outlives them. Where its requests go, and with which key, the environment says.

Below, a line is an update or a request: seconds since the prompt, its kind, and what a client can
show of it. The chunks of a message are one line, long lines are cut, and lists of commands are left
out. Questions are answered with the first option that allows once."""
SERVERS: Final = {
    name: {
        "name": name,
        "command": sys.executable,
        "args": arguments,
        "env": [{"name": "SECRET", "value": "comparison"}],
    }
    for name, arguments in (("local", [str(SERVER)]), ("broken", ["-c", "exit(1)"]))
}


@dataclass
class Agent:
    """An ACP agent on its stdio, whose questions are answered; `heard` has (s, message)."""

    process: subprocess.Popen[str]
    choose: str = "allow_once"
    heard: list[tuple[float, dict[str, Any]]] = field(default_factory=list)
    _lines: queue.Queue[str] = field(default_factory=queue.Queue)
    _ids: int = 0
    _began: float = 0.0

    def __post_init__(self) -> None:
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._lines.put(line)

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """Send a request; its response, result or error. Raises queue.Empty if there is none."""
        self._ids += 1
        self._send({"id": self._ids, "method": method, "params": params})
        while True:
            message = self._take(ANSWER_WAIT)
            if message.get("id") == self._ids and "method" not in message:
                return message

    def begin(self) -> None:
        """Forget what was heard; times count from here."""
        self.heard.clear()
        self._began = time.monotonic()

    def listen(self, seconds: float) -> None:
        """Hear what comes without a request, until nothing has come for so long."""
        try:
            while True:
                self._take(seconds)
        except queue.Empty:
            return

    def _take(self, seconds: float) -> dict[str, Any]:
        message: dict[str, Any] = json.loads(self._lines.get(timeout=seconds))
        if "method" in message:
            self.heard.append((time.monotonic() - self._began, message))
            if "id" in message:
                self._send({"id": message["id"], "result": self._answer(message)})
        return message

    def _answer(self, asked: dict[str, Any]) -> dict[str, Any]:
        params = asked["params"]
        if asked["method"] == "elicitation/create":
            fields: dict[str, Any] = params["requestedSchema"]["properties"]
            name = next(iter(fields))
            return {"action": "accept", "content": {name: fields[name]["oneOf"][0]["const"]}}
        options = params["options"]
        option = next((one for one in options if one["kind"] == self.choose), options[0])
        return {"outcome": {"outcome": "selected", "optionId": option["optionId"]}}

    def _send(self, message: dict[str, Any]) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        self.process.stdin.flush()


@contextmanager
def running(command: list[str], feature: Feature) -> Iterator[tuple[Agent, Path]]:
    """An initialized agent in a new home, and its project."""
    with temporary_home() as home, ScriptedModel() as model:
        project = home / "project"
        (project / "lines.txt").write_text(LINES)
        (project / "dot.png").write_bytes(DOT)
        (project / "book.ipynb").write_text(json.dumps(NOTEBOOK))
        (home / ".claude").mkdir(exist_ok=True)
        (home / ".claude/settings.json").write_text(json.dumps(feature.settings))
        own = {"IS_SANDBOX": "1"} if os.geteuid() == 0 else {}  # else the peer refuses root
        with subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=environment(os.environ, model.url, home) | own | feature.environment,
            cwd=project,
        ) as process:
            agent = Agent(process)
            able = {} if feature.plain else RICH
            agent.call("initialize", protocolVersion=1, clientCapabilities=able, clientInfo=CLIENT)
            try:
                yield agent, project
            finally:
                process.kill()


def play(command: list[str], feature: Feature) -> list[str]:
    """What the agent shows of the feature, a line each."""
    with running(command, feature) as (agent, project):
        agent.choose = feature.choose
        servers = [SERVERS[name] for name in feature.servers]
        opened = agent.call("session/new", cwd=str(project), mcpServers=servers)["result"]
        session = opened["sessionId"]
        agent.listen(QUIET)
        agent.call("session/set_mode", sessionId=session, modeId=feature.mode)
        shown: list[str] = []
        for prompt in feature.prompts:
            agent.begin()
            blocks = [{"type": "text", "text": prompt}]
            answer = agent.call("session/prompt", sessionId=session, prompt=blocks)
            heard = agent.heard[:]
            agent.heard.clear()
            agent.listen(feature.settle)
            if len(feature.prompts) > 1:
                shown.append(f"> {prompt}")
            shown += [*lines(heard), _ending(answer), *lines(agent.heard)]
        return [_cut(line.replace(str(project), "/project")) for line in shown]


def lines(heard: list[tuple[float, dict[str, Any]]]) -> list[str]:
    """Messages of an agent as lines; the chunks of a message are one."""
    shown: list[str] = []
    chunk: tuple[str, float, str] | None = None
    for at, message in heard:
        update = message["params"].get("update", {})
        kind = update.get("sessionUpdate", "")
        if kind.endswith("_chunk"):
            text = update["content"].get("text", "")
            key = f"{kind} {update.get('messageId')}"
            if chunk is not None and chunk[0] == key:
                chunk = (key, chunk[1], chunk[2] + text)
                continue
        if chunk is not None:
            shown.append(_line(chunk[1], chunk[0].split()[0], json.dumps(chunk[2])))
            chunk = None
        if kind.endswith("_chunk"):
            chunk = (key, at, text)
        elif kind != "available_commands_update":
            shown.append(_line(at, kind or message["method"], _told(update or message["params"])))
    if chunk is not None:
        shown.append(_line(chunk[1], chunk[0].split()[0], json.dumps(chunk[2])))
    return shown


def _line(at: float, kind: str, words: str) -> str:
    return f"{at:5.1f} {kind} {words}"


def _cut(line: str) -> str:
    return line if len(line) <= WIDTH else f"{line[: WIDTH - 1]}…"


def _told(fields: dict[str, Any]) -> str:
    """The fields of an update or request that a client can show, most telling first."""
    hidden = ("sessionUpdate", "sessionId", "_meta", "toolCallId", "rawInput", "configOptions")
    call = fields.get("toolCall")
    told = {**fields, **(call if isinstance(call, dict) else {})}
    told.pop("toolCall", None)
    options = told.get("options")
    if isinstance(options, list):
        told["options"] = [one["name"] for one in options]
    shown = {name: told[name] for name in told if name not in hidden}
    meta = told.get("_meta") or {}
    shown |= {name: meta[name] for name in TERMINALS if name in meta}
    return json.dumps(shown, ensure_ascii=False)


def _ending(answer: dict[str, Any]) -> str:
    said = answer.get("result") or answer.get("error") or {}
    told = {name: said[name] for name in ("stopReason", "code", "message") if name in said}
    return _line(0, "the prompt's answer", json.dumps(told, ensure_ascii=False))[6:]


def page(played: dict[str, tuple[list[str], list[str]]], version: str) -> str:
    """The page, in Markdown; `played`: what each agent shows, by feature."""
    rows = [
        f"| {one} | {said.ours} | {said.peer} | {said.more} |" for one, said in VERDICTS.items()
    ]
    whys = "\n".join(f"* {one}: {said.why}." for one, said in VERDICTS.items() if said.why)
    table = "\n".join(
        ("| feature | pykoclaw-acp | claude-agent-acp | shows more |", "|---|---|---|---|", *rows)
    )
    parts = ["# Beside claude-agent-acp", ABOUT.format(version=version, table=table, whys=whys)]
    for feature in FEATURES:
        parts.append(f"## {feature.name}")
        agents = ("pykoclaw-acp", "claude-agent-acp")
        for name, shown in zip(agents, played[feature.name], strict=True):
            said = "\n".join(shown)
            parts.append(f"{name}:\n\n```text\n{said}\n```")
    return "\n\n".join(parts) + "\n"


def main() -> None:
    """Write the page."""
    parser = argparse.ArgumentParser(prog="python -m docs.comparison", description=__doc__)
    parser.add_argument("--peer", default="claude-agent-acp", help="command of the other agent")
    parser.add_argument("--only", metavar="WORDS", help="print features with these words, no page")
    chosen = parser.parse_args()
    ours = [sys.executable, "-m", "pykoclaw_acp", "serve", "--stdio"]
    if chosen.only is not None:
        for feature in FEATURES:
            if chosen.only.lower() in feature.name.lower():
                print(f"## {feature.name}", *play(ours, feature), sep="\n")
                print("--", *play([chosen.peer], feature), sep="\n")
        return
    version = subprocess.run(
        [chosen.peer, "--version"], capture_output=True, text=True, check=True
    ).stdout.strip()
    played = {one.name: (play(ours, one), play([chosen.peer], one)) for one in FEATURES}
    PAGE.write_text(page(played, version))


if __name__ == "__main__":
    main()
