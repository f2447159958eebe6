"""The front between a client and a daemon that the test plays line by line."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from pykoclaw_acp import __version__
from pykoclaw_acp.front import dial
from pykoclaw_acp.front.dial import Dialer, NotStarted
from pykoclaw_acp.front.ledger import Ledger
from pykoclaw_acp.link import client_process
from pykoclaw_acp.link.greeting import greeting
from pykoclaw_acp.link.places import Places
from pykoclaw_acp.server.introduction import FrontHello
from tests.integration.front_harness import WAIT, Client, Connection, Daemon, encode, result, update
from tests.waiting import eventually_sync

NEW = {"cwd": "/", "mcpServers": []}
KEPT: dict[str, Any] = {"mcpServers": []}  # of it, for the next daemon


@pytest.fixture
def places(tmp_path: Path) -> Places:
    return Places(
        str(tmp_path / "data"), str(tmp_path / "state"), str(tmp_path / "run" / "acp.sock")
    )


@pytest.fixture
def daemon(places: Places) -> Iterator[Daemon]:
    with Daemon(places) as daemon:
        yield daemon


@pytest.fixture
def client(places: Places, daemon: Daemon) -> Iterator[Client]:
    with Client(places) as client:
        yield client


def opened(client: Client, link: Connection, number: int, session: str = "s", seq: int = 0) -> None:
    """Play session/new, which is the client's line `number`."""
    request_id = client.request("session/new", NEW)
    assert link.line().startswith(b"> %d " % number)
    link.send(b'attached 1 %d 0 "%s"' % (seq, session.encode()))
    link.send(b"answer %d %b" % (number, result(request_id, {"sessionId": session})))
    assert client.message()["id"] == request_id
    assert link.line() == b"done %d" % number


def fill(descriptor: int, line: bytes) -> int:
    """Write the line until nobody takes any more of it; returns how often it went out whole."""
    os.set_blocking(descriptor, False)
    written = 0
    while written < 16 * 1024 * 1024 and select.select([], [descriptor], [], 0.5)[1]:
        written += os.write(descriptor, line[written % len(line) :])
    os.set_blocking(descriptor, True)
    return written // len(line)


# --- relaying


def test_a_client_and_its_daemon(client: Client, daemon: Daemon, places: Places) -> None:
    link = daemon.accept()
    hello = link.hello()
    wall, uptime = hello.pop("clocks")
    assert not {"PATH", "HOME"} & hello.pop("environment").keys()
    assert abs(wall - time.time() * 1000) < 60_000
    assert abs(uptime - time.monotonic() * 1000) < 60_000
    assert hello | {"front": None} == {
        "front": None,
        "link": 1,
        "version": __version__,
        "pid": client.process.pid,
        "parent": client_process.own(),
        "daemon": None,
        "initialize": None,
        "sessions": {},
        "asked": [],
        "deaths": {},
        "taken": [],
        "loggedOut": False,
    }
    client.write(
        b'{"jsonrpc":"2.0","id":"a b","method":"initialize","params":{"protocolVersion":1}}'
    )
    assert (
        link.line()
        == b'> 1 {"jsonrpc":"2.0","id":"a b","method":"initialize","params":{"protocolVersion":1}}'
    )
    link.send(b'answer 1 {"jsonrpc":"2.0","id":"a b","result":{"x": 1}}')
    assert client.line() == b'{"jsonrpc":"2.0","id":"a b","result":{"x": 1}}'
    assert link.line() == b"done 1"
    link.send(b'notify {"jsonrpc":"2.0","method":"m"}', b"future 1 2", b"ack x", b"")
    assert client.line() == b'{"jsonrpc":"2.0","method":"m"}'
    assert client.end() == 0
    assert client.said() == [
        f"pykoclaw-acp {__version__}: connected to the daemon at {places.socket}"
    ]


