"""A session in a terminal: `pykoclaw-acp attach` while another program prompts, recorded as it is.

Shows a plan and its approval, a change of a file, a command in the background, a subagent, and a
question. The session's export as a web page is written beside the picture.
"""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from rich.text import Text

from docs.pictures.record import svg
from pykoclaw_acp.demo.home import environment, temporary_home
from pykoclaw_acp.scripted_model.process import ScriptedModel

PICTURE: Final = Path(__file__).with_suffix(".svg")
PAGE: Final = Path(__file__).with_suffix(".html")
WAIT: Final = 60.0  # s, for whatever comes next
ROWS, COLUMNS = 200, 100
PROGRAM: Final = [sys.executable, "-m", "pykoclaw_acp"]
GREETING: Final = 'def greet(name):\n    return "hello " + name\n\n\nprint(greet("Ada"))\n'
PLAN: Final = r"# Greet politely\n\n1. Say *Hello*, with a comma\n2. Run the program"
ASKS: Final = (
    '{"questions": [{"question": "Which greeting?", "header": "Greeting", "multiSelect": false,'
    ' "options": [{"label": "Hello", "description": "As usual"}, {"label": "Good day", "description": "Polite"}]}]}'
)
AGENT: Final = (
    '{"description": "Look for callers", "subagent_type": "claude", "run_in_background": false,'
    ' "prompt": "[[script bash grep -rn greet . ;; text Only app.py calls it.]]"}'
)


class Terminal:
    """A command in a terminal; `seen` is what it has written."""

    def __init__(self, command: list[str], environ: Mapping[str, str], cwd: Path) -> None:
        self.seen = ""
        self._master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
        attributes = termios.tcgetattr(slave)
        attributes[3] &= ~termios.ECHO  # keys are no part of the picture
        termios.tcsetattr(slave, termios.TCSANOW, attributes)
        colours = {**environ, "TERM": "xterm-256color", "COLORTERM": "truecolor"}
        self._process = subprocess.Popen(
            command, stdin=slave, stdout=slave, stderr=slave, env=colours, cwd=cwd,
            start_new_session=True,
        )  # fmt: skip
        os.close(slave)

    def until(self, words: str, times: int = 1) -> None:
        """Read until it has written the words so often; raises TimeoutError."""
        end = time.monotonic() + WAIT
        while self.seen.count(words) < times:
            if not select.select([self._master], [], [], max(end - time.monotonic(), 0))[0]:
                raise TimeoutError(f"{words!r} did not come; this did:\n{self.seen}")
            self.seen += os.read(self._master, 65536).decode(errors="replace").replace("\r\n", "\n")

    def type(self, text: str) -> None:
        """Type a line."""
        os.write(self._master, f"{text}\n".encode())

    def close(self) -> None:
        """End the command."""
        self._process.terminate()
        self._process.wait(WAIT)
        os.close(self._master)


class Client:
    """A client that opens a session, and lets others prompt."""

    def __init__(self, environ: Mapping[str, str], cwd: Path) -> None:
        self._ids = 0
        self._process = subprocess.Popen(
            PROGRAM, stdin=-1, stdout=-1, stderr=subprocess.DEVNULL, env=environ, cwd=cwd, text=True
        )

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """The result of a request."""
        self._ids += 1
        message = {"jsonrpc": "2.0", "id": self._ids, "method": method, "params": params}
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(message) + "\n")
        self._process.stdin.flush()
        for line in self._process.stdout:
            answer = json.loads(line)
            if answer.get("id") == self._ids and "method" not in answer:
                result: dict[str, Any] = answer["result"]
                return result
        raise RuntimeError("the agent has ended")

    def close(self) -> None:
        """End it."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(WAIT)


def record() -> str:
    """What the terminal has shown; the export is written as session.html."""
    with temporary_home() as home, ScriptedModel() as model:
        environ, project = environment(os.environ, model.url, home), home / "project"
        (project / "app.py").write_text(GREETING)
        client = Client(environ, project)
        try:
            client.call("initialize", protocolVersion=1, clientCapabilities={})
            session = client.call("session/new", cwd=str(project), mcpServers=[])["sessionId"]
            client.call("session/set_mode", sessionId=session, modeId="plan")
            prompt(client, session, "Could it greet more politely?", "text Let me make a plan.")
            path = plan_path(home)
            client.close()
            shown = Terminal([*PROGRAM, "attach", session], environ, project)
            shown.until("Let me make a plan.")
            play(shown, session, path, environ, project)
            shown.close()
            export = [*PROGRAM, "sessions", "export", session, "--format", "html"]
            page = subprocess.run(export, env=environ, capture_output=True, text=True, check=True)
            hidden = page.stdout.replace(str(home), "/home/ada")
            PAGE.write_text(without_script_in_page(hidden))
            return shown.seen.replace(str(home), "/home/ada")
        finally:
            subprocess.run([*PROGRAM, "stop"], env=environ, capture_output=True, check=False)


def play(
    shown: Terminal, session: str, path: str, environ: Mapping[str, str], project: Path
) -> None:
    """The turns, and what a person types."""
    steps = (
        f"write {path} <<< {PLAN}", "tool ExitPlanMode {}", f"tool AskUserQuestion {ASKS}",
        "read app.py", 'edit app.py <<< "hello " + name => f"Good day, {name}."',
        f"tool Agent {AGENT}", "background python3 app.py; sleep 1; exit 3",
        "text It greets politely now.",
    )  # fmt: skip
    script = "Then do it.\n[[script\n" + "\n".join(steps) + "\n]]"
    subprocess.run(
        [*PROGRAM, "prompt", "--detach", session, script],
        env=environ, cwd=project, capture_output=True, check=True,
    )  # fmt: skip
    for asked, answer in enumerate(("y", "2", "y", "y"), start=1):
        shown.until("n because …: ", times=asked)  # the last key of each request
        shown.type(answer)
    shown.until("It greets politely now.")
    shown.until("no more steps")


def prompt(client: Client, session: str, words: str, *steps: str) -> None:
    """A turn of the client's."""
    script = f"{words}\n[[script\n" + "\n".join(steps) + "\n]]"
    client.call("session/prompt", sessionId=session, prompt=[{"type": "text", "text": script}])


def plan_path(home: Path) -> str:
    """Where Claude is told to write its plan, as its transcript has it."""
    for transcript in home.rglob("*.jsonl"):
        if found := re.search(r'[^"\\ ]*/plans/[a-z-]+\.md', transcript.read_text()):
            return found[0]
    raise RuntimeError("Claude was not told where to write its plan")


def without_script(output: str) -> str:
    """The output without the scripts that the prompts contain."""
    output = re.sub(r"^\[\[script\n.*?^\]\]\n", "", output, flags=re.DOTALL | re.MULTILINE)
    return re.sub(r" \[\[script [^\n]*? \]\](?=”)", "", output)


def without_script_in_page(page: str) -> str:
    """As `without_script`, for the export, whose title is made of the first prompt."""
    page = re.sub(r"\n\[\[script\n.*?^\]\]", "", page, flags=re.DOTALL | re.MULTILINE)
    return re.sub(r" \[\[script [^\n]*? \]\](?=</(?:title|h1)>)", "", page)


def main() -> None:
    """Write the picture and the page."""
    lines = Text.from_ansi(without_script(record())).split("\n")
    PICTURE.write_text(svg(iter(lines), "pykoclaw-acp attach", "session"))


if __name__ == "__main__":
    main()
