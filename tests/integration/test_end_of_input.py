"""A client that ends at once: what it sent before the end is dealt with, and prompts are not waited
for once the daemon has them.
"""

from __future__ import annotations

import signal
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from pykoclaw_acp.front.relay import ANSWERS, LINGER
from pykoclaw_acp.link.places import Places
from tests.integration.front_harness import WAIT, Client, Daemon, encode
from tests.waiting import eventually_sync

CANCEL = encode({"jsonrpc": "2.0", "method": "session/cancel", "params": {"sessionId": "s"}})
DECISION = encode({"jsonrpc": "2.0", "id": "q", "result": {"outcome": {"outcome": "cancelled"}}})
PROMPT = encode(
    {"jsonrpc": "2.0", "id": 1, "method": "session/prompt", "params": {"sessionId": "s"}}
)
HEALTHCHECK = encode({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {}})
SOONER = 0.8 * ANSWERS  # s; who waits for an answer ends later
# A front that waits for answers a shorter time.
IMPATIENT = """
import sys
from pykoclaw_acp.__main__ import main
from pykoclaw_acp.front import relay
relay.ANSWERS = 1.0
sys.exit(main())
"""


def question(name: str) -> bytes:
    """A permission request of the daemon's under this id."""
    params = {"sessionId": "s"}
    method = "session/request_permission"
    return encode({"jsonrpc": "2.0", "id": name, "method": method, "params": params})


@pytest.fixture
def places(tmp_path: Path) -> Places:
    return Places(tmp_path / "data", tmp_path / "state", tmp_path / "run" / "acp.sock")


@pytest.fixture
def daemon(places: Places) -> Iterator[Daemon]:
    with Daemon(places) as one:
        yield one


def test_healthcheck_is_answered_before_any_daemon(places: Places) -> None:
    with Daemon(places, listens=False), Client(places) as client:
        client.write(HEALTHCHECK)
        client.stdin.close()
        answer = client.message()
        assert (answer["id"], answer["result"]["protocolVersion"]) == (1, 1)
        assert client.process.wait(WAIT) == 0


def test_requests_before_the_end_are_answered(places: Places, daemon: Daemon) -> None:
    with Client(places) as client:
        link = daemon.accept()
        link.hello()
        client.request("session/load")
        client.request("session/resume")
        client.stdin.close()
        late = time.monotonic() + 4 * LINGER
        for number in (1, 2):
            assert link.line().startswith(b"> %d " % number)
        eventually_sync(lambda: time.monotonic() > late)
        for number in (1, 2):
            link.send(encode_answer(number))
            assert client.message()["result"] == {"number": number}
        assert client.process.wait(SOONER) == 0


def test_a_line_that_is_no_message_is_answered(places: Places, daemon: Daemon) -> None:
    with Client(places) as client:
        link = daemon.accept()
        link.hello()
        client.write(b"what?")
        client.stdin.close()
        assert link.line() == b"> 1 what?"
        link.send(b'answer 1 {"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"x"}}')
        assert client.message()["error"]["code"] == -32700
        assert client.process.wait(WAIT) == 0


def test_a_prompt_beside_them_is_not_waited_for(places: Places, daemon: Daemon) -> None:
    with Client(places) as client:
        link = daemon.accept()
        link.hello()
        client.request("session/load")
        client.request("session/prompt")
        client.stdin.close()
        assert link.line().startswith(b"> 1 ")
        assert link.line().startswith(b"> 2 ")
        link.send(encode_answer(1))
        assert client.message()["result"] == {"number": 1}
        assert_goes_on(client)
        link.send(b"taken 2")
        assert client.process.wait(SOONER) == 0


def test_large_prompt_reaches_a_slow_daemon(places: Places, daemon: Daemon) -> None:
    """More than anything on the way to the daemon holds."""
    with Client(places) as client:
        link = daemon.accept()
        link.hello()
        block = {"type": "text", "text": "x" * (4 * 1024 * 1024)}
        prompt = {"sessionId": "s", "prompt": [block]}
        with ThreadPoolExecutor() as pool:
            writing = pool.submit(lambda: (client.request("session/prompt", prompt), client.end()))
            link.socket.recv(1024, socket.MSG_PEEK | socket.MSG_WAITALL)
            assert_goes_on(client)
            assert len(link.line()) > len(block["text"])
            link.send(b"taken 1")
            assert writing.result(WAIT)[1] == 0