def test_updates_are_written_and_confirmed(client: Client, daemon: Daemon) -> None:
    link = daemon.accept()
    link.hello()
    link.send(
        b'attached 7 4 0 "s"', b"update 7 5 " + update(5), b"cursor 7 6", b"update 7 7 " + update(7)
    )
    assert client.line() == update(5)
    assert client.line() == update(7)
    confirmed = [link.line()]
    while confirmed[-1] != b"seen 7 7":
        confirmed.append(link.line())
    assert len(confirmed) <= 2
    link.send(b"detached 7", b"update 7 8 " + update(8), b'notify {"last":1}')
    assert client.line() == b'{"last":1}'


def test_confirmations_are_throttled_and_flushed_at_end(client: Client, daemon: Daemon) -> None:
    link = daemon.accept()
    link.hello()
    link.send(b'attached 1 0 0 "s"')
    began = time.monotonic()
    for seq in range(1, 301):
        link.send(b"update 1 %d %b" % (seq, update(seq)))
        assert client.line() == update(seq)
    assert client.end() == 0
    took = time.monotonic() - began
    confirmed = []
    while line := link.line():
        confirmed.append(line)
    assert confirmed[-1] == b"seen 1 300"
    assert len(confirmed) <= took / 0.1 + 2


@pytest.mark.parametrize(
    "line", [b"no JSON", b"[1]", b"7", b'{"id":1', b"\xff\xfe", b"[" * 100_000]
)
def test_invalid_message_is_left_to_daemon_to_refuse(
    line: bytes, client: Client, daemon: Daemon
) -> None:
    link = daemon.accept()
    link.hello()
    client.write(line)
    client.write(b"  ")
    client.notify("n")
    assert link.line() == b"> 1 " + line
    assert link.line().startswith(b'> 2 {"jsonrpc"')
    link.send(b'answer 1 {"id":null}')
    assert client.line() == b'{"id":null}'


def test_the_last_line_counts_without_its_newline(client: Client, daemon: Daemon) -> None:
    link = daemon.accept()
    link.hello()
    client.stdin.write(b'{"jsonrpc":"2.0","method":"last"}')
    client.stdin.close()
    assert link.line() == b'> 1 {"jsonrpc":"2.0","method":"last"}'
    link.send(b"ack 1")
    assert link.line() == b""
    assert client.process.wait(WAIT) == 0


def test_too_long_line_is_refused_and_next_served(client: Client, daemon: Daemon) -> None:
    link = daemon.accept()
    link.hello()
    client.write(b'{"x":"' + b"x" * (64 * 1024 * 1024) + b'"}')
    client.notify("next")
    assert client.message() == {
        "jsonrpc": "2.0",
        "id": None,
        "error": {
            "code": -32600,
            "message": "The line is longer than 64 MiB; it was not read. Put long material in files.",
        },
    }
    assert b'"next"' in link.line()


@pytest.mark.long
def test_forty_mebibyte_line_passes_in_both_directions(client: Client, daemon: Daemon) -> None:
    link = daemon.accept()
    link.hello()
    big = encode({"x": "x" * (40 * 1024 * 1024)})
    client.write(big)
    assert link.line() == b"> 1 " + big
    link.send(b'attached 1 0 0 "s"', b"update 1 1 " + big)
    assert client.line() == big


def test_non_reading_client_blocks_daemon_without_losing_lines(
    client: Client, daemon: Daemon
) -> None:
    link = daemon.accept()
    link.hello()
    link.send(b'attached 1 0 0 "s"')
    text = b"x" * 10_000
    sent = fill(link.socket.fileno(), b"update 1 1 " + text + b"\n")
    assert sent * len(text) < 4 * 1024 * 1024
    client.notify("still heard")
    assert b"still heard" in link.client_line()
    assert [client.line() for _ in range(sent)] == [text] * sent


