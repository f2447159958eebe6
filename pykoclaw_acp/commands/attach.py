"""`pykoclaw-acp attach`: follow a session in the terminal, and answer its permission requests."""

from __future__ import annotations

import sys
import threading
from collections.abc import Sequence
from typing import Any, Final

from pykoclaw_acp import terminal
from pykoclaw_acp.commands.approve import ANSWERED, DONE, Decision
from pykoclaw_acp.commands.daemon import ask, follow_live
from pykoclaw_acp.commands.question import choices, rendered
from pykoclaw_acp.commands.transcript import Terminal
from pykoclaw_acp.errors import CommandFailed, DaemonNotRunning
from pykoclaw_acp.terminal import Shown

TURNS: Final = 3  # turns of history shown first
KEYS: Final[dict[str, Decision]] = {"y": "allow_once", "a": "allow_always", "n": "deny"}
LOOK: Final = "v"


class Screen:
    """Buffers output while a pager owns the terminal."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._held: list[Shown] | None = None

    def write(self, text: Shown) -> None:
        with self._lock:
            if self._held is None:
                terminal.write(text)
            else:
                self._held.append(text)

    def page(self, text: Shown) -> None:
        """Show the text in a pager, until it is closed."""
        with self._lock:
            self._held = []
        try:
            terminal.paged(text)
        finally:
            with self._lock:
                held, self._held = self._held, None
                for one in held:
                    terminal.write(one)


class Questions:
    """Pending permission requests, oldest first; one thread shows them, another reads the answers.

    A request longer than the terminal must be viewed in a pager before it can be allowed.
    """

    def __init__(self, page: Terminal, screen: Screen) -> None:
        self._page = page
        self._screen = screen
        self._open: dict[str, dict[str, Any]] = {}
        self._unseen: set[str] = set()

    def asked(self, question: dict[str, Any]) -> None:
        """Show a request, and how to answer it."""
        self._open[question["id"]] = question
        keys = choices(question, {decision: key for key, decision in KEYS.items()})
        if question.get("questions"):
            between = ", with ; between two questions" if len(question["questions"]) > 1 else ""
            keys = f"type the answer{between}; {keys}"
        whole = rendered(question)
        if terminal.is_terminal() and terminal.too_long(whole):
            self._unseen.add(question["id"])
            lines = whole.count("\n")
            self._page.note(f"? {question['title']}", fg="yellow")
            keys = f"{LOOK}: view all {lines} lines, which comes first; {keys}"
        else:
            self._page.note("?", fg="yellow")
            self._page.block(whole)
        self._page.note(f"  ({question['id'][:12]})  [{keys}]", fg="yellow")

    def settled(self, question_id: str) -> None:
        """The request was settled, here or elsewhere."""
        self._unseen.discard(question_id)
        if self._open.pop(question_id, None) is not None:
            self._page.note(f"  settled ({question_id[:12]})", fg="yellow")

    def answer(self, line: str) -> None:
        """A typed line: the answer to the oldest request. Answers to several questions are separated
        by semicolons.
        """
        key = line.strip().lower()[:1]
        decision = KEYS.get(key)
        question = next(iter(list(self._open.values())), None)
        if question is not None and question.get("questions"):
            if line.strip():
                refuses = line.strip().lower() == "n"
                answers = [] if refuses else [one.strip() for one in line.split(";")]
                self._decide(question["id"], "deny" if refuses else "allow_once", answers)
            return
        if question is None or (decision is None and key != LOOK):
            return
        if decision is not None and decision not in (question.get("choices") or DONE):
            self._page.note(f"  This is not offered here: {key}.", fg="red")
        elif decision is None:
            self._screen.page(rendered(question))
            self._unseen.discard(question["id"])
        elif decision != "deny" and question["id"] in self._unseen:
            self._page.note(f"  View the whole request first: {LOOK} and Enter.", fg="red")
        else:
            self._decide(question["id"], decision)

    def _decide(self, question: str, decision: Decision, answers: Sequence[str] = ()) -> None:
        more: dict[str, Any] = {"answers": answers} if answers else {}
        try:
            answered = ask(
                "questions/answer", start=False, question=question, decision=decision, **more
            )
            done = answered.get("done") or (ANSWERED if answers else DONE[decision])
            self._page.note(f"  {done}", fg="yellow")
        except (CommandFailed, DaemonNotRunning) as error:
            self._page.note(f"  {error}", fg="red")


def main(session: str, turns: int = TURNS) -> None:
    """Follow until the session is closed, or until Ctrl-C, which only detaches."""
    session = ask("sessions/show", session=session)["summary"]["id"]
    screen = Screen()
    page = Terminal(screen.write)
    questions = Questions(page, screen)
    interactive = sys.stdin is not None and sys.stdin.isatty()
    if interactive:
        threading.Thread(target=read_answers, args=(questions,), daemon=True).start()
    try:
        for message in follow_live(session, turns, present=interactive):
            kind, params = message["method"].rpartition("/")[2], message["params"]
            if kind == "event":
                page.show(params["update"])
            elif kind == "question":
                questions.asked(params)
            elif kind == "settled":
                questions.settled(params["id"])
    except KeyboardInterrupt:
        page.note("Detached. A running turn continues.")
    finally:
        page.end()


def read_answers(questions: Questions) -> None:
    """Take the lines of standard input as answers, until it ends."""
    for line in sys.stdin:
        questions.answer(line)
