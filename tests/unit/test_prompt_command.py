"""`pykoclaw-acp prompt`: what is sent, and the exit status."""

from __future__ import annotations

import io
import sys
from collections.abc import Generator
from typing import Any

import pytest

from pykoclaw_acp.commands import prompt
from pykoclaw_acp.errors import CommandFailed

Messages = Generator[dict[str, Any], None, dict[str, Any]]


class Daemon:
    """Answers a prompt with `state`; keeps what it was sent."""

    def __init__(self, state: str) -> None:
        self.state = state
        self.sent: list[dict[str, Any]] = []

    def stream(self, _: str, **params: Any) -> Messages:
        self.sent.append(params)
        yield from ()
        if self.state == "interrupted":
            raise KeyboardInterrupt
        error = None if self.state == "done" else {"message": "It is so."}
        return {"state": self.state, "session": "s", "turnId": "t", "text": "", "error": error}


def sent(monkeypatch: pytest.MonkeyPatch, state: str, text: str | None, **given: Any) -> Any:
    """The exit status, and the text that was sent."""
    daemon = Daemon(state)
    monkeypatch.setattr(prompt, "stream", daemon.stream)
    options = {"detach": False, "key": None, "as_json": False, **given}
    return prompt.main("s", text, **options), daemon.sent[0]["text"]


@pytest.mark.parametrize("as_json", [False, True])
@pytest.mark.parametrize(
    ("state", "status"),
    [("done", 0), ("failed", 1), ("cancelled", 4), ("unknown", 5), ("interrupted", 130)],
)
def test_exit_status_says_how_the_turn_ended(
    monkeypatch: pytest.MonkeyPatch, state: str, status: int, as_json: bool
) -> None:
    assert sent(monkeypatch, state, "Hello.", as_json=as_json) == (status, "Hello.")


@pytest.mark.parametrize("text", ["-", None])
def test_prompt_is_read_from_standard_input(
    monkeypatch: pytest.MonkeyPatch, text: str | None
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("Two\nlines.\n"))
    assert sent(monkeypatch, "done", text) == (0, "Two\nlines.\n")
    monkeypatch.setattr("sys.stdin", io.StringIO(" \n"))
    with pytest.raises(CommandFailed, match="empty"):
        sent(monkeypatch, "done", text)


def test_standard_input_is_left_alone_with_a_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("for the script that goes on"))
    assert sent(monkeypatch, "done", "Hello.") == (0, "Hello.")
    assert sys.stdin.read() == "for the script that goes on"