def test_non_reading_daemon_blocks_client_without_losing_lines(
    client: Client, daemon: Daemon
) -> None:
    link = daemon.accept()
    link.hello()
    line = encode({"jsonrpc": "2.0", "method": "n", "params": "x" * 10_000}) + b"\n"
    sent = fill(client.stdin.fileno(), line)
    assert sent * len(line) < 4 * 1024 * 1024
    link.send(b'notify {"still":"heard"}')
    assert client.line() == b'{"still":"heard"}'
    for number in range(1, sent + 1):
        assert link.line() == b"> %d %b" % (number, line[:-1])


# --- another daemon


def test_unanswered_requests_are_sent_again_in_order(client: Client, daemon: Daemon) -> None:
    link = daemon.accept()
    front = link.hello()["front"]
    before = int(time.time() * 1000)
    initialize = client.request("initialize", {"protocolVersion": 1})
    link.line()
    link.send(b"answer 1 " + result(initialize))
    client.message()
    link.line()
    first = client.request("session/prompt")
    client.notify("acknowledged, and after a request")
    client.notify("not acknowledged")
    second = client.request("session/prompt")
    lines = [link.line() for _ in range(4)]
    link.send(b"ack 3", b"answer 5 " + result(second))
    assert client.message() == json.loads(result(second))
    daemon.restart()
    link = daemon.accept()
    hello = link.hello()
    assert hello["front"] == front
    assert hello["initialize"] == {"protocolVersion": 1}
    again = [link.line() for _ in range(3)]
    assert [line.split(b" ", 3)[3] for line in again] == [
        line.split(b" ", 2)[2] for line in lines[:3]
    ]
    for line in again:
        mark, _, at, _ = line.split(b" ", 3)
        assert mark == b">>"
        assert before <= int(at) <= int(time.time() * 1000)
    client.notify("new")
    assert link.line().startswith(b"> 6 ")
    link.send(
        b"answer 2 " + result(first),
        b"answer 2 " + result(first),
        b"answer 5 " + result(second),
        b"ack 4",
    )
    assert client.message()["id"] == first
    assert link.line() == b"done 2"
    daemon.restart()
    link = daemon.accept()
    link.hello()
    assert link.line().startswith(b">> 6 ")
    client.notify("end")
    assert link.line().startswith(b"> 7 ")
    assert client.is_silent()


@pytest.mark.parametrize("counts", [True, False])
def test_daemon_deaths_over_request_count_until_accepted(
    client: Client, daemon: Daemon, counts: bool
) -> None:
    """Each of them is a process that dies, or else ends in order, lives on, has taken the request,
    or says nothing.
    """
    with processes(4) as there:
        request_id = 0
        for at, process in enumerate(there):
            known = client_process.of(process.pid)
            link = daemon.accept()
            hello = link.hello(**({} if at == 3 and not counts else {"daemon": known}))
            assert hello["deaths"] == ({"1": at} if at and counts else {})
            if at == 0:
                request_id = client.request("session/prompt")
            assert link.line().startswith(b"> 1 " if at == 0 else b">> 1 ")
            if at == 0 and not counts:
                link.send(b"bye")
            elif at == 2 and not counts:
                assert hello["taken"] == []
                link.send(b"taken 1")
            elif at == 3 and not counts:
                assert hello["taken"] == [1]
            if at != 1 or counts:
                process.kill()
                process.wait()
            daemon.restart()
        link = daemon.accept()
        assert link.hello()["deaths"] == ({"1": 4} if counts else {})
        link.send(
            b'refuse 1 {"code":-32010,"message":"no","data":{"errorKind":"server_died"}}',
            b"refuse 1 {}",
        )
        error = {"code": -32010, "message": "no", "data": {"errorKind": "server_died"}}
        assert client.message() == {"jsonrpc": "2.0", "id": request_id, "error": error}
        while (line := link.line()) != b"done 1":
            assert line.startswith(b">> 1 ")
        daemon.restart()
        assert daemon.accept().hello()["deaths"] == {}


