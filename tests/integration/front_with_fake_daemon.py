"""A front that starts a program of the test's in place of the daemon: `program` with the mode of
its life.

Run as a script, or with `daemon` as first argument to be that program. Each start adds a line to
the file `starts` in the data directory.
"""

from __future__ import annotations

import fcntl
import os
import socket
import sys
import threading
import time

from pykoclaw_acp.__main__ import main
from pykoclaw_acp.front import spawn
from pykoclaw_acp.link.places import LOCK_NAME, Places, secure_directory


def front() -> None:
    """The real front, with this file as its daemon, or a Python of the test's."""
    command = [os.environ.get("FAKE_PYTHON", sys.executable), __file__, "daemon", *sys.argv[1:]]
    spawn.command_line = lambda places, *, scope: command
    del sys.argv[1:]
    main()


def daemon(mode: str) -> None:
    """`serve`; `die`; `find`: serve if there is a database, and say so if not; `find-late`: it is back
    before that is said; `die-between`: serve the first time, and after some; `outdated`: serve once.

    Anything else is said on the pipe, the first time, and then it serves if that was about 75.
    """
    pipe = int(os.environ["PYKOCLAW_READY_FD"])
    os.close(int(os.environ["PYKOCLAW_START_LOCK_FD"]))
    inherited = [
        int(name) for name in os.listdir("/proc/self/fd") if os.path.exists(f"/proc/self/fd/{name}")
    ]
    places = Places.find()
    os.makedirs(places.data, exist_ok=True)
    with open(os.path.join(places.data, "starts"), "a+") as starts:
        starts.write(f"{os.getpid()} {os.getcwd()} {sorted(set(inherited) - {pipe})}\n")
        starts.seek(0)
        count = len(starts.readlines())
    if mode == "die" or (mode == "die-once" and count == 1):
        sys.exit(9)
    if mode == "die-between" and 1 < count < 7:
        sys.exit(9)
    if mode == "outdated" and count > 1:
        os.write(pipe, b"failed 78 A newer version has it.\nkind database_unusable\n")
        sys.exit(78)
    database = os.path.join(places.data, "pykoclaw.db")
    if mode.startswith("find") and not os.path.exists(database):
        if mode == "find-late":
            os.rename(os.path.join(places.data, "aside"), database)
        os.write(pipe, b"failed 78 The database is missing.\nkind database_missing\n")
        sys.exit(78)
    if mode.startswith("failed") and (count == 1 or " 75 " not in mode):
        os.write(pipe, mode.encode() + b"\n")
        sys.exit(1)
    serve(places, pipe)


def serve(places: Places, pipe: int) -> None:
    """Answers every request with the pid, until the lock file is removed."""
    lock = os.open(os.path.join(places.data, LOCK_NAME), os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.pwrite(lock, f"{os.getpid()}\n{places.socket}\n".encode(), 0)
    secure_directory(os.path.dirname(places.socket))
    if os.path.exists(places.socket):
        os.unlink(places.socket)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(places.socket)
    listener.listen(64)
    os.write(pipe, b"ready\n")
    os.close(pipe)
    listener.settimeout(0.05)
    deadline = time.monotonic() + 60
    while os.path.exists(os.path.join(places.data, LOCK_NAME)) and time.monotonic() < deadline:
        try:
            connection = listener.accept()[0]
        except TimeoutError:
            continue
        connection.settimeout(60)
        threading.Thread(target=answer, args=(connection,), daemon=True).start()


def answer(connection: socket.socket) -> None:
    with connection, connection.makefile("rb") as lines:
        for line in lines:
            if line.startswith(b"front "):
                connection.sendall(b'welcome {"version":"0","link":1}\n')
            if line.startswith(b"{"):  # a call, without a front
                connection.sendall(b'{"jsonrpc":"2.0","id":1,"result":%d}\n' % os.getpid())
            elif line.startswith(b">"):
                number = line.split(b" ")[1]
                connection.sendall(
                    b'answer %b {"jsonrpc":"2.0","id":%b,"result":%d}\n'
                    % (number, number, os.getpid())
                )


if __name__ == "__main__":
    if sys.argv[1:2] == ["daemon"]:
        daemon(sys.argv[2])
    else:
        front()
