"""`pykoclaw-acp attach`: follow a session in the terminal, and answer its permission requests."""

from __future__ import annotations

import contextlib
import os
import re
import select
import sys
import threading
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal

from pykoclaw_acp import terminal
from pykoclaw_acp.commands import settlement_words
from pykoclaw_acp.commands.approve import DONE, decide
from pykoclaw_acp.commands.attended import Screen, answering, is_attended
from pykoclaw_acp.commands.daemon import ask, follow_live
from pykoclaw_acp.commands.permission_request import choices, is_plan, rendered, tells_why
from pykoclaw_acp.commands.show import one_line
from pykoclaw_acp.commands.transcript import TranscriptPrinter
from pykoclaw_acp.errors import CommandFailed, DaemonNotRunning
from pykoclaw_acp.protocol.control.decisions import OperatorDecision
from pykoclaw_acp.terminal import joined, shown

TURNS: Final = 3  # turns of history shown first
KEYS: Final[dict[OperatorDecision, str]] = {
    "allow_once": "y",
    "allow_always": "a",
    "allow_lasting": "l",
    "allow_former": "f",
    "deny": "n",
}
LOOK: Final = "v"
# Whole words: what begins with one of the keys by chance decides nothing.
_TYPED: Final[dict[str, OperatorDecision | Literal["view"]]] = {
    "y": "allow_once",
    "yes": "allow_once",
    "a": "allow_always",
    "always": "allow_always",
    "l": "allow_lasting",
    "lasting": "allow_lasting",
    "f": "allow_former",
    "former": "allow_former",
    LOOK: "view",
    "view": "view",
}
_REFUSED: Final = re.compile(r"(?:n|no)(?:[\s,.:;]+(?P<reason>.*))?", re.DOTALL | re.IGNORECASE)
# Where any text is an answer, fewer lines are a refusal.
_ANSWER_REFUSED: Final = re.compile(r"n(?:\s+(?P<reason>because\b.*))?", re.DOTALL | re.IGNORECASE)
_BETWEEN: Final = "Put ; between the answers to two questions."
ECHOED: Final = 40  # characters of a line that is not understood
LONGEST_LINE: Final = 64 * 1024  # bytes; a terminal's own limit is lower
PASTED: Final = 0.05  # s within which the lines of a pasted text come; nobody types as fast