def test_notification_and_answer_killing_two_daemons_are_dropped(
    client: Client, daemon: Daemon
) -> None:
    """The question of the refused answer is passed on once more; what was acknowledged counts no
    deaths.
    """
    question = (
        b'request "q" {"jsonrpc":"2.0","id":"q","method":"session/request_permission","params":{}}'
    )
    with processes(3) as there:
        for at, process in enumerate(there):
            link = daemon.accept()
            hello = link.hello(daemon=client_process.of(process.pid))
            assert hello["deaths"] == ({"3": at, "4": at} if at else {})
            link.send(question)
            if at == 0:
                client.request("session/prompt")
                client.notify("acknowledged")
                client.notify("session/cancel")
                assert client.message()["id"] == "q"
                client.write(b'{"jsonrpc":"2.0","id":"q","result":1}')
                sent = [link.line().split(b" ", 2)[1] for _ in range(4)]
                assert sent == [b"1", b"2", b"3", b"4"]
                link.send(b"ack 2", b"taken 1")
            else:
                sent = [link.line().split(b" ", 2)[1] for _ in range(4)]
                assert sent == [b"1", b"2", b"3", b"4"]
            if at < 2:
                assert client.is_silent()
                process.kill()
                process.wait()
                daemon.restart()
        assert client.message()["id"] == "q", "its answer will not be read"
        link.send(b"refuse 3 {}", b"refuse 4 {}", question)
        assert client.is_silent()
        client.write(b'{"jsonrpc":"2.0","id":"q","result":2}')
        assert b'"result":2' in link.line().replace(b" ", b"")
        daemon.restart()
        link = daemon.accept()
        hello = link.hello()
        assert hello["deaths"] == {"3": 2}, "kept behind the prompt, it is refused again"
        assert hello["asked"] == []
        link.send(b"answer 1 " + result(1), b"ack 5")
        assert client.message()["id"] == 1
        daemon.restart()
        assert daemon.accept().hello()["deaths"] == {}


@contextmanager
def processes(count: int) -> Iterator[list[subprocess.Popen[bytes]]]:
    started = [subprocess.Popen(["sleep", "1000"]) for _ in range(count)]
    try:
        yield started
    finally:
        for one in started:
            one.kill()
            one.wait()


def test_new_daemon_is_told_clients_position(client: Client, daemon: Daemon) -> None:
    link = daemon.accept()
    link.hello()
    opened(client, link, 1)
    link.send(b"update 1 1 " + update(1), b"cursor 1 2", b"update 1 3 " + update(3)[:-4])
    link.socket.sendall(b"update 1 4 {")
    assert client.line() == update(1)
    assert client.line() == update(3)[:-4]
    load = client.request("session/load", NEW | {"sessionId": "s"})
    while not link.line().startswith(b"> 2 "):
        pass
    link.close()
    link = daemon.accept()
    assert link.hello()["sessions"] == {"s": {"seq": 3, "seen": 3, "line": 0, "opened": KEPT}}
    assert link.line().startswith(b">> 2 ")
    link.send(b'attached 1 0 2 "s"', b"update 1 1 " + update(1))
    assert client.line() == update(1)
    link.close()
    link = daemon.accept()
    assert link.hello()["sessions"] == {"s": {"seq": 1, "seen": 1, "line": 2, "opened": KEPT}}
    link.send(b'attached 5 1 2 "s"', b"answer 2 " + result(load))
    client.message()
    link.close()
    link = daemon.accept()
    assert link.hello()["sessions"] == {"s": {"seq": 1, "seen": 1, "line": 0, "opened": KEPT}}
    link.send(b'attached 5 1 2 "s"', b"detached 5")
    client.notify("x")
    while not link.line().startswith(b"> 3 "):
        pass
    link.close()
    assert daemon.accept().hello()["sessions"] == {}


