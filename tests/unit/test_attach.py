"""Which permission request a line counts for that is typed in an attached terminal."""

from __future__ import annotations

import contextlib
import os
import pty
import select
import signal
import sys
import threading
from collections.abc import Callable, Generator, Iterator
from typing import Any

import click
import pytest

from pykoclaw_acp import terminal
from pykoclaw_acp.commands import approve, attach, attended, daemon, prompt
from pykoclaw_acp.commands.transcript import TranscriptPrinter
from pykoclaw_acp.errors import CommandFailed, DaemonNotRunning
from pykoclaw_acp.front import resuming
from pykoclaw_acp.terminal import Shown
from tests.waiting import MOMENT, eventually_sync

KEYS = """\
    y: allow
    n: deny
    n because …: with the reason, for Claude
"""
ENDED = {"session": "s", "turnId": "t", "state": "done", "text": "", "error": None}
LONG = [{"type": "content", "content": {"type": "text", "text": "a line\n" * 9}}]
Stream = Callable[..., Generator[dict[str, Any], None, Any]]
NOT_PENDING = "This permission request is no longer pending."


class Attached:
    """A terminal with the requests that it shows; what the daemon was told is in `decided`, and those
    in `over` are pending no more.
    """

    def __init__(self) -> None:
        self.keyboard, self.stdin = pty.openpty()
        self.decided: list[tuple[str, str]] = []
        self.over: set[str] = set()
        self.reasons: list[str] = []
        self.answers: list[list[str]] = []
        self.before_answer: Callable[[], None] = lambda: None
        self._written: list[str] = []
        self.requests = attach.PendingRequests(TranscriptPrinter(self.write), attended.Screen())

    def write(self, text: Shown) -> None:
        self._written.append(click.unstyle(text))

    @property
    def written(self) -> str:
        return "".join(self._written)

    def ask(self, method: str, **params: Any) -> Any:
        question = params.get("question", "")
        if method == "sessions/show":
            return {"summary": {"id": "0123456789", "title": "My title", "busy": False,
                                "conversation": "acp-s"}}  # fmt: skip
        if method == "questions/list":
            return [] if question in self.over else [asked(question)]
        self.before_answer()
        if question in self.over:
            raise CommandFailed(NOT_PENDING)
        self.decided.append((question, params["decision"]))
        self.reasons.append(params.get("reason", ""))
        self.answers.append(params.get("answers", []))
        return {}

    def read(self) -> None:
        """Let the line that was typed be taken."""
        eventually_sync(lambda: select.select([sys.stdin], [], [], 0)[0], 10)
        self.requests.read()

    def type(self, keys: str) -> None:
        """Type keys; returns when the terminal has them."""
        os.write(self.keyboard, keys.encode())
        echo = b""
        wanted = len(keys.replace("\n", "\r\n"))

        def echoed() -> bool:
            nonlocal echo
            echo += os.read(self.keyboard, 1024)
            return len(echo) >= wanted

        eventually_sync(echoed)

    def leave(self) -> None:
        """Type Ctrl-D; returns when nothing reads any more."""
        os.write(self.keyboard, b"\x04")
        eventually_sync(lambda: not any(one.name == "answers" for one in threading.enumerate()))


def asked(question: str, **more: Any) -> dict[str, Any]:
    return {
        "id": question,
        "title": f"Title of {question}",
        "always": False,
        "tool": "Bash",
        "input": {},
        "content": [],
        **more,
    }


@pytest.fixture
def attached(monkeypatch: pytest.MonkeyPatch) -> Iterator[Attached]:
    made = Attached()
    monkeypatch.setattr(attach, "ask", made.ask)
    monkeypatch.setattr(approve, "ask", made.ask)
    with os.fdopen(made.stdin, closefd=True) as stdin:
        monkeypatch.setattr(sys, "stdin", stdin)
        yield made
    os.close(made.keyboard)


def test_pasted_lines_are_one_reason(attached: Attached) -> None:
    """The last of them is a key, which would allow what is asked next."""
    attached.requests.asked(asked("q1"))
    attached.requests.asked(asked("q2"))
    attached.type("n please do it\nin another way\ny\n")
    attached.read()
    assert attached.decided == [("q1", "deny")]
    assert attached.reasons == ["please do it\nin another way\ny"]
    attached.type("n\n")
    attached.read()
    assert attached.decided[1:] == [("q2", "deny")]