@pytest.mark.parametrize("said", [CANCEL, DECISION, PROMPT])
def test_what_was_said_waits_for_a_daemon(places: Places, daemon: Daemon, said: bytes) -> None:
    with Client(places) as client:
        daemon.accept().hello()
        daemon.stop()
        client.write(said)
        client.stdin.close()
        assert_goes_on(client)
        daemon.listen()
        link = daemon.accept()
        link.hello()
        number, _, line = link.line().split(b" ", 3)[1:]
        assert (number, line) == (b"1", said)
        link.send(b"taken 1" if said == PROMPT else b"ack 1")
        assert client.process.wait(SOONER) == 0


def test_dying_client_is_heard_to_its_end(places: Places, daemon: Daemon) -> None:
    with Client(places) as client:
        daemon.accept().hello()
        daemon.stop()
        client.process.send_signal(signal.SIGSTOP)  # so that it learns of everything at once
        client.write(CANCEL)
        client.stdout.close()
        client.stdin.close()
        client.process.send_signal(signal.SIGCONT)
        assert_goes_on(client)
        daemon.listen()
        link = daemon.accept()
        link.hello()
        assert link.line().endswith(CANCEL)
        link.send(b'attached 1 0 0 "s"', b'update 1 1 {"too":"late"}', b"ack 1")
        assert client.process.wait(SOONER) == 0
        assert link.line() == b"", "nothing has arrived at the client"


def test_an_acknowledged_cancel_is_not_waited_for(places: Places, daemon: Daemon) -> None:
    with Client(places) as client:
        link = daemon.accept()
        link.hello()
        client.request("session/prompt")
        client.write(CANCEL)
        assert link.line().startswith(b"> 1 ")
        assert link.line().startswith(b"> 2 ")
        client.stdin.close()
        assert_goes_on(client)
        link.send(b"taken 1", b"ack 2")
        assert client.process.wait(SOONER) == 0


def test_half_answered_question_is_not_waited_for(places: Places, daemon: Daemon) -> None:
    """What was chosen counts when the rest is, too: it is acknowledged with that."""
    with Client(places) as client:
        link = daemon.accept()
        link.hello()
        link.send(b'request "q.0.0" ' + question("q.0.0"))
        assert client.message()["id"] == "q.0.0"
        client.write(DECISION.replace(b'"q"', b'"q.0.0"'))
        assert link.line().startswith(b"> 1 ")
        link.send(b'request "q.1.0" ' + question("q.1.0"))
        assert client.message()["id"] == "q.1.0"
        client.stdin.close()
        assert client.process.wait(SOONER) == 0


def test_answer_beside_another_question_is_waited_for(places: Places, daemon: Daemon) -> None:
    with Client(places) as client:
        link = daemon.accept()
        link.hello()
        for name in ("q", "other"):
            link.send(b'request "%b" ' % name.encode() + question(name))
            assert client.message()["id"] == name
        client.write(DECISION)
        client.stdin.close()
        assert link.line().startswith(b"> 1 ")
        assert_goes_on(client)
        link.send(b"ack 1")
        assert client.process.wait(SOONER) == 0


def test_a_signal_ends_the_wait(places: Places, daemon: Daemon) -> None:
    """The healthcheck of pykoclaw's users ends its child so."""
    with Client(places) as client:
        link = daemon.accept()
        link.hello()
        client.request("session/load")
        client.stdin.close()
        assert link.line().startswith(b"> 1 ")
        client.process.send_signal(signal.SIGTERM)
        assert client.process.wait(SOONER) == 0
        assert link.line() == b""


def test_the_wait_is_bounded(places: Places, daemon: Daemon) -> None:
    with Client(places, "-c", IMPATIENT) as client:
        link = daemon.accept()
        link.hello()
        client.request("session/load")
        assert client.end() == 0
        assert client.line() == b""


def test_the_wait_for_a_daemon_is_bounded(places: Places) -> None:
    with Daemon(places, listens=False), Client(places, "-c", IMPATIENT) as client:
        client.write(CANCEL)
        assert client.end() == 0


def test_it_ends_although_the_daemon_reads_nothing(places: Places, daemon: Daemon) -> None:
    with Client(places, "-c", IMPATIENT) as client:
        link = daemon.accept()
        client.write(encode({"jsonrpc": "2.0", "method": "n", "params": "x" * (3 * 1024 * 1024)}))
        assert link.line().startswith(b"front ")
        assert client.end() == 0


def assert_goes_on(client: Client) -> None:
    """The front waits for longer than for what is on its way."""
    late = time.monotonic() + 8 * LINGER
    eventually_sync(lambda: time.monotonic() > late)
    assert client.process.poll() is None


def encode_answer(number: int) -> bytes:
    answer = {"jsonrpc": "2.0", "id": number, "result": {"number": number}}
    return b"answer %d %b" % (number, encode(answer))
