"""The least that keeping a live event takes, `python -m bench.floor FD DATABASE EVENTS`: read,
commit, pass on.

One event loop and one thread for the database, as in the daemon, with nothing of what the daemon is
for. What it used of the processor for an event, in seconds, goes to stdout.
"""

from __future__ import annotations

import asyncio
import queue
import socket
import subprocess
import sys
import threading
import time
from functools import partial
from pathlib import Path

from pykoclaw_acp.store.sqlite import sqlite3

FRAME = b"x" * 344  # bytes of a frame with a delta of eight characters
UPDATE = b"x" * 288


def cost(directory: Path, events: int, every: float) -> float:
    """Seconds of processor time for an event, `every` so many seconds one."""
    ours, theirs = socket.socketpair()
    command = [
        sys.executable,
        "-m",
        "bench.floor",
        str(theirs.fileno()),
        str(directory / "floor.db"),
        str(events),
    ]
    with (
        ours,
        subprocess.Popen(command, stdout=subprocess.PIPE, pass_fds=[theirs.fileno()]) as process,
    ):
        theirs.close()
        for _ in range(events):
            time.sleep(every)
            ours.sendall(FRAME)
            ours.recv(len(UPDATE), socket.MSG_WAITALL)
        assert process.stdout is not None
        return float(process.stdout.read())


def _commit(connection: sqlite3.Connection) -> None:
    connection.execute("BEGIN IMMEDIATE")
    connection.execute("INSERT INTO log (payload) VALUES (?)", ("x" * 120,))
    connection.execute("COMMIT")


def _work(
    connection: sqlite3.Connection, jobs: queue.SimpleQueue[asyncio.Future[None] | None]
) -> None:
    while (done := jobs.get()) is not None:
        _commit(connection)
        done.get_loop().call_soon_threadsafe(partial(done.set_result, None))


async def _main(connection: sqlite3.Connection, line: socket.socket, events: int) -> None:
    jobs: queue.SimpleQueue[asyncio.Future[None] | None] = queue.SimpleQueue()
    threading.Thread(target=_work, args=(connection, jobs), daemon=True).start()
    loop = asyncio.get_running_loop()
    began = 0.0
    for _ in range(events):
        await loop.sock_recv(line, len(FRAME))
        began = began or time.process_time()
        done: asyncio.Future[None] = loop.create_future()
        jobs.put(done)
        await done
        await loop.sock_sendall(line, UPDATE)
    print((time.process_time() - began) / events)


if __name__ == "__main__":
    database = sqlite3.connect(sys.argv[2], isolation_level=None, check_same_thread=False)
    database.execute("PRAGMA journal_mode=WAL")
    database.execute("PRAGMA synchronous=NORMAL")
    database.execute("CREATE TABLE IF NOT EXISTS log (seq INTEGER PRIMARY KEY, payload TEXT)")
    end = socket.socket(fileno=int(sys.argv[1]))
    end.setblocking(False)
    asyncio.run(_main(database, end, int(sys.argv[3])))