def test_a_daemons_request_reaches_the_client_once(client: Client, daemon: Daemon) -> None:
    ask = b'request "a \\"1" {"jsonrpc":"2.0","id":"a \\"1","method":"session/request_permission"}'
    link = daemon.accept()
    link.hello()
    link.send(ask, ask)
    assert client.message()["id"] == 'a "1'
    link.send(b'notify {"x":1}')
    assert client.message() == {"x": 1}
    daemon.restart()
    link = daemon.accept()
    assert link.hello()["asked"] == ['a "1']
    client.write(b'{"jsonrpc":"2.0","id":"a \\"1","result":{}}')
    assert link.line() == b'> 1 {"jsonrpc":"2.0","id":"a \\"1","result":{}}'
    link.send(ask, b'notify {"x":2}')  # it is on its way
    assert client.message() == {"x": 2}
    daemon.restart()
    link = daemon.accept()
    assert link.hello()["asked"] == []
    assert link.line().startswith(b">> 1 ")
    link.send(b"ack 1", ask)  # it is asked anew
    assert client.message()["id"] == 'a "1'
    link.send(
        b'notify {"jsonrpc":"2.0","method":"$/cancel_request","params":{"requestId":"a \\"1"}}', ask
    )
    assert client.message()["method"] == "$/cancel_request"
    assert client.message()["id"] == 'a "1'


def test_answer_after_daemons_end_is_confirmed_to_next(client: Client, daemon: Daemon) -> None:
    link = daemon.accept()
    link.hello()
    prompt = client.request("session/prompt")
    link.line()
    # More than the client's pipe takes, so that the daemon is gone before the answer has arrived.
    link.send(b'attached 1 0 0 "s"', b"update 1 1 " + b"x" * 500_000, b"answer 1 " + result(prompt))
    link.close()
    link = daemon.accept()
    assert link.hello()["sessions"]["s"]["seq"] == 1
    link.send(b'attached 3 1 0 "s"')
    client.notify("n")
    assert link.line().startswith(b"> 2 ")
    assert len(client.line()) == 500_000
    assert client.message()["id"] == prompt
    assert {link.line(), link.line()} == {b"done 1", b"seen 3 1"}


def test_updates_before_answer_are_confirmed_before_it(client: Client, daemon: Daemon) -> None:
    """A client that ends its agent as soon as it has an answer (Mitto does) is not shown the turn
    again.
    """
    link = daemon.accept()
    link.hello()
    for number, seq in ((1, 7), (2, 9)):
        request_id = client.request("session/prompt")
        link.line()
        if number == 1:
            link.send(b'attached 1 0 0 "s"')
        link.send(b"update 1 %d {}" % seq, b"answer %d " % number + result(request_id))
        assert [link.line(), link.line()] == [b"seen 1 %d" % seq, b"done %d" % number]


def test_a_daemon_that_hangs_loses_nothing(client: Client, daemon: Daemon) -> None:
    request_id = client.request("initialize", {"protocolVersion": 1})
    assert client.message() == {"jsonrpc": "2.0", "id": request_id, "result": greeting()}
    client.notify("n")
    link = daemon.accept()
    link.hello()
    assert link.line().startswith(b"> 1 ")
    assert link.line().startswith(b"> 2 ")
    link.send(b"answer 1 " + result(request_id), b'notify {"x":1}')
    assert client.message() == {"x": 1}
    daemon.restart()
    link = daemon.accept()
    assert link.hello()["initialize"] == {"protocolVersion": 1}
    assert link.line().startswith(b">> 2 ")


@pytest.mark.parametrize(
    "line",
    [
        b'{"jsonrpc":"2.0","id":1,"method":"initialize"}',
        b'{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"1"}}',
        b'{"jsonrpc":"2.0","id":1.5,"method":"initialize","params":{"protocolVersion":1}}',
        b'{"id":1,"method":"initialize","params":{"protocolVersion":1}}',
    ],
)
def test_initialize_the_daemon_would_refuse_waits_for_it(
    line: bytes, client: Client, daemon: Daemon
) -> None:
    client.write(line)
    client.request("initialize", {"protocolVersion": 1})
    assert client.message()["id"] == 1  # the second one's: the front has answered what it will
    link = daemon.accept()
    link.hello()
    assert link.line() == b"> 1 " + line


