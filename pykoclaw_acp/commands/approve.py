"""`pykoclaw-acp approve`: permission questions, answered from the command line."""

from __future__ import annotations

from typing import Any, Final, Literal

import click

from pykoclaw_acp.commands import show
from pykoclaw_acp.commands.daemon import ask

Decision = Literal["allow_once", "allow_always", "deny"]
DONE: Final = {"allow_once": "Allowed.", "allow_always": "Allowed for the rest of the session.", "deny": "Denied."}


def list_open(as_json: bool) -> None:
    """Show the questions that wait."""
    questions = ask("questions/list")
    if as_json:
        show.as_json(questions)
    elif not questions:
        click.echo("No question waits.")
    else:
        show.table(
            ("question", "session", "waits", "until", "asked for"),
            [
                (
                    one["id"][:12],
                    one["session"][:8],
                    show.since(one["askedAt"]),
                    _until(one),
                    show.one_line(one["title"]),
                )
                for one in questions
            ],
        )
        click.echo("\nAnswer one with `pykoclaw-acp approve QUESTION --allow`, --always or --deny.")


def answer(question: str, decision: Decision) -> None:
    """Answer one."""
    ask("questions/answer", question=question, decision=decision)
    click.echo(DONE[decision])


def _until(question: dict[str, Any]) -> str:
    if question["parked"]:
        return "answered (parked)"
    return show.when(question["deadline"]) if question["deadline"] else "answered"
