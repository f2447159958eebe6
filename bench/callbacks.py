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
from bench.lab import Lab
from bench.turns import HELLO, MS

LIMIT: Final = 5.0  # ms
MARKS: Final = (
    "[CONVERSATION HISTORY - x]\n",
    "[Session Context]\n",
    "\n---\n<user_request>\n",
    "<a>",
    "```\n",
    "word, [x] ",
)
MIB: Final = 1024 * 1024
LINES: Final = 700_000  # of ten characters; a line to a client holds 8 MiB
PNG: Final = (
    b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR\x00\x00\x00\x01\x00\x00\x00\x01\x08\x02\x00\x00\x00"
)


def callbacks(lab: Lab, figures: Figures, size: int) -> None:
    """Prompts of so many MiB, and loads of the session that has them all."""
    agent, file = _start(lab)
    session, _ = agent.new()
    for mark in MARKS:
        agent.prompt(session, HELLO + "\n" + mark * (size * MIB // len(mark)))
    text = {
        "uri": "file:///a.txt",
        "mimeType": "text/plain",
        "text": "word, [x]\n" * (size * 10**5),
    }
    agent.prompt(session, HELLO, None, {"type": "resource", "resource": text})
    image = b64encode(PNG.ljust(3 * MIB, b"x")).decode()
    agent.prompt(session, HELLO, None, {"type": "image", "mimeType": "image/png", "data": image})
    _note(figures, f"longest callback, prompts of {size} MiB, CPU ms", agent, file)
    agent, file = _start(lab)
    agent.reopen("session/load", session)
    _note(figures, "… loads of a session that has them, CPU ms", agent, file)


def _start(lab: Lab) -> tuple[Agent, Path]:
    file = lab.home / f"callbacks-{uuid4()}"
    lab.commands["callbacks"] = [sys.executable, "-m", "bench.callbacks", str(file)]
    return lab.start("callbacks", PYKOCLAW_DATA=str(lab.home / "callbacks")), file


def _note(figures: Figures, what: str, agent: Agent, file: Path) -> None:
    agent.close()
    figures.note(what, json.loads(file.read_text()), "limit", LIMIT)


class Measured:
    """Callbacks of all event loops; `worst` is the longest (s, CPU time of its thread)."""

    def __init__(self) -> None:
        self.worst = 0.0
        self._run = asyncio.Handle._run  # noqa: SLF001 - no other place sees each callback

    def run(self, handle: asyncio.Handle) -> None:
        """Run one."""
        began = time.thread_time()
        self._run(handle)
        self.worst = max(self.worst, time.thread_time() - began)


def main() -> None:
    """Serve on standard streams."""
    from pykoclaw_acp.cli.program import main as serve

    measured, file = Measured(), Path(sys.argv[1])
    run = measured.run

    def _run(handle: asyncio.Handle) -> None:  # a function, which becomes a method
        run(handle)

    setattr(asyncio.Handle, "_run", _run)  # noqa: B010
    atexit.register(lambda: file.write_text(json.dumps(measured.worst * MS)))
    sys.argv = ["pykoclaw-acp", "serve", "--stdio"]
    serve()


if __name__ == "__main__":
    main()
