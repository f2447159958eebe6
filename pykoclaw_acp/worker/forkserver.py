"""The fork server: imports the SDK once, then forks a worker per launch spec in milliseconds.

Requests and answers are JSON lines on the socketpair that it inherits; it exits when that is
closed. Workers outlive it, except those that end with the daemon's connection
(`LaunchSpec.orphan_grace` 0), for which it waits.
"""

from __future__ import annotations

import contextlib
import gc
import os
import selectors
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable
from typing import Final, NoReturn

import msgspec

from pykoclaw_acp.channel.processes import Forked, ForkRequest
from pykoclaw_acp.error_kinds import ErrorKind
from pykoclaw_acp.logging.without_rich import import_structlog
from pykoclaw_acp.system import shortage, unix_socket
from pykoclaw_acp.system.lineage import WORKER, WORKER_NAME
from pykoclaw_acp.system.processes import (
    become_subreaper,
    children,
    die_with_parent,
    set_name,
    start_time,
)
from pykoclaw_acp.worker import deferred_mcp
from pykoclaw_acp.worker.deferred_models import deferred_models

WORKERS_GRACE: Final = 5.0  # s; how long workers may take to end after the daemon did
OTHERS_GRACE: Final = 2.0  # s; how long what is killed may take
REST: Final = 0.5  # s without a request, after which the rest of the SDK's import is done


def main(translate: Callable[[bytes], bytes] = bytes) -> None:
    """Serve launch requests on the socket whose descriptor is the first argument.

    The second one is the pid of a daemon that its workers outlive; without it they end with the
    daemon. `translate` brings a request into the form of this version.
    """
    resident = len(sys.argv) > 2
    die_with_parent(resident)  # the end of the socket would show only after the import
    if resident and os.getppid() != int(sys.argv[2]):
        return
    control = socket.socket(fileno=int(sys.argv[1]))
    control.set_inheritable(False)
    become_subreaper()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # only the end of the socket ends it
    try:
        # What takes 0.4 s, once for all workers; a tenth of it would be collections that find
        # nothing.
        gc.disable()
        import_structlog()
        import pykoclaw_acp.logging.setup

        with deferred_models():
            deferred_mcp.import_sdk()
            # Each worker would import it as Claude starts, and after an upgrade from another version.
            import anyio._backends._asyncio  # noqa: F401

            import pykoclaw_acp.worker.main  # noqa: F401
            from pykoclaw_acp.worker.plugins import loading
        with contextlib.suppress(Exception):  # each worker says why
            loading.installed()
    except Exception as error:
        received = _receive(control)
        if (found := shortage.of(error)) is None:
            raise
        traceback.print_exc()
        _refuse(control, received, *found)
        return

    gc.freeze()
    gc.enable()
    workers: set[int] = set()
    with contextlib.suppress(ConnectionError):
        _serve(control, workers, translate)
    if not resident:
        _end_workers(workers)


def _serve(control: socket.socket, workers: set[int], translate: Callable[[bytes], bytes]) -> None:
    wake_read, wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(wake_write)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    selector = selectors.DefaultSelector()
    selector.register(control, selectors.EVENT_READ)
    selector.register(wake_read, selectors.EVENT_READ)
    received, rest = b"", None if deferred_mcp.is_complete() else REST
    while True:
        ready = {key.fd for key, _ in selector.select(rest)}
        if not ready:
            _complete_import()
            rest = None
        if wake_read in ready:
            os.read(wake_read, 4096)
            _reap(workers)
        if control.fileno() in ready:
            data = _receive(control)
            if not data:
                return
            *lines, received = (received + data).split(b"\n")
            for line in filter(None, lines):
                forked = launch(line, translate)
                if forked.error is None:
                    workers.add(forked.pid)
                control.sendall(msgspec.json.encode(forked) + b"\n")


def _complete_import() -> None:
    """Import what workers would else import one by one, and from another version perhaps."""
    gc.disable()
    try:
        deferred_mcp.complete()
    except Exception:  # noqa: BLE001  Claude says of each worker's server that it does not work
        traceback.print_exc()
    gc.freeze()
    gc.enable()