def test_daemon_listening_elsewhere_is_found_by_its_lock(
    places: Places, daemon: Daemon, tmp_path: Path
) -> None:
    elsewhere = Places(places.data, places.state, str(tmp_path / "other" / "acp.sock"))
    with Client(elsewhere):
        daemon.accept().hello()


# --- the client's end


def test_front_ends_promptly_at_end_of_input(places: Places, daemon: Daemon) -> None:
    took = []
    for _ in range(5):
        with Client(places) as client:
            link = daemon.accept()
            link.hello()
            client.request("session/prompt")
            link.line()
            link.send(b"taken 1", b"notify {}")
            assert client.line() == b"{}"
            began = time.monotonic()
            client.stdin.close()
            assert client.line() == b""
            took.append(time.monotonic() - began)
            assert link.line() == b""
    assert min(took) < 1.0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_signal_ends_front_like_end_of_input(number: int, client: Client, daemon: Daemon) -> None:
    link = daemon.accept()
    link.hello()
    link.send(b'attached 1 0 0 "s"', b"update 1 1 " + update(1), b"update 1 2 " + update(2))
    assert client.line() == update(1)
    assert client.line() == update(2)
    client.process.send_signal(number)
    assert client.process.wait(WAIT) == 0
    confirmed = []
    while line := link.line():
        confirmed.append(line)
    assert confirmed[-1] == b"seen 1 2"


def test_it_ends_when_nobody_reads_its_output(client: Client, daemon: Daemon) -> None:
    daemon.accept().hello()
    client.stdout.close()
    assert client.process.wait(WAIT) == 0
    assert len(client.said()) == 1


def test_it_ends_while_it_waits_for_a_daemon(places: Places) -> None:
    with Daemon(places, listens=False), Client(places) as client:
        request_id = client.request("initialize", {"protocolVersion": 1})
        assert client.message()["id"] == request_id
        assert client.end() == 0
        assert client.said() == [
            f"pykoclaw-acp {__version__}: waiting for the daemon at {places.socket}"
        ]


def test_input_before_first_daemon_is_sent_as_new(places: Places) -> None:
    with Daemon(places, listens=False) as daemon, Client(places) as client:
        client.request("initialize", {"protocolVersion": 1})
        client.message()
        client.notify("n")
        daemon.listen()
        link = daemon.accept()
        assert link.hello()["initialize"] == {"protocolVersion": 1}
        assert link.line().startswith(b"> 2 ")


# --- a daemon that cannot be had


def refused(client: Client, status: int, kind: str) -> Any:
    """Two requests get the same error; returns it, without word joiners."""
    first = client.request("initialize", {"protocolVersion": 1})
    second = client.request("session/new", NEW)
    errors = {}
    while line := client.line():
        message = json.loads(line)
        errors[message["id"]] = message.get("error")
    assert set(errors) == {first, second}
    error = errors[second]
    assert client.process.wait(WAIT) == status
    assert error["code"] == -32010
    assert error["data"] == {"errorKind": kind}
    message = error["message"].replace("\u2060", "")
    assert client.said()[-1] == f"pykoclaw-acp: {message}"
    return message


def test_permanently_locked_data_directory_is_finally_an_error(places: Places) -> None:
    with Daemon(places, listens=False), Client(places, PYKOCLAW_DAEMON_TIMEOUT="0.5") as client:
        message = refused(client, 75, "data_in_use")
    assert f"(pid {os.getpid()}) uses the data directory {places.data}." in message
    assert f"log is {places.log}" in message


