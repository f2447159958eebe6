"""A tap in the wire between Claude and the model: when each delta left the model."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from urllib.parse import urlsplit

MARK = "~"  # the text of a delta that is timed; no other answer holds it
_DELTA = b'"text":"~'


class Tap:
    """A TCP relay in front of `url` until this process ends; `seen` are the times of the deltas (s,
    monotonic).
    """

    def __init__(self, url: str) -> None:
        self.seen: list[float] = []
        self._model = urlsplit(url)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            near, _ = self._listener.accept()
            far = socket.create_connection((self._model.hostname, self._model.port))
            for one in ((near, far, []), (far, near, self.seen)):
                threading.Thread(target=_relay, args=one, daemon=True).start()


def _relay(source: socket.socket, sink: socket.socket, seen: list[float]) -> None:
    rest = b""
    with contextlib.suppress(OSError), sink:
        while data := source.recv(65536):
            *lines, rest = (rest + data).split(b"\n")
            seen.extend([time.monotonic()] * sum(_DELTA in line for line in lines))
            sink.sendall(data)
