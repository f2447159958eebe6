"""`pykoclaw-acp approve`: list, show and answer pending permission requests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from pykoclaw_acp import terminal
from pykoclaw_acp.commands import show
from pykoclaw_acp.commands.daemon import ask
from pykoclaw_acp.commands.permission_request import options, rendered
from pykoclaw_acp.errors import CommandFailed
from pykoclaw_acp.front.call import given_environment
from pykoclaw_acp.protocol.control.decisions import OperatorDecision
from pykoclaw_acp.terminal import Shown, joined, shown

DONE: Final = {
    "allow_once": "Allowed.",
    "allow_always": "Allowed for the rest of the session.",
    "allow_lasting": "Allowed in this directory from now on; `pykoclaw-acp rules list` shows it,"
    " `pykoclaw-acp rules remove` removes it.",
    "allow_former": "Approved, in the mode used before planning.",
    "deny": "Denied.",
}
ANSWERED: Final = "Answered."
_END: Final = shown("\n", "command")
_HOW: Final = "Answer one with `pykoclaw-acp approve REQUEST` and one of its options above.\n"


def list_open(as_json: bool) -> None:
    """List pending requests, with everything that would run."""
    questions = _whole(ask("questions/list"))
    if not questions and not as_json:
        terminal.line("No pending permissions.")
    else:
        _write(questions, as_json)


def show_one(question: str, as_json: bool) -> None:
    """Show the pending requests with this id prefix. Raises CommandFailed if there is none."""
    found = _whole([one for one in ask("questions/list") if one["id"].startswith(question)])
    if not found:
        raise CommandFailed(
            "No pending permission request has this id. `pykoclaw-acp approve` lists them."
        )
    _write(found, as_json)


def answer(
    question: str, decision: OperatorDecision, reason: str = "", answers: Sequence[str] = ()
) -> None:
    """Answer a request; `reason`: of a denial, `answers`: to its questions."""
    more = {"reason": reason} if reason else {"answers": answers} if answers else {}
    terminal.line(decide(question, decision, **more))


def decide(question: str, decision: OperatorDecision, *, start: bool = True, **more: Any) -> str:
    """Answer a request; returns the effect in words. `start`: start a daemon if none runs; `more`:
    the reason or the answers.
    """
    answered = ask(
        "questions/answer",
        start=start,
        question=question,
        decision=decision,
        environment=given_environment(),
        **more,
    )
    return str(answered.get("done") or (ANSWERED if more.get("answers") else DONE[decision]))


def _write(questions: list[dict[str, Any]], as_json: bool) -> None:
    if as_json:
        terminal.as_json(questions)
    else:
        terminal.paged(joined([*(_shown(one) for one in questions), shown(_HOW, "command")]))


def _whole(questions: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Requests with their complete input, fetched one by one: an answer of the daemon has room for
    one.
    """
    found: list[dict[str, Any]] = []
    for one in questions:
        known = ask("questions/list", question=one["id"], whole=True)
        # It may have been settled meanwhile
        found.extend(whole for whole in known if whole["id"] == one["id"])
    return found


def _shown(question: dict[str, Any]) -> Shown:
    facts = (
        f"{question['id'][:12]}  session {question['session'][:8]}, pending for {show.since(question['askedAt'])}, "
        f"until {_until(question)}"
    )
    lines = [shown(facts, fg="yellow")]
    for name, key in (("session", "sessionTitle"), ("directory", "cwd")):
        if known := question.get(key):
            lines.append(shown(f"{name}: {known}"))
    head = [piece for line in lines for piece in (line, _END)]
    return joined([*head, rendered(question), options(question), _END])


def _until(question: dict[str, Any]) -> str:
    if question["parked"]:
        return "answered (parked)"
    return show.when(question["deadline"]) if question["deadline"] else "answered"