@pytest.mark.parametrize("name", ["mitto", "editor"])
def test_mitto_mistakes_no_path_for_large_context(tmp_path: Path, name: str) -> None:
    places = Places(str(tmp_path / "x413"), str(tmp_path / "state"), str(tmp_path / "run" / "acp"))
    info = {"name": name, "version": "1"}
    with Daemon(places, listens=False), Client(places, PYKOCLAW_DAEMON_TIMEOUT="0.5") as client:
        client.request("initialize", {"protocolVersion": 1, "clientInfo": info})
        refused = client.request("session/new", NEW)
        told = {one["id"]: one for one in map(json.loads, iter(client.line, b""))}
    message = told[refused]["error"]["message"]
    assert ("x4\u206013" in message) == (name == "mitto")
    assert ("413" in message) == (name != "mitto")


REFUSAL = b'{"jsonrpc":"2.0","id":null,"error":{"code":-32011,"message":"No page."}}'


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ([], "The daemon ends before it answers."),
        ([b"welcome {}"], "The daemon ends before it answers."),
        ([b"welcome {}", b'attached 1 0 0 "s"', REFUSAL], "No page."),
        ([REFUSAL], "No page."),
    ],
    ids=["nothing", "a welcome", "a welcome and a refusal", "a refusal"],
)
def test_daemon_serving_no_hello_is_finally_an_error(
    places: Places, said: list[bytes], reason: str
) -> None:
    with (
        Daemon(places, patience=0.05) as daemon,
        Client(places, PYKOCLAW_DAEMON_TIMEOUT="0.3") as client,
    ):
        request_id = client.request("session/new", NEW)
        late = time.monotonic() + WAIT
        while client.process.poll() is None:
            assert time.monotonic() < late
            try:
                link = daemon.accept()
            except TimeoutError:
                continue
            link.line()
            link.send(*said)
            link.close()
        told = client.message()
        assert told["id"] == request_id
        assert told["error"]["message"].startswith(reason)
        assert client.process.returncode == (75 if REFUSAL in said else 1)


def test_daemon_that_has_served_is_awaited_again(places: Places) -> None:
    with (
        Daemon(places, patience=0.05) as daemon,
        Client(places, PYKOCLAW_DAEMON_TIMEOUT="0.6") as client,
    ):
        late, first, last, calls = time.monotonic() + WAIT, 0.0, 0.0, 0
        while last - first < 1.5:  # it still comes when its patience would be over
            assert time.monotonic() < late
            assert client.process.poll() is None
            client.notify("n")
            try:
                link = daemon.accept()
            except TimeoutError:
                continue
            link.hello()
            last = time.monotonic()
            first = first or last
            calls += 1
            link.send(b"ack %d" % calls)
            link.close()


def test_unconfirmed_update_of_session_left_out_wakes_nobody(
    client: Client, daemon: Daemon
) -> None:
    """Its log cannot be read: nothing of it can be confirmed."""
    link = daemon.accept()
    link.hello()
    link.send(b'attached 1 0 0 "s"', b'update 1 1 {"u":1}')
    assert client.message() == {"u": 1}
    daemon.restart()
    link = daemon.accept()
    link.hello()
    link.send(b'notify {"n":1}')
    assert client.message() == {"n": 1}
    before, late = switches(client), time.monotonic() + 1.0
    eventually_sync(lambda: time.monotonic() > late)
    assert switches(client) - before < 5  # it confirms ten times a second


def switches(client: Client) -> int:
    """How often it has waited."""
    status = Path(f"/proc/{client.process.pid}/status").read_text()
    return int(status.partition("\nvoluntary_ctxt_switches:")[2].split()[0])


def test_daemon_that_never_answers_is_finally_an_error(places: Places) -> None:
    """The kernel accepts the connection for it, also while it is stopped."""
    with Daemon(places), Client(places, PYKOCLAW_DAEMON_TIMEOUT="0.5") as client:
        assert "does not answer" in refused(client, 1, "daemon_not_started")


