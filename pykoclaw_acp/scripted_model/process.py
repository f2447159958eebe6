"""The scripted model as a subprocess of a test or the demo. Imports the standard library only."""

from __future__ import annotations

import http.client
import json
import selectors
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit

_START_SECONDS = 30.0
_STOP_SECONDS = 10.0
_REQUEST_SECONDS = 30.0


class ScriptedModel:
    """Context manager that runs the server; it also ends when this process dies.

    `port` 0 selects a free one. `record`: file to which every request is appended.
    """

    def __init__(self, *, port: int = 0, record: Path | None = None) -> None:
        self._command = [
            sys.executable,
            "-P",  # nothing is imported from the working directory
            "-m",
            "pykoclaw_acp.scripted_model",
            "--exit-with-stdin",
            "--port",
            str(port),
        ]
        if record is not None:
            self._command += ["--record", str(record)]
        self._process: subprocess.Popen[bytes] | None = None
        self._url = ""

    @property
    def url(self) -> str:
        """The base URL, for instance `http://127.0.0.1:41234`; empty before the start."""
        return self._url

    def start(self) -> Self:
        """Start the server and wait until it listens. Raises RuntimeError if it does not."""
        # The server stops at the end of its stdin, which the kernel closes when this process dies.
        self._process = subprocess.Popen(
            self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        try:
            self._url = _read_url(self._process)
        except BaseException:
            self.close()
            raise
        return self

    def requests(self, kind: str | None = "main") -> list[dict[str, Any]]:
        """Recorded requests of a kind in order of arrival; None: all."""
        status, body = self._ask("GET", "/requests" if kind is None else f"/requests?kind={kind}")
        if status != http.client.OK:
            raise RuntimeError(f"the scripted model answered {status}")
        requests: list[dict[str, Any]] = json.loads(body)
        return requests

    def clear(self) -> None:
        """Forget recorded requests."""
        self._ask("DELETE", "/requests")

    def close(self) -> None:
        """Stop the server and wait for its end. Does nothing if it is not running."""
        process, self._process = self._process, None
        if process is None:
            return
        process.terminate()
        try:
            process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()

    def __enter__(self) -> Self:
        """Start the server."""
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Stop the server."""
        self.close()

    def _ask(self, method: str, path: str) -> tuple[int, bytes]:
        # http.client, unlike urllib, has no eye for the proxies of an offline environment.
        connection = http.client.HTTPConnection(
            urlsplit(self._url).netloc, timeout=_REQUEST_SECONDS
        )
        try:
            connection.request(method, path)
            response = connection.getresponse()
            return response.status, response.read()
        finally:
            connection.close()


def _read_url(process: subprocess.Popen[bytes]) -> str:
    if process.stdout is None:
        raise RuntimeError("the scripted model has no stdout")
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        if not selector.select(_START_SECONDS):
            raise RuntimeError(f"the scripted model did not start within {_START_SECONDS:.0f} s")
    line = process.stdout.readline()
    if not line:
        raise RuntimeError(
            f"the scripted model ended at its start with exit status {process.wait()}"
        )
    url: str = json.loads(line)["url"]
    return url
