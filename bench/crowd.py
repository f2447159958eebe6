"""A round of what a client feels beside others that do their worst, and alone: `session/load` of a
small session. Where the baseline of a row is a limit, a ratio above 1 is a regression.

As a program it is one of those: `python -m bench.crowd KIND SOCKET DIRECTORY`, until it is killed.
"""

from __future__ import annotations

import asyncio
import json
import os
import select
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import quantiles
from typing import Any, Final

from bench.figures import Figures
from bench.lab import WORK, Lab
from bench.lists import seed
from bench.resident import daemon
from bench.turns import MS
from pykoclaw_acp.link.places import Places, connect

KINDS: Final = (
    "a flood of refused requests",
    "listings that nobody reads",
    "lines of half a million values",
    "images of 60 MiB",
    "a flood of new sessions",
    "introductions of 8 MiB",
)
LIMIT: Final = 50  # ms, on two cores
PAUSE: Final = 0.005  # s between two requests of the healthy client
TOGETHER: Final = 4  # connections of each kind
SESSIONS: Final = 10_000  # what a listing lists
HELLO: Final = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {"protocolVersion": 1}}
SESSION: Final = {"sessionId": "s", "prompt": []}
IMAGE: Final = {"type": "image", "mimeType": "image/png", "data": "A" * (60 * 1024 * 1024)}


def crowd(lab: Lab, figures: Figures, requests: int) -> None:
    """The 99th percentile alone and beside each kind, in a database with SESSIONS."""
    data = lab.home / "crowd"
    if not data.exists():
        data.mkdir(mode=0o700)
        asyncio.run(seed(data, SESSIONS))
    with daemon(lab, PYKOCLAW_DATA=str(data)):
        places = Places(data, lab.home / ".local/state/pykoclaw")
        cwd = str(lab.home / WORK)
        alone = _p99(places.socket, cwd, requests)
        for kind in KINDS:
            command = [sys.executable, "-m", "bench.crowd", kind, places.socket, cwd]
            environment = lab.environment | {"PYTHONPATH": str(Path(__file__).parents[1])}
            process = subprocess.Popen(command, stdout=subprocess.PIPE, env=environment)
            try:
                assert process.stdout is not None
                process.stdout.readline()
                beside = _p99(places.socket, cwd, requests)
            finally:
                process.kill()
                process.communicate()
            figures.note(f"session/load beside {kind}, p99, ms", beside, "alone", alone)
            figures.note(f"session/load beside {kind}, p99, ms", beside, "limit", LIMIT)


def _p99(path: str, cwd: str, requests: int) -> float:
    file = _open(path).makefile("rwb")

    def call(number: int, method: str, params: dict[str, Any]) -> Any:
        file.write(
            json.dumps(
                {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
            ).encode()
            + b"\n"
        )
        file.flush()
        while (message := json.loads(file.readline())).get("id") != number:
            pass
        return message["result"]

    call(1, "initialize", {"protocolVersion": 1})
    opened = {"cwd": cwd, "mcpServers": []}
    session = call(2, "session/new", opened)["sessionId"]
    took = []
    for number in range(3, requests + 3):
        time.sleep(PAUSE)
        began = time.monotonic()
        call(number, "session/load", {"sessionId": session, **opened})
        took.append((time.monotonic() - began) * MS)
    return quantiles(took, n=100)[98]


# --- those that do their worst


def _lines(method: str, params: dict[str, Any], count: int) -> bytes:
    messages = (
        {"jsonrpc": "2.0", "id": n, "method": method, "params": params} for n in range(count)
    )
    return b"".join(json.dumps(message).encode() + b"\n" for message in messages)


def _said(kind: str, cwd: str) -> bytes:
    """What is said again and again."""
    match kind:
        case "a flood of refused requests":
            return _lines("session/nothing", {}, 2000)
        case "a flood of new sessions":
            return _lines("session/new", {"cwd": cwd, "mcpServers": []}, 2000)
        case "listings that nobody reads":
            return _lines("_pykoclaw.dev/sessions/list", {"all": True, "limit": SESSIONS}, 300)
        case "lines of half a million values":
            return _lines("session/new", {"cwd": cwd, "_meta": {"a": [0] * 500_000}}, 1)
        case "introductions of 8 MiB":
            deaths = {str(n): 1 for n in range(600_000)}
            return b"front %b\n" % json.dumps({"front": "f", "deaths": deaths}).encode()
        case _:
            return _lines("session/prompt", {**SESSION, "prompt": [IMAGE]}, 1)


def _open(path: str) -> socket.socket:
    return socket.socket(fileno=connect(path).detach())


def _attack(kind: str, path: str, cwd: str) -> None:
    reads = "nobody reads" not in kind
    introduced = b"" if kind.startswith("introductions") else json.dumps(HELLO).encode() + b"\n"
    said = _said(kind, cwd)
    there = [_begun(path, introduced) for _ in range(TOGETHER)]
    sys.stdout.write("begun\n")
    sys.stdout.flush()
    left = {one: _again(said) for one in there}
    waiting = dict.fromkeys(there, b"")
    while True:
        readable, writable, _ = select.select(there if reads else [], there, [])
        gone = [one for one in readable if not _received(one)]
        for one in set(writable).difference(gone):
            waiting[one] = waiting[one] or next(left[one])
            try:
                waiting[one] = waiting[one][one.send(waiting[one]) :]
            except ConnectionError:
                gone.append(one)
        for one in gone:  # it was refused
            there.remove(one)
            one.close()
            there.append(another := _begun(path, introduced))
            left[another], waiting[another] = _again(said), b""
        if not readable and not writable:
            os.sched_yield()


def _begun(path: str, introduced: bytes) -> socket.socket:
    one = _open(path)
    one.sendall(introduced)
    one.setblocking(False)
    return one


def _received(one: socket.socket) -> bytes:
    try:
        return one.recv(1 << 20)
    except ConnectionError:
        return b""


def _again(said: bytes) -> Iterator[bytes]:
    size = 256 * 1024
    while True:
        yield from (said[at : at + size] for at in range(0, len(said), size))


if __name__ == "__main__":
    _attack(*sys.argv[1:])
