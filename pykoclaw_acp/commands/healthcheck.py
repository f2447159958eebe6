"""`pykoclaw-acp --healthcheck`: whether the agent starts and answers, as a client sees it."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from typing import Any, Final

from pykoclaw_acp import terminal
from pykoclaw_acp.commands.daemon import PREFIX
from pykoclaw_acp.config.values import AGENTS
from pykoclaw_acp.link.places import setting

WAIT: Final = 30.0  # s until both answers are there; a daemon may have to start
END_WAIT: Final = 5.0  # s for the agent to end, before it is told to, and killed
NOT_FOUND: Final = -32601

# The front answers the first one itself when the daemon is late; the second one needs the daemon.
REQUESTS: Final[tuple[tuple[str, dict[str, Any]], ...]] = (
    ("initialize", {"protocolVersion": 1}),
    (PREFIX + "status", {}),
)


class Unhealthy(Exception):
    """The agent does not answer as it should; the message says what it did instead."""


def main() -> int:
    """Check, and say the result in one line on standard error; returns the exit status."""
    began = time.monotonic()
    try:
        result = _start_and_ask(_command())
    except (Unhealthy, OSError) as error:
        terminal.complain(f"FAIL: {error}")
        return 1
    agent = result.get("agentInfo") or {}
    terminal.complain(
        f"OK: {agent.get('name', '?')} v{agent.get('version', '?')}"
        f" (protocol v{result['protocolVersion']}) responded in {time.monotonic() - began:.2f}s"
    )
    return 0


def _command() -> list[str]:
    """The agent: this program, or the one that PYKOCLAW_CLI_PATH names, if that is an agent."""
    named = setting("pykoclaw_cli_path") or ""
    if os.path.basename(named) not in AGENTS:
        return [sys.executable, "-P", "-m", "pykoclaw_acp"]
    return [named, "acp"] if os.path.basename(named) == "pykoclaw" else [named]


def _start_and_ask(command: list[str]) -> dict[str, Any]:
    """The result of `initialize`."""
    agent = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    try:
        answers = _ask(agent)
    finally:
        said = _end(agent)
    if len(answers) < len(REQUESTS):
        last = said.strip().splitlines()[-1:] or [f"It ended with status {agent.returncode}."]
        raise Unhealthy(
            f"no answer from `{' '.join(command)}` (after at most {WAIT:g} s). {last[0]}"
        )
    for number, (method, _) in enumerate(REQUESTS, 1):
        error = answers[number].get("error") or {}
        if error and not (number > 1 and error.get("code") == NOT_FOUND):  # another agent's
            raise Unhealthy(f"{method}: {error.get('message', error)}")
    result = answers[1].get("result")
    if not isinstance(result, dict) or "protocolVersion" not in result:
        raise Unhealthy(f"unexpected response: {json.dumps(answers[1])[:200]}")
    return result


def _ask(agent: subprocess.Popen[bytes]) -> dict[int, dict[str, Any]]:
    """Answers by request; those that came in time."""
    assert agent.stdin is not None
    assert agent.stdout is not None
    deadline = time.monotonic() + WAIT
    try:
        for number, (method, params) in enumerate(REQUESTS, 1):
            request = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
            agent.stdin.write(json.dumps(request).encode() + b"\n")
        agent.stdin.flush()
    except BrokenPipeError:
        return {}
    answers: dict[int, dict[str, Any]] = {}
    read = b""
    while len(answers) < len(REQUESTS):
        left = deadline - time.monotonic()
        if left <= 0 or not select.select([agent.stdout], [], [], left)[0]:
            break
        data = os.read(agent.stdout.fileno(), 1 << 16)
        if not data:
            break
        *lines, read = (read + data).split(b"\n")
        for line in lines:
            message = _message(line)
            if message.get("id") in range(1, len(REQUESTS) + 1):
                answers[message["id"]] = message
    return answers


def _message(line: bytes) -> dict[str, Any]:
    try:
        message = json.loads(line)
    except ValueError as error:
        raise Unhealthy(f"invalid JSON response: {line[:200]!r}") from error
    if not isinstance(message, dict) or message.get("jsonrpc") != "2.0":
        raise Unhealthy(f"unexpected response: {line[:200]!r}")
    return message


def _end(agent: subprocess.Popen[bytes]) -> str:
    """End the agent as a client does; returns what it said on standard error."""
    for number in (None, signal.SIGTERM, signal.SIGKILL):
        if number is not None:
            agent.send_signal(number)
        try:
            return agent.communicate(timeout=END_WAIT)[1].decode(errors="replace")
        except subprocess.TimeoutExpired:
            continue
    return ""
