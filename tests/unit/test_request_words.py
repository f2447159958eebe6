"""What the command line says of a permission request: how to answer it, and what came of that."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from pykoclaw_acp.commands import prompt
from pykoclaw_acp.model.events import TextPart
from pykoclaw_acp.model.permissions import Form, PermissionRequest
from pykoclaw_acp.model.questions import Question, QuestionOption, described
from pykoclaw_acp.protocol.control.following import QuestionNotification
from pykoclaw_acp.server.command_client import whole
from pykoclaw_acp.sessions.permissions import words
from pykoclaw_acp.sessions.permissions.decisions import by_operator

CALL = PermissionRequest(
    epoch=1,
    ask_id="0123456789abcdef",
    turn_id="t",
    tool_call_id="c",
    title="git push",
    tool_kind="execute",
    tool="Bash",
    input={"command": "git push"},
    content=(TextPart("command:\n```sh\ngit push\n```"),),
)
WHICH = Question("Which?", "H", (QuestionOption("A", "the first"), QuestionOption("B")))
ASKS = replace(
    CALL,
    title="Ask: Which?",
    tool="AskUserQuestion",
    content=(TextPart(described((WHICH,))),),
    questions=(WHICH,),
)
RULED = replace(CALL, always="`git push`", rules=("Bash(git push)",))
FORM = replace(CALL, title="Form", form=Form("good", "Your name?", {}))
PLAN = replace(CALL, plan=True, always="edits (mode Accept edits)")
EDITS = replace(CALL, always="edits (turns on the mode Accept edits)", mode=True)


def told(request: PermissionRequest) -> dict[str, Any]:
    """What the daemon tells `prompt` of it."""
    notice = QuestionNotification(
        id=request.ask_id,
        session="s",
        title=request.title,
        always=request.always is not None,
        **whole(request),
    )
    return dict(msgspec.json.decode(msgspec.json.encode(notice)))


@pytest.mark.parametrize(
    ("multiple", "given", "answer"),
    [
        (False, "2", "B"),
        (False, "B", "B"),
        (False, "1,2", "1,2"),
        (True, "1, 2", "A, B"),
        (True, "2,2", "B"),
        (True, "A, 2", "A, 2"),
        (False, "3", "3"),
        (False, "1 of each", "1 of each"),
    ],
)
def test_number_of_a_choice_answers_with_label(multiple: bool, given: str, answer: str) -> None:
    request = replace(ASKS, questions=(replace(WHICH, multiple=multiple),))
    decided = by_operator(request, "allow_once", "cli", given=[given])
    assert decided.content == {"answers": {"Which?": answer}}


def test_label_that_is_number_is_no_place() -> None:
    how_many = Question("How many?", options=(QuestionOption("2"), QuestionOption("1")))
    request = replace(ASKS, questions=(WHICH, how_many))
    decided = by_operator(request, "allow_once", "cli", given=["2", "2"])
    assert decided.content == {"answers": {"Which?": "B", "How many?": "2"}}
    workers = Question("Workers?", options=(QuestionOption("2"), QuestionOption("4")))
    decided = by_operator(replace(ASKS, questions=(workers,)), "allow_once", "cli", given=["1"])
    assert decided.content == {"answers": {"Workers?": "1"}}


@pytest.mark.parametrize(
    ("request_", "shown", "options"),
    [
        (ASKS, "  │ 1. A: the first", ["--answer TEXT: answer", "--deny: Decline"]),
        (
            RULED,
            "  │   git push",
            [
                "--allow: Allow once",
                "--always: Always allow `git push` in this session",
                "--lasting: Always allow `git push`, in later sessions in this directory too",
                "--deny: Reject",
            ],
        ),
        (CALL, "  │   git push", ["--allow: Allow once", "--deny: Reject"]),
        (
            replace(PLAN, former="dontAsk"),
            "  │   git push",
            [
                "--allow: Approve, and ask for each edit",
                "--always: Approve, and accept edits",
                "--former: Approve, and go back to the mode Don't ask",
                "--deny: Keep planning",
            ],
        ),
        (FORM, "  │ Your name?", ["--deny: Decline"]),
    ],
    ids=["question", "rules", "once", "plan", "form"],
)
@pytest.mark.parametrize("as_json", [False, True])
def test_prompt_names_options_that_work(
    request_: PermissionRequest,
    shown: str,
    options: list[str],
    as_json: bool,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def stream(*_: Any, **__: Any) -> Generator[dict[str, Any], None, dict[str, Any]]:
        yield {"method": "_pykoclaw.dev/question", "params": told(request_)}
        return {"state": "done", "text": "", "error": None, "session": "s"}

    monkeypatch.setattr(prompt, "stream", stream)
    assert prompt.main(None, "Hi", detach=False, key=None, as_json=as_json) == 0
    lines = capsys.readouterr().err.splitlines()
    assert lines[:2] == ["Claude waits for an answer.", request_.title]
    assert shown in lines
    at = lines.index("Answer with: pykoclaw-acp approve 0123456789ab OPTION")
    assert [one for one in lines[at + 1 :] if one.startswith("  ")] == [
        f"  {one}" for one in options
    ]


@pytest.mark.parametrize(
    ("request_", "option", "reason", "effect"),
    [
        (PLAN, "allow_once", "", "asks before each edit (mode Ask first)"),
        (PLAN, "allow_always", "", "edits unasked (mode Accept edits)"),
        (PLAN, "reject_once", "", "Not approved: Claude is told to ask what should change"),
        (PLAN, "reject_once", "Smaller.", "Not approved: Claude is told what should change"),
        (
            EDITS,
            "allow_always",
            "",
            "Until another mode is chosen: edits (turns on the mode Accept",
        ),
        (ASKS, "reject_once", "", "Declined: Claude is told"),
        (FORM, "reject_once", "", "Declined: the MCP server"),
        (RULED, "allow_always", "", "for the rest of the session; `pykoclaw-acp rules list`"),
        (replace(CALL, always="x"), "allow_always", "", "A mode that was turned on stays"),
        (CALL, "allow_once", "", None),
        (CALL, "reject_once", "", None),
        (ASKS, "allow_once", "", None),
    ],
)
def test_effect_of_decision_is_what_happens(
    request_: PermissionRequest, option: str, reason: str, effect: str | None
) -> None:
    said = words.effect(request_, option, reason)
    assert said == effect or (said is not None and effect is not None and effect in said)