class PendingRequests:
    """Pending permission requests, oldest first; one thread shows them, another reads the answers.
    `otherwise`: what to do with text that is no answer, said where nothing is asked.

    A typed line, or a pasted text of several, answers the request whose keys were shown last. The next
    one's are shown when that is settled; what was typed for it until then is dropped. A request longer
    than the terminal must be viewed in a pager before it can be allowed.
    """

    def __init__(self, page: TranscriptPrinter, screen: Screen, otherwise: str = "") -> None:
        self._page = page
        self._otherwise = otherwise
        self._screen = screen
        self._lock = threading.RLock()
        self._open: dict[str, dict[str, Any]] = {}
        self._unseen: set[str] = set()
        self._current: str | None = None  # what a line answers
        self._answering: str | None = None  # what the daemon was just given an answer to

    def asked(self, question: dict[str, Any]) -> None:
        """Show a request, and how to answer it, or which one comes first."""
        with self._lock:
            self._open[question["id"]] = question
            whole = rendered(question)
            if terminal.is_terminal() and terminal.too_long(whole):
                self._unseen.add(question["id"])
                self._page.note(f"? {question['title']}", fg="yellow")
            else:
                self._page.block(joined([shown("? ", fg="yellow"), whole]))
            if self._current in (None, question["id"]):
                self._expect(question)
            else:
                self._page.note(
                    f"  ({_short(question['id'])})  comes after ({_short(self._current)})",
                    fg="yellow",
                )

    def settled(self, question_id: str, how: Mapping[str, Any] | None = None) -> None:
        """The request was settled, here or elsewhere; `how`: as the daemon tells it."""
        with self._lock:
            self._unseen.discard(question_id)
            question = self._open.pop(question_id, None)
            if question_id == self._answering:
                return  # what comes of the answer says so
            if question is not None:
                said = settlement_words.of(question, how or {})
                self._page.note(f"  settled ({_short(question_id)}){said}", fg="yellow")
            if question_id == self._current:
                terminal.forget_typed()
                self._go_on()

    def forget(self) -> None:
        """Nothing is known of the requests any more: what is pending will be shown again."""
        with self._lock:
            self._open.clear()
            self._unseen.clear()
            if self._current is not None and self._current != self._answering:
                terminal.forget_typed()
                self._current = None

    def read(self) -> bool:
        """Wait for a typed line, and take it as an answer; False when the input has ended."""
        select.select([sys.stdin], [], [])
        with self._lock:
            if not select.select([sys.stdin], [], [], 0)[0]:
                return True  # it was dropped
            lines = [os.read(sys.stdin.fileno(), LONGEST_LINE)]
            while lines[-1] and select.select([sys.stdin], [], [], PASTED)[0]:
                lines.append(os.read(sys.stdin.fileno(), LONGEST_LINE))
            question = self._expected()
        self._take(b"".join(lines).decode(errors="replace"), question)
        return bool(lines[-1])

    def answer(self, line: str) -> None:
        """Take a line as an answer. Answers to several questions are separated by semicolons."""
        self._take(line, self._expected())

    def _expected(self) -> dict[str, Any] | None:
        """The request that a line answers now."""
        return self._open.get(self._current or "")

    def _take(self, line: str, question: dict[str, Any] | None) -> None:
        if question is None:
            if line.strip():
                self._page.note(f"Nothing is asked now.{self._otherwise}", fg="yellow")
            return
        over = self._answer(line, question)
        with self._lock:
            self._answering = None
            if over:
                self._unseen.discard(question["id"])
                self._open.pop(question["id"], None)
            if question["id"] == self._current and question["id"] not in self._open:
                self._go_on()

    def _answer(self, line: str, question: dict[str, Any]) -> bool:
        """Answer the request; returns whether it is settled, by the line or by something else."""
        typed, asks = line.strip(), bool(question.get("questions"))
        if not typed:
            return False
        refused = (_ANSWER_REFUSED if asks else _REFUSED).fullmatch(typed)
        if refused and typed not in _labels(question):
            reason = (refused["reason"] or "").strip()
            return self._decide(question["id"], "deny", **({"reason": reason} if reason else {}))
        unseen = question["id"] in self._unseen
        decision = _TYPED.get(typed.lower())
        if asks and not (unseen and decision == "view"):
            decision = None
        if decision == "view":
            self._screen.page(rendered(question))
            self._unseen.discard(question["id"])
        elif decision not in (None, *_offered(question)) or (decision is None and not asks):
            keys = ", ".join(one.partition(":")[0] for one in self._keys(question))
            self._page.note(f"  “{typed[:ECHOED]}” is none of the keys here: {keys}", fg="red")
        elif unseen:
            self._page.note(f"  View the whole request first: {LOOK} and Enter.", fg="red")
        elif asks:
            count = len(question["questions"])
            answers = [one.strip() for one in (typed.split(";") if count > 1 else [typed])]
            if len(answers) == count and any(answers):
                return self._decide(question["id"], "allow_once", answers=answers)
            self._page.note(f"  Not answered: Claude asks {count} questions. {_BETWEEN}", fg="red")
        elif decision is not None:
            return self._decide(question["id"], decision)
        return False

    def _decide(self, question: str, decision: OperatorDecision, **more: Any) -> bool:
        self._answering = question
        try:
            done = decide(question, decision, start=False, **more)
        except (CommandFailed, DaemonNotRunning) as error:
            self._page.note(f"  {error}", fg="red")
            return not _is_pending(question)
        self._page.note(f"  {done}", fg="yellow")
        return True

    def _go_on(self) -> None:
        """Show again the oldest request, which comes now."""
        self._current = None
        if (question := next(iter(self._open.values()), None)) is not None:
            self._page.note(f"? {question['title']}", fg="yellow")
            self._expect(question)

    def _expect(self, question: dict[str, Any]) -> None:
        """Show how to answer the request, which the next line is for."""
        self._current = question["id"]
        lines = [f"  ({_short(question['id'])})", *(f"    {key}" for key in self._keys(question))]
        self._page.block(
            joined(
                part for one in lines for part in (shown(one, fg="yellow"), shown("\n", "command"))
            )
        )

    def _keys(self, question: dict[str, Any]) -> list[str]:
        """What can be typed, and what it means."""
        keys = choices(question, KEYS)
        if KEYS["deny"] in _labels(question):  # there it is an answer
            keys = []
        if tells_why(question):
            why = "what to change in the plan" if is_plan(question) else "the reason, for Claude"
            keys.append(f"{KEYS['deny']} because …: with {why}")
        if question.get("questions"):
            several = len(question["questions"]) > 1
            keys.insert(
                0, f"Type the answers, in order. {_BETWEEN}" if several else "Type the answer."
            )
        if question["id"] in self._unseen:
            lines = rendered(question).count("\n")
            keys.insert(0, f"{LOOK}: view all {lines} lines, which comes first")
        return keys


def _offered(question: dict[str, Any]) -> Sequence[str]:
    """The decisions that the request offers, as far as the daemon says."""
    return list(question.get("choices") or DONE)


def _labels(question: dict[str, Any]) -> set[str]:
    """The labels of its choices."""
    return {
        choice["label"]
        for one in question.get("questions") or []
        for choice in one.get("options", ())
    }


def _is_pending(question: str) -> bool:
    """Whether the daemon says so; if it does not say, True."""
    try:
        return bool(ask("questions/list", start=False, question=question))
    except (CommandFailed, DaemonNotRunning):
        return True


def _short(question_id: str | None) -> str:
    return (question_id or "")[:12]


def main(session: str, turns: int = TURNS) -> None:
    """Follow until the session is closed, or until Ctrl-C, which only detaches."""
    summary = ask("sessions/show", session=session)["summary"]
    session = summary["id"]
    screen = Screen()
    page = TranscriptPrinter(screen.write, outputs=True)
    prompts = f"To prompt: pykoclaw-acp prompt {session[:8]} TEXT"
    requests = PendingRequests(page, screen, f" {prompts}")
    name = one_line(summary["title"], summary["conversation"])
    state = "busy" if summary["busy"] else "idle"
    for line in (f"Following “{name}” ({state}). Ctrl-C leaves.", prompts):
        page.note(line, fg="yellow")
    can_answer = sys.stdin.isatty()
    with answering(requests.read, screen) if can_answer else contextlib.nullcontext():
        try:
            for message in follow_live(session, turns, requests.forget, present=is_attended()):
                kind, params = message["method"].rpartition("/")[2], message["params"]
                if kind == "event":
                    page.show(params["update"])
                elif kind == "question":
                    requests.asked(params)
                elif kind == "settled":
                    requests.settled(params["id"], params)
        except KeyboardInterrupt:
            page.note("Detached. Nothing was stopped.")
        finally:
            page.end()
