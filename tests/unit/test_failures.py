"""What is said of turns that ended early, and of other programs' errors."""

from __future__ import annotations

import pytest
from claude_agent_sdk import ResultMessage

from pykoclaw_acp.model.events import Text
from pykoclaw_acp.model.failures import TurnFailure
from pykoclaw_acp.worker.failures import (
    early_end,
    fault,
    in_one_line,
    naming,
    of_begun_turn,
    of_own_turn,
    refused_to_root,
    turn_failure,
)


@pytest.mark.parametrize("reason", ["refusal", "max_tokens", "max_turn_requests"])
def test_early_end_is_told_in_own_paragraph(reason: str) -> None:
    (said,) = early_end("turn", reason)
    assert isinstance(said, Text)
    assert said.text.startswith("\n\n**")
    assert said.text.endswith(".\n\n")


@pytest.mark.parametrize("reason", ["end_turn", "cancelled", None])
def test_an_end_in_order_is_not_talked_about(reason: str | None) -> None:
    assert early_end("turn", reason) == []


def test_foreign_text_holds_no_digits_mitto_misreads() -> None:
    assert in_one_line("port 8413 is\n  busy (request req_413ab)") == "port … is busy (request …"
    assert len(in_one_line("x" * 1000)) == 300
    assert in_one_line("\x1b[31mred\0") == "\\x1b[31mred\\x00"


def test_claudes_own_turn_has_no_prompt_to_repeat() -> None:
    overloaded = of_own_turn(failed("API Error: 529 Overloaded.", 529)).message
    begun = "Claude could not go on by itself. "
    wait = "Claude is overloaded. Wait a moment, then send a prompt to have it go on."
    assert overloaded == begun + wait
    refused = of_own_turn(failed("API Error: 400 nope", 400)).message
    assert refused.endswith(" (nope) Send a prompt to have it go on.")


def test_begun_turn_is_continued_not_repeated() -> None:
    cut = failed("API Error: 529 Overloaded.", 529)
    begun = of_begun_turn(cut)
    wait = "Claude is overloaded. Wait a moment, then send “Go on”. What was done before stays."
    assert begun.message == wait
    assert (cut.retryable, begun.retryable) == (True, False)
    refused = failed("API Error: 400 nope", 400)
    assert of_begun_turn(refused).message == refused.message


def error(words: str, status: int) -> str:
    return failed(words, status).message


def failed(words: str, status: int) -> TurnFailure:
    result = ResultMessage(
        subtype="success", duration_ms=1, duration_api_ms=1, is_error=True, num_turns=1, session_id="s", result=words,
        api_error_status=status,
    )  # fmt: skip
    return turn_failure(result, None)


@pytest.mark.parametrize(
    ("words", "status", "told"),
    [
        ("API Error: 529 Overloaded. This is a server-side issue, usually temporary — try again in a moment.", 529,
         "Claude is overloaded. Wait a moment, then send the prompt again."),
        ("API Error: 500 boom. This is a server-side issue, usually temporary — try again in a moment.", 500,
         "Claude's service had an error. Send the prompt again. (boom.)"),
        ("API Error: 500 Internal server error. This is a server-side issue, usually temporary — try again.", 500,
         "Claude's service had an error. Send the prompt again."),
    ],
)  # fmt: skip
def test_what_claude_says_is_not_said_again(words: str, status: int, told: str) -> None:
    assert error(words, status) == told


def test_refused_model_is_named_with_remedy() -> None:
    """And the CLI's own, an option of its command line, is not."""
    said = "There's an issue with the selected model (x-1). Run --model to pick a different model."
    failure = naming(failed(said, 404), "x-1\x1b")
    assert failure.kind == "model_not_found"
    assert failure.message.startswith("The model `x-1\\x1b` is not known")
    assert "`/model`" in failure.message
    assert "--model" not in failure.message
    assert naming(failed("No team may use it.", 404), "x").message.endswith("(No team may use it.)")
    assert naming(failed("Bad.", 400), "x-1") == failed("Bad.", 400)


def test_only_too_large_context_keeps_its_status() -> None:
    assert "413" not in error("API Error: 500 upstream 10.0.0.4:4130", 500)
    assert "413" in error("API Error: 413 request too large", 413)


def test_worker_fault_says_what_ran_out() -> None:
    for error in (MemoryError(), RuntimeError("can't start new thread")):
        kind, message = fault(error)
        assert kind in {"out_of_memory", "out_of_processes"}
        assert "raise the limit" in message
    kind, message = fault(ValueError("413"))
    assert (kind, "`pykoclaw-acp logs --workers`" in message, "413" in message) == (
        "internal",
        True,
        False,
    )


def test_a_refusal_to_root_names_the_remedy() -> None:
    said = "--dangerously-skip-permissions cannot be used with root/sudo privileges"
    assert "IS_SANDBOX=1" in (refused_to_root(said) or "")
    assert refused_to_root("no such option") is None
