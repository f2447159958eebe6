"""What people are advised to do they can do."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pykoclaw_acp
from pykoclaw_acp.error_kinds import ErrorKind
from pykoclaw_acp.model.failures import TurnFailure
from pykoclaw_acp.model.limit_waits import WAIT
from pykoclaw_acp.model.turns import Outcome, Turn, TurnState
from pykoclaw_acp.sessions.turns import limits

PACKAGE = Path(pykoclaw_acp.__file__).parent


def sentences() -> Iterator[tuple[str, str]]:
    """Texts of several words that name a method, without docstrings, by their module."""
    for path in PACKAGE.rglob("*.py"):
        source = path.read_text()
        if "session/" not in source:
            continue
        tree = ast.parse(source)
        documents = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        yield from (
            (str(path.relative_to(PACKAGE)), node.value)
            for node in ast.walk(tree)
            if isinstance(node, ast.Constant) and id(node) not in documents
            if isinstance(node.value, str) and " " in node.value
        )


def test_nobody_is_told_to_send_cancel() -> None:
    """It is a method of the protocol: a person presses a button, or runs a command."""
    found = list(sentences())
    assert len(found) > 200
    assert [one for one in found if "session/cancel" in one[1]] == []


def test_limit_of_claudes_own_turn_repeats_no_prompt() -> None:
    failure = TurnFailure(ErrorKind.USAGE_LIMIT, "The limit is reached.", resets_at=2_000_000_000)
    outcome = limits.told(Outcome(TurnState.FAILED, failure=failure), None, WAIT)
    assert outcome.failure is not None
    said = "The limit is reached. Send a prompt then to have Claude go on."
    assert outcome.failure.message == said


async def test_limit_names_command_for_its_session() -> None:
    failure = TurnFailure(ErrorKind.USAGE_LIMIT, "The limit is reached.", resets_at=2_000_000_000)
    turn = Turn("t", "5e550123-and-more", [])
    outcome = limits.told(Outcome(TurnState.FAILED, failure=failure), turn, WAIT)
    assert outcome.failure is not None
    assert outcome.failure.message == (
        "The limit is reached. The session resumes by itself then, unless you send a prompt or close"
        " the session before, or run `pykoclaw-acp sessions stop-waiting 5e550123`."
    )
