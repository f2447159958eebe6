"""What a front keeps for the next daemon, of what the last one has acknowledged."""

from __future__ import annotations

import json
import time
from typing import Any

import msgspec
import pytest

from pykoclaw_acp.front.ledger import Ledger
from pykoclaw_acp.model import client_traits
from pykoclaw_acp.server.introduction import FrontHello


def say(ledger: Ledger, **message: Any) -> int:
    line = ledger.keep(json.dumps({"jsonrpc": "2.0", **message}).encode(), time.monotonic())
    ledger.understand(line)
    return line.number


def prompt(ledger: Ledger, session: str) -> int:
    number = len(ledger.lines) + 1
    return say(ledger, id=number, method="session/prompt", params={"sessionId": session})


def cancel(ledger: Ledger, session: str) -> int:
    number = say(ledger, method="session/cancel", params={"sessionId": session})
    ledger.acknowledge(number)
    return number


def again(ledger: Ledger) -> list[int]:
    return [int(line.split(b" ", 2)[1]) for line in ledger.resent_lines()]


@pytest.mark.parametrize("name", ["Mitto", "mitto", "unknown", "zed", "Toad", "other", None])
def test_front_and_daemon_agree_who_misreads_digits(name: str | None) -> None:
    ledger = Ledger()
    assert not ledger.misreads_digits
    info = {} if name is None else {"clientInfo": {"name": name, "version": "1"}}
    say(ledger, id=1, method="initialize", params={"protocolVersion": 1, **info})
    assert ledger.misreads_digits == client_traits.find(name, "1").misreads_digits


@pytest.mark.parametrize("method", ["session/load", "session/resume"])
def test_client_that_opens_again_gets_request_again(method: str) -> None:
    ledger = Ledger()
    asked = b'{"params": {"sessionId": "one"}}'
    assert ledger.add_request("ask", asked)
    assert not ledger.add_request("ask", asked)
    say(ledger, id=1, method=method, params={"sessionId": "one", "cwd": "/"})
    assert ledger.add_request("ask", asked)


def test_acknowledged_answer_is_not_given_to_renewed_question() -> None:
    ledger = Ledger()
    prompted = prompt(ledger, "one")
    assert ledger.add_request("ask", b'{"params": {"sessionId": "one"}}')
    answered = say(ledger, id="ask", result={"outcome": {"outcome": "cancelled"}})
    assert again(ledger) == [prompted, answered]
    ledger.acknowledge(answered)
    assert again(ledger) == [prompted]


def test_acknowledged_cancel_stays_for_its_sessions_prompts() -> None:
    ledger = Ledger()
    other = prompt(ledger, "one")
    cancel(ledger, "two")
    assert again(ledger) == [other]
    stopped = prompt(ledger, "two")
    cancelled = cancel(ledger, "two")
    assert again(ledger) == [other, stopped, cancelled]
    assert ledger.drop_answered(stopped, b"{}")
    assert again(ledger) == [other]


def test_acknowledged_line_without_session_stays_behind_any_request() -> None:
    ledger = Ledger()
    prompted = prompt(ledger, "one")
    withdrawn = say(ledger, method="$/cancel_request", params={"requestId": 1})
    ledger.acknowledge(withdrawn)
    assert again(ledger) == [prompted, withdrawn]
    assert ledger.drop_answered(prompted, b"{}")
    assert again(ledger) == []


@pytest.mark.parametrize(
    "method", ["session/new", "session/load", "session/resume", "session/fork"]
)
def test_next_daemon_is_told_sessions_servers(method: str) -> None:
    ledger = Ledger()
    given = [{"name": "m", "command": "/bin/true", "args": [], "env": []}]
    opened = say(
        ledger, id=1, method=method, params={"sessionId": "one", "cwd": "/", "mcpServers": given}
    )
    session = "two" if method in ("session/new", "session/fork") else "one"
    ledger.follow_session(session, 0, 0)
    result = {"sessionId": session} if session == "two" else {}
    assert ledger.drop_answered(opened, json.dumps({"result": result}).encode())
    hello = json.loads(ledger.hello({}).partition(b" ")[2])
    assert hello["sessions"][session]["opened"] == {"mcpServers": given}


def test_next_daemon_is_told_who_gave_places() -> None:
    ledger = Ledger()
    first, second = {"pid": 1}, {"pid": 2}
    for session in ("one", "two"):
        ledger.follow_session(session, 5, 0, first)
    ledger.follow_session("two", 7, 0, second)  # it goes before it comes to the other
    hello = json.loads(ledger.hello({}).partition(b" ")[2])
    assert hello["daemon"] == second
    assert hello["sessions"]["one"]["earlier"]
    assert "earlier" not in hello["sessions"]["two"]


@pytest.mark.parametrize("number", [b"NaN", b"-Infinity", b"1e999", b"-1e999"])
def test_introduction_is_json_whatever_client_wrote(number: bytes) -> None:
    """The daemon refuses the line, or takes it, and the connection goes on either way."""
    ledger = Ledger()
    written = (
        b'{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":1,"x":%b}}'
    )
    ledger.understand(ledger.keep(written % number, time.monotonic()))
    hello = msgspec.json.decode(ledger.hello({}).partition(b" ")[2], type=FrontHello)
    assert hello.front == ledger.front
