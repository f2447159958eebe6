"""`shared.prompt` when the daemon, which the test plays, answers with an error, or says more."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pykoclaw_acp import shared
from pykoclaw_acp.front import resuming
from pykoclaw_acp.link.places import Places
from pykoclaw_acp.model import conversations
from tests.integration.front_harness import WAIT, Daemon, encode

NAME = "wa-andy-1@g.us"
EVENT = {"method": "_pykoclaw.dev/event", "params": {"seq": 1}}
GONE = None  # the daemon ends before it answers
FOUND = {"id": 1, "result": {"session": "s", "conversation": NAME}}
ENDED = {"session": "s", "turnId": "t", "state": "done", "error": None, "joined": True, "text": ""}
DONE = {"id": 1, "result": ENDED}
PROMPT, RESOLVE = "_pykoclaw.dev/prompt", "_pykoclaw.dev/conversations/resolve"


def error(code: int, **data: Any) -> dict[str, Any]:
    return {"id": 1, "error": {"code": code, "message": "No.", "data": data or None}}


PASSING = error(-32012, errorKind="out_of_descriptors", retryable=True)


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Places:
    monkeypatch.setenv("PYKOCLAW_STATE", str(tmp_path / "state"))
    monkeypatch.delenv("PYKOCLAW_SOCKET", raising=False)
    monkeypatch.setattr(resuming, "PAUSE", 0)
    return Places(str(tmp_path / "data"), str(tmp_path / "state"))


@contextmanager
def answering(
    daemon: Daemon, connections: list[list[dict[str, Any] | None]], asked: list[str]
) -> Iterator[None]:
    """Answers each connection's request with these messages; its method goes to `asked`."""

    def serve() -> None:
        for messages in connections:
            connection = daemon.accept()
            request = json.loads(connection.line())
            asked.append(request["method"])
            assert request["params"].get("text", "Hello") == "Hello"
            connection.send(*(encode(one) for one in messages if one is not GONE))
            connection.close()

    thread = threading.Thread(target=serve)
    thread.start()
    yield
    thread.join(WAIT)
    assert not thread.is_alive()


def ask(
    places: Places, *connections: list[dict[str, Any] | None], create: bool = False
) -> tuple[shared.Reply, list[str]]:
    """The reply to a prompt, and the methods that were called for it."""
    asked: list[str] = []
    with Daemon(places) as daemon, answering(daemon, list(connections), asked):
        return shared.prompt(NAME, "Hello", create=create, data=places.data), asked


@pytest.mark.parametrize("code", [-32602, -32002, -32011, -32012, -32013])
def test_first_error_says_nothing_was_taken(places: Places, code: int) -> None:
    with pytest.raises(shared.Refused, match="No") as refused:
        ask(places, [error(code)])
    assert refused.value.code == code


@pytest.mark.parametrize(
    "connections",
    [
        pytest.param([[EVENT, error(-32011)]], id="after an event"),
        pytest.param([[GONE], [error(-32002)]], id="sent again"),
        pytest.param([[error(-32603)]], id="internal"),
        pytest.param([[error(-32011, errorKind="store_uncertain")]], id="uncertain"),
    ],
)
def test_error_of_taken_prompt_is_no_refusal(
    places: Places, connections: list[list[dict[str, Any] | None]]
) -> None:
    with pytest.raises(shared.NotReached, match="No"):
        ask(places, *connections)


@pytest.mark.parametrize("number", [1, None])
def test_refusal_that_passes_ends_no_taken_prompt(places: Places, number: int | None) -> None:
    """As when all clients come again to a daemon that has few descriptors."""
    refusal = {**PASSING, "id": number}
    reply, asked = ask(places, [EVENT, GONE], [refusal], [refusal], [DONE])
    assert reply.joined
    assert asked == [PROMPT] * 4
    with pytest.raises(shared.Refused, match="No"):
        ask(places, [refusal])


def test_refusal_that_stays_is_told_after_a_while(
    places: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = SimpleNamespace(monotonic=iter(range(0, 1000, 50)).__next__, sleep=lambda _: None)
    monkeypatch.setattr(resuming, "time", clock)
    with pytest.raises(shared.NotReached, match=r"^No\. .* taken before"):
        ask(places, [EVENT, GONE], [PASSING], [PASSING])


def test_daemon_lost_before_the_prompt_has_none(places: Places) -> None:
    with pytest.raises(shared.Refused, match="No"):
        ask(places, [GONE], [error(-32602)], create=True)
    with pytest.raises(shared.Refused, match="No"):
        ask(places, [GONE], [FOUND], [error(-32602)], create=True)


def test_resent_prompt_waits_for_its_conversation(places: Places) -> None:
    """It is looked up anew while this process has a lock."""
    with shared.turn_lock("another", program="me", data=places.data):
        reply, asked = ask(places, [FOUND], [GONE], [PASSING], [FOUND], [DONE])
    assert reply.joined
    assert asked == [RESOLVE, PROMPT, RESOLVE, RESOLVE, PROMPT]


@pytest.mark.parametrize("whole", [True, False])
def test_reply_has_what_follows_the_turn(places: Places, whole: bool) -> None:
    asked: list[dict[str, Any]] = []
    pieces: list[str] = []

    def said(message: str, text: str) -> dict[str, Any]:
        content = {"type": "text", "text": text}
        update = {"sessionUpdate": "agent_message_chunk", "messageId": message, "content": content}
        return {"method": "_pykoclaw.dev/event", "params": {"seq": 1, "update": update}}

    def serve(daemon: Daemon) -> None:
        connection = daemon.accept()
        asked.append(json.loads(connection.line()))
        waits = {"method": "_pykoclaw.dev/waits", "params": {"session": "s"}}
        ended = {"session": "s", "turnId": "t", "state": "done", "error": None, "joined": False}
        result = {**ended, "text": "Started.\n\nEight files.", "goesOn": True, "blocked": "No."}
        messages = (
            said("a", "Started."),
            waits,
            said("b", "Eight files."),
            {"id": 1, "result": result},
        )
        connection.send(*map(encode, messages))
        connection.close()

    with Daemon(places) as daemon, ThreadPoolExecutor() as threads:
        serving = threads.submit(serve, daemon)
        reply = shared.prompt(
            NAME, "Hello", create=False, data=places.data, on_text=pieces.append, whole=whole
        )
        serving.result(WAIT)
    assert asked[0]["params"]["whole"] == whole
    assert "".join(pieces) == reply.text == "Started.\n\nEight files."
    assert (reply.goes_on, reply.blocked) == (True, "No.")


@pytest.mark.parametrize("create", [True, False])
def test_prompt_by_id_inside_the_lock_is_refused(places: Places, create: bool) -> None:
    asked: list[dict[str, Any]] = []
    session = conversations.id_of(NAME)

    def serve(daemon: Daemon) -> None:
        connection = daemon.accept()
        asked.append(json.loads(connection.line()))
        connection.send(encode({"id": 1, "result": {"session": session, "conversation": NAME}}))
        connection.close()

    with (
        Daemon(places) as daemon,
        ThreadPoolExecutor() as threads,
        shared.turn_lock(NAME, program="me", data=places.data),
    ):
        serving = threads.submit(serve, daemon)
        with pytest.raises(RuntimeError, match="release it first"):
            shared.prompt(session, "Hello", create=create, data=places.data)
        serving.result(WAIT)
    assert [one["params"] for one in asked] == [{"conversation": session, "create": create}]
