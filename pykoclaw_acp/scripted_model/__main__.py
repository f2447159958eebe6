"""`pykoclaw-acp scripted-model`: the scripted model as a process."""

from __future__ import annotations

import os
import shlex
import signal
import socket
import sys
import threading

import uvicorn

from pykoclaw_acp import terminal

from . import options
from .app import make_app
from .environment import offline_environment
from .record import RequestRecord


def main(argv: list[str] | None = None, called: str = "pykoclaw-acp scripted-model") -> int:
    """Serve on loopback until SIGTERM, SIGINT or, if requested, the end of stdin; `called`: the
    command as it was typed.
    """
    parser, _ = options.parser(called)
    arguments = parser.parse_args(argv)
    if arguments.environment is not None:
        home = arguments.environment.absolute()
        for name, value in offline_environment(f"http://127.0.0.1:{arguments.port}", home).items():
            terminal.line(f"export {name}={shlex.quote(value)}")
        return 0

    # uvicorn raises the signal again after it has shut down; that is a clean exit here.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: sys.exit(0))

    try:
        record = RequestRecord(arguments.record)
        listener = socket.create_server(("127.0.0.1", arguments.port))
    except OSError as error:
        what = error.filename or f"port {arguments.port}"
        parser.error(f"{what} cannot be used: {os.strerror(error.errno or 0)}")
    url = f"http://127.0.0.1:{listener.getsockname()[1]}"

    def started() -> None:
        terminal.as_json({"url": url}, indent=None)
        if arguments.exit_with_stdin:
            threading.Thread(target=stop_at_end_of_stdin, daemon=True).start()

    def stop_at_end_of_stdin() -> None:
        while os.read(0, 4096):
            pass
        server.should_exit = True

    config = uvicorn.Config(
        make_app(record, started=started),
        http="h11",
        ws="none",
        log_config=None,
        log_level="critical",
        access_log=False,
        server_header=False,
        # Responses that hang are cut at once.
        timeout_graceful_shutdown=0,
    )
    server = uvicorn.Server(config)
    server.run(sockets=[listener])
    return 0


if __name__ == "__main__":
    sys.exit(main())