def test_pasted_keys_allow_nothing(attached: Attached) -> None:
    attached.requests.asked(asked("q1"))
    attached.type("y\ny\n")
    attached.read()
    assert attached.decided == []
    assert "is none of the keys here" in attached.written


def test_text_while_nothing_is_asked_is_refused(attached: Attached) -> None:
    page, screen = TranscriptPrinter(attached.write), attended.Screen()
    requests = attach.PendingRequests(page, screen, " To prompt: so.")
    requests.answer(" \n")
    assert attached.written == ""
    requests.answer("can I type here?\n")
    assert attached.written == "Nothing is asked now. To prompt: so.\n"


@pytest.mark.parametrize(("busy", "state"), [(False, "idle"), (True, "busy")])
def test_first_and_last_line_are_true(
    attached: Attached, monkeypatch: pytest.MonkeyPatch, busy: bool, state: str
) -> None:
    def follow_live(*_: Any, **__: Any) -> Iterator[dict[str, Any]]:
        yield from ()
        raise KeyboardInterrupt

    summary = {"id": "0123456789", "title": None, "conversation": "acp-s", "busy": busy}
    monkeypatch.setattr(attach, "ask", lambda *_, **__: {"summary": summary})
    monkeypatch.setattr(attach, "follow_live", follow_live)
    monkeypatch.setattr(attach, "answering", lambda *_: contextlib.nullcontext())
    monkeypatch.setattr(terminal, "write", lambda text, **_: attached.write(text))
    attach.main("my session")
    assert attached.written == (
        f"Following “acp-s” ({state}). Ctrl-C leaves.\n"
        "To prompt: pykoclaw-acp prompt 01234567 TEXT\n"
        "Detached. Nothing was stopped.\n"
    )


def test_half_typed_answer_counts_for_no_other_question(attached: Attached) -> None:
    attached.requests.asked(asked("q1"))
    attached.requests.asked(asked("q2"))
    attached.type("y")
    attached.requests.settled("q1")
    attached.type("\n")
    attached.read()
    assert attached.decided == []
    attached.type("n\n")
    attached.read()
    assert attached.decided == [("q2", "deny")]


def test_next_question_is_reshown_at_its_turn(attached: Attached) -> None:
    attached.requests.asked(asked("q1"))
    attached.requests.asked(asked("q2"))
    assert "(q2)  comes after (q1)" in attached.written
    attached.requests.answer("y\n")
    assert attached.written.endswith(f"Allowed.\n? Title of q2\n  (q2)\n{KEYS}")
    attached.requests.settled("q1")
    attached.requests.answer("y\n")
    assert attached.decided == [("q1", "allow_once"), ("q2", "allow_once")]


@pytest.mark.parametrize("line", ["z", "Blue", "allow", "yes please", "not sure", "b" * 9000])
def test_line_that_is_no_key_names_keys(attached: Attached, line: str) -> None:
    attached.requests.asked(asked("q1"))
    attached.requests.answer(f"{line}\n")
    said = f"  “{line[:40]}” is none of the keys here: y, n, n because …\n"
    assert attached.written.endswith(f"  (q1)\n{KEYS}{said}")
    assert attached.decided == []
    attached.requests.answer(" Yes \n")
    assert attached.decided == [("q1", "allow_once")]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("n", ""),
        ("No.", ""),
        ("n because it deletes files", "because it deletes files"),
        ("no, use pnpm", "use pnpm"),
        ("N: first the tests", "first the tests"),
    ],
)
def test_what_follows_n_is_the_reason(attached: Attached, line: str, reason: str) -> None:
    attached.requests.asked(asked("q1"))
    attached.requests.answer(f"{line}\n")
    assert attached.decided == [("q1", "deny")]
    assert attached.reasons == [reason]


def test_plan_is_sent_back_with_changes(attached: Attached) -> None:
    attached.requests.asked(asked("q1", tool="ExitPlanMode"))
    assert "n because …: with what to change in the plan\n" in attached.written
    attached.requests.answer("n because the tests come first\n")
    assert attached.reasons == ["because the tests come first"]


def test_lasting_key_works_where_it_is_offered(attached: Attached) -> None:
    offered = {"allow_once": "Allow once", "allow_lasting": "Always here", "deny": "Reject"}
    attached.requests.asked(asked("q1", choices=offered))
    assert "    y: Allow once\n    l: Always here\n    n: Reject\n" in attached.written
    attached.requests.answer("l\n")
    attached.requests.asked(asked("q2", choices={"allow_once": "Allow once", "deny": "Reject"}))
    attached.requests.answer("l\n")
    assert attached.decided == [("q1", "allow_lasting")]