def test_answer_behind_unread_output_is_no_silence(places: Places, daemon: Daemon) -> None:
    """While its client does not read, a front does not read what its daemon says."""
    with Client(places, PYKOCLAW_DAEMON_TIMEOUT="0.5") as client:
        link = daemon.accept()
        link.hello()
        assert fill(link.socket.fileno(), b'notify {"x":"%b"}\n' % (b"x" * 4096)) > 250
        daemon.restart()
        client.notify("n")
        link = daemon.accept()
        link.hello()
        late = time.monotonic() + 1.0
        eventually_sync(lambda: time.monotonic() > late)
        link.send(b"ack 1", b'notify {"last":1}')
        while client.message() != {"last": 1}:
            pass
        assert client.end() == 0


def test_daemon_closing_after_welcome_is_redialled_with_pause(places: Places) -> None:
    with Daemon(places, patience=0.05) as daemon, Client(places):
        calls, end = 0, time.monotonic() + WAIT
        while time.monotonic() < end:
            try:
                link = daemon.accept()
            except TimeoutError:
                continue
            link.hello()
            link.send(b"welcome {}")
            link.close()
            calls += 1
            end = min(end, time.monotonic() + 0.5)
        assert 1 < calls < 8  # 20 ms, then twice as long each time


def test_question_is_reasked_despite_earlier_open_request(client: Client, daemon: Daemon) -> None:
    ask = b'request "a" {"jsonrpc":"2.0","id":"a","method":"session/request_permission"}'
    link = daemon.accept()
    link.hello()
    client.request("session/prompt", {})
    link.line()
    link.send(ask)
    assert client.message()["id"] == "a"
    client.write(b'{"jsonrpc":"2.0","id":"a","result":{}}')
    link.line()
    link.send(b"ack 2", ask)
    assert client.message()["id"] == "a"


def test_lone_surrogate_does_not_invalidate_hello() -> None:
    ledger = Ledger()
    ledger.understand(ledger.keep(b'{"id":1,"method":"initialize","params":{"x":"\\ud83d"}}', 0))
    hello = msgspec.json.decode(ledger.hello({})[len(b"front ") :], type=FrontHello)
    assert msgspec.json.decode(hello.initialize) == {"x": "?"}


def test_recovering_daemon_is_awaited_longer_than_other_server(
    places: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dial, "TIMEOUT", 0.0)
    with Daemon(places, listens=False):
        assert Dialer(places).attempt() is None
        Path(places.lock).write_text(f"{os.getpid()}\n")  # `serve --stdio` has no socket
        with pytest.raises(NotStarted, match="uses the data directory"):
            Dialer(places).attempt()


def test_daemon_without_socket_is_not_awaited_as_recovering(
    places: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dial, "TIMEOUT", 0.0)
    with Daemon(places, listens=False):
        lock = Path(places.lock)
        lock.write_text(f"{os.getpid()}\n{places.socket}\nserves\n")
        with pytest.raises(NotStarted, match=r"socket .* is gone. `pykoclaw-acp restart`") as told:
            Dialer(places).attempt()
        assert places.socket in str(told.value)
        assert told.value.status == dial.TEMPORARY


def test_socket_directory_accessible_to_others_is_refused(places: Places, daemon: Daemon) -> None:
    os.chmod(os.path.dirname(places.socket), 0o755)
    with Client(places) as client:
        assert "chmod 700" in refused(client, 78, "configuration")


def test_settings_that_cannot_be_read_are_an_error(
    places: Places, tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    file = tmp_path / ".local/share/pykoclaw/.env"
    file.parent.mkdir(parents=True)
    file.write_bytes(b"PYKOCLAW_MODEL=\xff\n")
    with Client(places) as client:
        assert "it is not UTF-8 text" in refused(client, 78, "configuration")
