"""How long the event loop of the daemon works at once on long and hostile texts, in CPU time.

The baseline of the rows is a limit of 5 ms, on an idle machine. As a program it is the agent that is
measured: `python -m bench.callbacks FILE` serves on standard streams, and writes the longest callback
(ms) to the file at its end.
"""

from __future__ import annotations

import asyncio
import atexit
import json
import sys
import time
from base64 import b64encode
from pathlib import Path
from typing import Final
from uuid import uuid4

from bench.agents import Agent
from bench.figures import Figures
from bench.lab import WORK, Lab
from bench.turns import HELLO, MS

LIMIT: Final = 5.0  # ms
MARKS: Final = (
    "[CONVERSATION HISTORY - x]\n",
    "[Session Context]\n",
    "\n---\n<user_request>\n",
    "<a>",
    "```\n",
    "word, [x] ",
    "\n",
    "\u200b" * 99 + "\n",
)
MIB: Final = 1024 * 1024
LINES: Final = 700_000  # of ten characters; a line to a client holds 8 MiB
PNG: Final = (
    b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR\x00\x00\x00\x01\x00\x00\x00\x01\x08\x02\x00\x00\x00"
)


def callbacks(lab: Lab, figures: Figures) -> None:
    """Prompts of a MiB, a file, an image, and a load of the session that has them all."""
    agent, file = _start(lab)
    session, _ = agent.new()
    for mark in MARKS:
        words = HELLO + "\n" + mark * (MIB // len(mark))
        agent.prompt(agent.new()[0], words)  # of which its title is made
        agent.prompt(session, words)
    text = {
        "uri": "file:///a.txt",
        "mimeType": "text/plain",
        "text": "word, [x]\n" * LINES,
    }
    agent.prompt(session, HELLO, None, {"type": "resource", "resource": text})
    image = b64encode(PNG.ljust(3 * MIB, b"x")).decode()
    agent.prompt(session, HELLO, None, {"type": "image", "mimeType": "image/png", "data": image})
    _note(figures, "longest callback, prompts of 1 MiB, a file and an image, CPU ms", agent, file)
    agent, file = _start(lab)
    agent.reopen("session/load", session)
    _note(figures, "… a load of the session that has them, CPU ms", agent, file)


def _start(lab: Lab) -> tuple[Agent, Path]:
    file = lab.home / f"callbacks-{uuid4()}"
    variables = lab.environment | {"PYKOCLAW_DATA": str(lab.home / "callbacks")}
    return Agent(
        [sys.executable, "-m", "bench.callbacks", str(file)], variables, lab.home / WORK
    ), file


def _note(figures: Figures, what: str, agent: Agent, file: Path) -> None:
    agent.close()
    figures.note(what, json.loads(file.read_text()), "limit", LIMIT)


def main() -> None:
    """Serve on standard streams."""
    from pykoclaw_acp.cli.program import main as serve

    file, worst = Path(sys.argv[1]), 0.0
    original = asyncio.Handle._run  # noqa: SLF001 - no other place sees each callback

    def run(handle: asyncio.Handle) -> None:
        nonlocal worst
        began = time.thread_time()
        original(handle)
        worst = max(worst, time.thread_time() - began)

    setattr(asyncio.Handle, "_run", run)  # noqa: B010
    atexit.register(lambda: file.write_text(json.dumps(worst * MS)))
    sys.argv = ["pykoclaw-acp", "serve", "--stdio"]
    serve()


if __name__ == "__main__":
    main()
