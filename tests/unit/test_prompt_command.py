"""`pykoclaw-acp prompt`: what is sent, and the exit status."""

from __future__ import annotations

import contextlib
import io
import json
import sys
from collections.abc import Generator
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from pykoclaw_acp import terminal
from pykoclaw_acp.commands import prompt
from pykoclaw_acp.commands.daemon import NoSuchSession
from pykoclaw_acp.errors import CommandFailed, DaemonNotRunning, StartupError
from pykoclaw_acp.front import resuming
from pykoclaw_acp.protocol.control.prompts import Prompted

Messages = Generator[dict[str, Any], None, dict[str, Any]]


class Daemon:
    """Answers a prompt with `state`; keeps what it was sent."""

    def __init__(self, state: str, *, goes_on: bool = False, blocked: str | None = None) -> None:
        self.state = state
        self.blocked = blocked
        self.goes_on = goes_on
        self.sent: list[dict[str, Any]] = []

    def ask(self, method: str, *, session: str) -> Any:
        """Knows one session, by id and by name."""
        assert method == "sessions/show"
        if session not in ("s", "name of s"):
            raise NoSuchSession(f"No session has the id or the name {session}.")
        return {"summary": {"id": "s"}}

    def stream(self, _: str, **params: Any) -> Messages:
        self.sent.append(params)
        yield from ()
        if self.state == "interrupted":
            raise KeyboardInterrupt
        error = None if self.state == "done" else {"message": "It is so."}
        ended = {"state": self.state, "session": "s", "turnId": "t", "text": "", "error": error}
        return {**ended, "goesOn": self.goes_on, "blocked": self.blocked}


def sent(
    monkeypatch: pytest.MonkeyPatch, state: str, text: str | None, session: str = "s", **given: Any
) -> Any:
    """The exit status, and the text that was sent."""
    daemon = Daemon(state)
    monkeypatch.setattr(prompt, "stream", daemon.stream)
    monkeypatch.setattr(prompt, "ask", daemon.ask)
    options = {"detach": False, "key": None, "as_json": False, **given}
    return prompt.main(session, text, **options), daemon.sent[0]["text"]


@pytest.mark.parametrize("as_json", [False, True])
@pytest.mark.parametrize(
    ("state", "status"),
    [("done", 0), ("failed", 1), ("cancelled", 4), ("unknown", 5), ("interrupted", 130)],
)
def test_exit_status_says_how_the_turn_ended(
    monkeypatch: pytest.MonkeyPatch, state: str, status: int, as_json: bool
) -> None:
    assert sent(monkeypatch, state, "Hello.", as_json=as_json) == (status, "Hello.")


@pytest.mark.parametrize("as_json", [False, True])
def test_prompt_that_hook_blocked_is_no_success(
    monkeypatch: pytest.MonkeyPatch, as_json: bool
) -> None:
    monkeypatch.setattr(prompt, "stream", Daemon("done", blocked="A hook blocked this").stream)
    assert prompt.main(None, "Hello.", detach=False, key=None, as_json=as_json) == 6
    monkeypatch.setattr(prompt, "stream", Daemon("failed", blocked="A hook blocked this").stream)
    assert prompt.main(None, "Hello.", detach=False, key=None, as_json=as_json) == 1


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


def test_unknown_session_is_said_before_reading(monkeypatch: pytest.MonkeyPatch) -> None:
    """As when the session was forgotten, and the prompt stands in its place."""
    monkeypatch.setattr("sys.stdin", None)
    with pytest.raises(CommandFailed, match=r"No session.* prompt --new 'hello there'$"):
        sent(monkeypatch, "done", None, session="hello there")
    monkeypatch.setattr("sys.stdin", io.StringIO("Typed."))
    assert sent(monkeypatch, "done", None, session="name of s") == (0, "Typed.")


def test_key_that_is_no_text_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(CommandFailed, match=r"--key.*nothing was sent"):
        sent(monkeypatch, "done", "Hello.", key=b"caf\xe9".decode(errors="surrogateescape"))
    assert sent(monkeypatch, "done", "Hello.", key="café")[0] == 0


def test_work_that_goes_on_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(prompt, "stream", Daemon("done", goes_on=True).stream)
    assert prompt.main("s", "Hello.", detach=False, key=None, as_json=False) == 0
    assert "goes on. Follow it: pykoclaw-acp attach s" in capsys.readouterr().err


