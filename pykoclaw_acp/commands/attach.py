"""`pykoclaw-acp attach`: a session live in the terminal, with its permission questions."""

from __future__ import annotations

import sys
import threading
from typing import Any, Final

import click

from pykoclaw_acp.commands import show
from pykoclaw_acp.commands.approve import DONE, Decision
from pykoclaw_acp.commands.daemon import ask, follow_live
from pykoclaw_acp.commands.transcript import Terminal
from pykoclaw_acp.errors import CommandFailed, DaemonNotRunning

TURNS: Final = 3  # of the history that are shown first
KEYS: Final[dict[str, Decision]] = {"y": "allow_once", "a": "allow_always", "n": "deny"}


class Questions:
    """Those that are open, oldest first. The terminal's thread shows them, another reads the answers."""

    def __init__(self, terminal: Terminal) -> None:
        self._terminal = terminal
        self._open: dict[str, dict[str, Any]] = {}

    def asked(self, question: dict[str, Any]) -> None:
        """Show one, and how to answer it."""
        self._open[question["id"]] = question
        keys = "y: allow, a: always, n: deny" if question["always"] else "y: allow, n: deny"
        self._terminal.note(f"? {show.one_line(question['title'])}  ({question['id'][:12]})  [{keys}]", fg="yellow")

    def settled(self, question_id: str) -> None:
        """It is answered, here or elsewhere, or moot."""
        if self._open.pop(question_id, None) is not None:
            self._terminal.note(f"  settled ({question_id[:12]})", fg="yellow")

    def answer(self, line: str) -> None:
        """A line that was typed: the key for the oldest question."""
        decision = KEYS.get(line.strip().lower()[:1])
        question = next(iter(list(self._open)), None)
        if decision is None or question is None:
            return
        try:
            ask("questions/answer", start=False, question=question, decision=decision)
            self._terminal.note(f"  {DONE[decision]}", fg="yellow")
        except (CommandFailed, DaemonNotRunning) as error:
            self._terminal.note(f"  {error}", fg="red")


def main(session: str, turns: int = TURNS) -> None:
    """Follow until interrupted, which detaches and nothing else, or until the session is closed."""
    session = ask("sessions/show", session=session)["summary"]["id"]
    terminal = Terminal(lambda text: click.echo(text, nl=False))
    questions = Questions(terminal)
    interactive = sys.stdin is not None and sys.stdin.isatty()
    if interactive:
        threading.Thread(target=_read, args=(questions,), daemon=True).start()
    try:
        for message in follow_live(session, turns, present=interactive):
            kind, params = message["method"].rpartition("/")[2], message["params"]
            if kind == "event":
                terminal.show(params["update"])
            elif kind == "question":
                questions.asked(params)
            elif kind == "settled":
                questions.settled(params["id"])
    except KeyboardInterrupt:
        terminal.note("Detached. What runs goes on.")
    finally:
        terminal.end()


def _read(questions: Questions) -> None:
    for line in sys.stdin:
        questions.answer(line)