def test_answer_that_begins_with_n_is_one(attached: Attached) -> None:
    which = [{"question": "Which?", "options": [], "multiple": False}]
    for name in ("q1", "q2"):
        attached.requests.asked(asked(name, questions=which, choices={"deny": "Decline"}))
    attached.requests.answer("no, the other one\n")
    attached.requests.answer("n because none fits\n")
    assert attached.decided == [("q1", "allow_once"), ("q2", "deny")]
    assert attached.reasons == ["", "because none fits"]


def test_label_that_is_a_key_is_an_answer(attached: Attached) -> None:
    for name, label in (("q1", "N"), ("q2", "n")):
        which = {"question": "Which?", "options": [{"label": "Y"}, {"label": label}]}
        attached.requests.asked(asked(name, questions=[which], choices={"deny": "Decline"}))
        attached.requests.answer(f"{label}\n")
    how = "    Type the answer.\n"
    assert f"(q1)\n{how}    n: Decline\n    n because …" in attached.written
    assert f"(q2)\n{how}    n because …" in attached.written
    attached.requests.asked(asked("q3", questions=[which], choices={"deny": "Decline"}))
    attached.requests.answer("N\n")
    assert attached.decided == [("q1", "allow_once"), ("q2", "allow_once"), ("q3", "deny")]
    assert attached.answers == [["N"], ["n"], []]


def test_several_questions_take_as_many_answers(attached: Attached) -> None:
    which = [{"question": "Which?"}, {"question": "How many?"}]
    attached.requests.asked(asked("q1", questions=which, choices={"deny": "Decline"}))
    between = "Put ; between the answers to two questions."
    how = f"Type the answers, in order. {between}"
    assert f"(q1)\n    {how}\n    n: Decline" in attached.written
    for line in ("Blue", "Blue; 2; 3", ";"):
        attached.requests.answer(f"{line}\n")
        said = f"  Not answered: Claude asks 2 questions. {between}\n"
        assert attached.written.endswith(said)
    assert attached.decided == []
    attached.requests.answer("Blue; 2\n")
    attached.requests.asked(asked("q2", questions=which[:1], choices={"deny": "Decline"}))
    attached.requests.answer("Blue; it is calm\n")
    assert attached.answers == [["Blue", "2"], ["Blue; it is calm"]]


def test_question_that_ended_unheard_makes_way(attached: Attached) -> None:
    attached.requests.asked(asked("q1"))
    attached.requests.asked(asked("q2"))
    attached.over.add("q1")
    attached.requests.answer("y\n")
    assert NOT_PENDING in attached.written
    attached.requests.answer("y\n")
    assert attached.decided == [("q2", "allow_once")]


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ({}, ""),  # an older daemon
        ({"outcome": None, "decision": None, "by": None}, ": withdrawn"),
        (
            {"outcome": "selected", "decision": "allow_once", "by": "Z\x1b[2Jed"},
            r": “Allow once”, by Z\x1b[2Jed",
        ),
        (
            {"outcome": "selected", "decision": "deny", "by": "cli"},
            ": “Reject”, by a command, or another terminal",
        ),
        ({"outcome": "denied", "decision": None, "by": "policy"}, ": refused, by the away policy"),
        ({"outcome": "timeout", "by": "timeout"}, ": nobody has answered in time"),
    ],
)
def test_settled_request_says_how_and_by_whom(
    attached: Attached, how: dict[str, Any], words: str
) -> None:
    attached.requests.asked(asked("q1", choices={"allow_once": "Allow once", "deny": "Reject"}))
    attached.requests.settled("q1", {"id": "q1", **how})
    assert attached.written.endswith(f"  settled (q1){words}\n")


def test_question_refused_for_now_stays_open(attached: Attached) -> None:
    attached.requests.asked(asked("q1"))

    def refuse() -> None:
        attached.before_answer = lambda: None
        raise CommandFailed("The database cannot be written.")

    attached.before_answer = refuse
    attached.requests.answer("y\n")
    attached.requests.answer("y\n")
    assert attached.decided == [("q1", "allow_once")]