def test_interrupted_command_names_session(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def stream(_: str, **__: Any) -> Messages:
        yield {"method": "_pykoclaw.dev/taken", "params": {"session": "0123456789"}}
        raise KeyboardInterrupt

    def told(session: str | None) -> str:
        assert prompt.main(session, "Hello.", detach=False, key=None, as_json=False) == 130
        return capsys.readouterr().err

    monkeypatch.setattr(prompt, "stream", Daemon("interrupted").stream)
    assert "attach" not in told(None), "nothing was begun"
    assert "continues. Follow it: pykoclaw-acp attach 'my s'" in told("my s")
    monkeypatch.setattr(prompt, "stream", stream)
    assert "continues. Follow it: pykoclaw-acp attach 01234567\n" in told(None)


def said(words: str, message: str) -> dict[str, Any]:
    update = {
        "sessionUpdate": "agent_message_chunk",
        "messageId": message,
        "content": {"type": "text", "text": words},
    }
    return {"method": "_pykoclaw.dev/event", "params": {"update": update, "turnId": "t"}}


@pytest.mark.parametrize("interrupted", [False, True])
def test_message_begins_on_its_own_line(monkeypatch: pytest.MonkeyPatch, interrupted: bool) -> None:
    def stream(_: str, **__: Any) -> Messages:
        yield said("Writing.", "m1")
        yield {"method": "_pykoclaw.dev/waits", "params": {}}
        yield {"method": "_pykoclaw.dev/waits", "params": {}}
        yield said("Written.", "m2")
        if interrupted:
            raise KeyboardInterrupt
        return {"state": "done", "session": "s", "turnId": "t", "text": "", "error": None}

    both, out = io.StringIO(), io.StringIO()

    class Out(io.StringIO):
        def write(self, text: str) -> int:
            both.write(text)
            return out.write(text)

    monkeypatch.setattr(prompt, "stream", stream)
    monkeypatch.setattr(sys, "stdout", Out())
    monkeypatch.setattr(sys, "stderr", both)
    prompt.main("s", "Hello.", detach=False, key=None, as_json=False)
    waits, end = prompt.WAITS, "" if interrupted else "\n"
    assert out.getvalue() == f"Writing.\n\nWritten.{end}"
    shown = f"Writing.\n{waits}\n{waits}\n\n\nWritten.\n"
    assert both.getvalue().startswith(shown)
    ended = both.getvalue().removeprefix(shown)
    assert ended.startswith("The command has ended.") if interrupted else ended == ""


GONE = DaemonNotRunning("The daemon ended before it had answered.")
GONE.stood = 0.1
NOT_STARTED = StartupError("The daemon ended before it was ready, 4 times.")
REFUSED = CommandFailed("Too many clients.")
UNCERTAIN = CommandFailed("Internal error.")
UNCERTAIN.certain = False


def failing(*errors: StartupError, words: bool) -> Any:
    """`stream` of daemons that fail in this way, one after the other; `words`: the first one behind
    words of Claude.
    """
    left = list(errors)

    def stream(*_: Any, **__: Any) -> Messages:
        if words and len(left) == len(errors):
            yield said("Half a line", "m1")
        yield from ()
        raise left.pop(0)

    return stream


@pytest.mark.parametrize(
    ("errors", "words"),
    [
        ((GONE, NOT_STARTED), True),
        ((GONE, NOT_STARTED), False),
        ((GONE, REFUSED), False),
        ((REFUSED,), True),
        ((UNCERTAIN,), False),
        ((GONE,), False),
    ],
)
def test_prompt_that_may_run_is_unknown(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    errors: tuple[StartupError, ...],
    words: bool,
) -> None:
    """Whoever took it for a refusal would send it again, under another key."""
    clock = SimpleNamespace(monotonic=iter(range(0, 1000, 50)).__next__, sleep=lambda _: None)
    monkeypatch.setattr(resuming, "time", clock)
    errors = (GONE, GONE, GONE) if errors == (GONE,) else errors
    for as_json in (False, True):
        monkeypatch.setattr(prompt, "stream", failing(*errors, words=words))
        assert prompt.main("my s", "Hello.", detach=False, key="k 1", as_json=as_json) == 5
    out, err = capsys.readouterr()
    why = prompt.GONE if errors[-1] is GONE else str(errors[-1])
    assert err.startswith("\n" * words + f"pykoclaw-acp: {why} What has become")
    assert (
        "--key 'k 1'; the prompt does not run twice. Follow it: pykoclaw-acp attach 'my s'" in err
    )
    told = json.loads(out.removeprefix("Half a line"))
    assert told["state"] == "unknown"
    assert told["error"]["message"] in err
    assert set(told) == {field.encode_name for field in msgspec.structs.fields(Prompted)}


@pytest.mark.parametrize("error", [REFUSED, NOT_STARTED])
def test_prompt_that_nobody_had_is_refused(
    monkeypatch: pytest.MonkeyPatch, error: StartupError
) -> None:
    monkeypatch.setattr(prompt, "stream", failing(error, words=False))
    with pytest.raises(type(error)) as refused:
        prompt.main("s", "Hello.", detach=False, key=None, as_json=False)
    assert refused.value is error


@pytest.mark.parametrize("text", ["Hello.", "-"])
@pytest.mark.parametrize("shown", [False, True])
@pytest.mark.parametrize("typed", [False, True])
def test_only_a_terminal_counts_as_somebody(
    monkeypatch: pytest.MonkeyPatch, shown: bool, typed: bool, text: str
) -> None:
    """With the output in a file nobody sees what is asked."""
    daemon = Daemon("done")
    monkeypatch.setattr(prompt, "stream", daemon.stream)
    monkeypatch.setattr(prompt, "answering", lambda *_: contextlib.nullcontext())
    monkeypatch.setattr("sys.stdin", SimpleNamespace(isatty=lambda: typed, read=lambda: "Hello."))
    monkeypatch.setattr(terminal, "is_terminal", lambda: shown)
    prompt.main("s", text, detach=False, key=None, as_json=False)
    assert daemon.sent[0]["present"] is (shown and typed)


def test_input_that_is_no_text_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"caf\xe9\r\n"), "utf-8"))
    with pytest.raises(CommandFailed, match=r"not valid UTF-8; nothing was sent"):
        sent(monkeypatch, "done", None)
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"caf\xe9\r\n"), "latin-1"))
    assert sent(monkeypatch, "done", None) == (0, "café\n")


def test_detached_prompt_waits_for_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    daemon = Daemon("done")
    monkeypatch.setattr(prompt, "stream", daemon.stream)
    for detach in (True, False):
        prompt.main("s", "Hello.", detach=detach, key=None, as_json=True)
    assert [one["whole"] for one in daemon.sent] == [False, True]