def _receive(control: socket.socket) -> bytes:
    """The next bytes of requests; prints to the log that comes with an empty line from now on."""
    data, descriptors, _, _ = socket.recv_fds(control, 256 * 1024, 1)
    for descriptor in descriptors:
        for stream in (1, 2):
            os.dup2(descriptor, stream)
        os.close(descriptor)
    return data


def _refuse(control: socket.socket, received: bytes, kind: ErrorKind, sentence: str) -> None:
    """Answer the pending launch: no worker can be forked."""
    with contextlib.suppress(ConnectionError):
        if received.strip() or control.recv(1):
            control.sendall(msgspec.json.encode(Forked(error=sentence, kind=kind)) + b"\n")


def launch(line: bytes, translate: Callable[[bytes], bytes] = bytes) -> Forked:
    """Fork the worker of a request; what becomes of it is the answer."""
    try:
        request = msgspec.json.decode(translate(line), type=ForkRequest)
        listener = _bind(request.files.socket)
    except (msgspec.MsgspecError, OSError) as error:
        return _failed(error)
    parent = os.getpid()
    try:
        pid = os.fork()
    except OSError as error:
        listener.close()
        return _failed(error)
    if pid == 0:
        _become_worker(request, listener, parent)
    listener.close()
    return Forked(pid=pid, start_time=start_time(pid) or 0)


def _failed(error: Exception) -> Forked:
    kind, sentence = shortage.of(error, forks=True) or (ErrorKind.START_FAILED, str(error))
    return Forked(error=sentence, kind=kind)


def _bind(path: str) -> socket.socket:
    """A listening socket at `path`, which may have any length, 0600."""
    listener = socket.socket(socket.AF_UNIX)
    directory = os.open(os.path.dirname(path), os.O_PATH | os.O_CLOEXEC)
    try:
        name = os.path.basename(path)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name, dir_fd=directory)  # of a fork server that died before it answered
        unix_socket.bind(listener, directory, name)
        listener.listen(8)
    except OSError:
        listener.close()
        raise
    finally:
        os.close(directory)
    return listener


def _become_worker(request: ForkRequest, listener: socket.socket, parent: int) -> NoReturn:
    spec, files = request.spec, request.files
    status = 1
    try:
        die_with_parent(True)  # until its daemon has connected: nobody would know of it
        if os.getppid() != parent:
            os._exit(status)
        os.setsid()
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD):
            signal.signal(number, signal.SIG_DFL)
        os.dup2(listener.fileno(), 3)
        os.closerange(4, min(65536, os.sysconf("SC_OPEN_MAX")))
        listener.detach()
        os.environ["CLAUDE_CODE_TMPDIR"] = files.temporary
        os.environ.update(spec.options.environment or {})
        os.environ[WORKER] = spec.cookie
        set_name(WORKER_NAME)
        os.environ.pop("CLAUDE_CODE_SSE_PORT", None)  # of the editor that we may run in
        become_subreaper()
        from pykoclaw_acp.logging import setup
        from pykoclaw_acp.worker.main import run

        setup.configure(spec.options.log_level, "json")
        status = run(spec, files, socket.socket(fileno=3))
    except BaseException:  # noqa: BLE001  whatever it was, the fork must not run on as a second fork server
        traceback.print_exc()
    finally:
        os._exit(status)


def _reap(workers: set[int]) -> None:
    with contextlib.suppress(ChildProcessError):
        while pid := os.waitpid(-1, os.WNOHANG)[0]:
            workers.discard(pid)
    # Live workers keep their own orphans: any other child was left by a dead one.
    for pid in children(os.getpid()):
        if pid not in workers:
            with contextlib.suppress(ProcessLookupError, PermissionError):  # as of sudo
                os.kill(pid, signal.SIGKILL)


def _end_workers(workers: set[int]) -> None:
    """Wait for the workers to end, then kill the remaining ones, and wait no longer for others."""
    deadline = time.monotonic() + WORKERS_GRACE
    while children(os.getpid()) and time.monotonic() < deadline + OTHERS_GRACE:
        if time.monotonic() > deadline:
            workers.clear()
        _reap(workers)
        time.sleep(0.02)


if __name__ == "__main__":
    main()
