"""A client that wants something small again and again, and says how long that took: `python -m
tests.faults.healthy`.

Its arguments are the daemon's socket, and a directory. It ends with its standard input.
"""

from __future__ import annotations

import json
import select
import socket
import sys
import time
from typing import Any, Final

from pykoclaw_acp.link.places import connect

LEAST: Final = 10  # prompts that are measured
PAUSE: Final = 0.05  # s; each prompt costs more than dozens of frames


def main(path: str, cwd: str) -> None:
    """Prompts, one after the other."""
    connection = socket.socket(fileno=connect(path).detach())
    file = connection.makefile("rwb")
    count = 0

    def call(method: str, **params: Any) -> dict[str, Any]:
        nonlocal count
        count += 1
        file.write(
            json.dumps({"jsonrpc": "2.0", "id": count, "method": method, "params": params}).encode()
            + b"\n"
        )
        file.flush()
        while True:
            message: dict[str, Any] = json.loads(file.readline())
            if message.get("id") == count and "method" not in message:
                return message

    call("initialize", protocolVersion=1)
    session = call("session/new", cwd=cwd, mcpServers=[])["result"]["sessionId"]
    prompt = {"sessionId": session, "prompt": [{"type": "text", "text": "say 1"}]}
    for _ in range(3):
        call("session/prompt", **prompt)
    print("ready", flush=True)
    took: list[float] = []
    while not select.select([sys.stdin], [], [], PAUSE)[0] or len(took) < LEAST:
        began = time.monotonic()
        answer = call("session/prompt", **prompt)
        took.append((time.monotonic() - began) * 1000)
        assert "result" in answer, answer
    took.sort()
    figures = {
        "count": len(took),
        "p50": took[len(took) // 2],
        "p99": took[int(len(took) * 0.99)],
        "max": took[-1],
    }
    print(json.dumps({name: round(value, 1) for name, value in figures.items()}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