def test_line_typed_while_answer_travels_counts_for_next(attached: Attached) -> None:
    attached.requests.asked(asked("q1"))
    attached.requests.asked(asked("q2"))

    def settle() -> None:
        attached.type("n\n")
        attached.requests.settled("q1")
        attached.before_answer = lambda: None

    attached.before_answer = settle
    attached.requests.answer("y\n")
    attached.read()
    assert attached.decided == [("q1", "allow_once"), ("q2", "deny")]


def run(command: str, attached: Attached, stream: Stream, monkeypatch: pytest.MonkeyPatch) -> int:
    """The exit status of the command in this terminal, with what `stream` tells."""
    monkeypatch.setattr(daemon, "stream", stream)
    monkeypatch.setattr(prompt, "stream", stream)
    monkeypatch.setattr(terminal, "write", lambda text, **_: attached.write(text))
    monkeypatch.setattr(terminal, "is_terminal", lambda: True)
    if command == "prompt":
        return prompt.main("s", "Hi", detach=False, key=None, as_json=False)
    attach.main("s")
    return 0


@pytest.mark.parametrize(
    ("command", "status", "words"),
    [("attach", 0, "Detached. Nothing"), ("prompt", 130, "The command has ended. What runs")],
)
def test_end_of_input_ends_the_command(
    attached: Attached, command: str, status: int, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise a terminal in which nobody can answer would keep the away policy off."""

    def stream(*_: Any, present: bool, **__: Any) -> Generator[dict[str, Any], None, Any]:
        assert present
        yield {"method": "_pykoclaw.dev/question", "params": asked("q1")}
        attached.leave()
        return ENDED

    assert run(command, attached, stream, monkeypatch) == status
    assert words in attached.written


@pytest.mark.parametrize("shown", [False, True])
def test_attach_into_file_counts_as_nobody(
    attached: Attached, monkeypatch: pytest.MonkeyPatch, shown: bool
) -> None:
    told: list[bool] = []

    def follow_live(*_: Any, present: bool) -> Iterator[dict[str, Any]]:
        told.append(present)
        yield from ()

    monkeypatch.setattr(attach, "follow_live", follow_live)
    monkeypatch.setattr(attach, "answering", lambda *_: contextlib.nullcontext())
    monkeypatch.setattr(terminal, "is_terminal", lambda: shown)
    attach.main("s")
    assert told == [shown]


@pytest.mark.parametrize("command", ["attach", "prompt"])
def test_open_pager_has_ctrl_c_and_ends_first(
    attached: Attached, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would go on beside the shell, and take what is typed there."""
    opened, interrupted, over = threading.Event(), threading.Event(), threading.Event()

    def pager(_: str) -> None:
        opened.set()
        assert interrupted.wait(10)
        assert not over.wait(MOMENT)
        attached.write(Shown("(pager)\n"))

    def stream(*_: Any, **__: Any) -> Generator[dict[str, Any], None, Any]:
        yield {"method": "_pykoclaw.dev/question", "params": asked("q1", content=LONG)}
        attached.type("v\n")
        eventually_sync(opened.is_set)
        signal.raise_signal(signal.SIGINT)
        interrupted.set()
        return ENDED

    monkeypatch.setenv("LINES", "6")
    monkeypatch.setattr("click.echo_via_pager", pager)
    former = signal.getsignal(signal.SIGINT)
    assert run(command, attached, stream, monkeypatch) == 0
    over.set()
    attached.leave()
    assert "(pager)\n" in attached.written
    assert signal.getsignal(signal.SIGINT) is former


@pytest.mark.parametrize("command", ["attach", "prompt"])
def test_questions_of_lost_daemon_are_forgotten(
    attached: Attached, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    connections: list[str] = []

    def stream(method: str, **_: Any) -> Generator[dict[str, Any], None, Any]:
        connections.append(method)
        question = f"q{len(connections)}"
        yield {"method": "_pykoclaw.dev/question", "params": asked(question)}
        if len(connections) == 1:
            raise DaemonNotRunning("gone")
        attached.type("y\n")
        eventually_sync(lambda: attached.decided)
        with pytest.raises(KeyboardInterrupt):
            attached.leave()
        return ENDED

    monkeypatch.setattr(resuming, "PAUSE", 0)
    run(command, attached, stream, monkeypatch)
    assert attached.decided == [("q2", "allow_once")]
    assert attached.written.count("(q1)") == 1, "shown again, though nobody told of it"
