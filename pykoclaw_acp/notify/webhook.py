"""A webhook that is told: the notice by POST, signed with the secret that both sides know.

`Pykoclaw-Signature: t=<s since 1970>,v1=<hex>`, the latter being HMAC-SHA256 of `<t>.<body>` under
`PYKOCLAW_NOTIFY_SECRET`. Any status from 200 to 299 accepts; redirections are not followed.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import hmac
import http.client
import socket
import ssl
import time
from string import punctuation
from typing import Final
from urllib.parse import SplitResult, quote, urlsplit

from pykoclaw_acp import __version__
from pykoclaw_acp.notify.acceptance import NotAccepted
from pykoclaw_acp.notify.targets import is_loopback
from pykoclaw_acp.notify.threads import abandonable

LIMIT: Final = 10.0  # s


def signature(secret: str, body: bytes, at: int) -> str:
    """The signature of a body that is sent `at` (s since 1970)."""
    made = hmac.new(secret.encode(), b"%d.%s" % (at, body), hashlib.sha256).hexdigest()
    return f"t={at},v1={made}"


class Post:
    """One request. `close` ends it; what has not been sent then is not sent."""

    def __init__(self, url: str, secret: str, body: bytes, notice_id: str) -> None:
        self._parts = urlsplit(url)
        self._body = body
        self._headers = {
            "Content-Type": "application/json",
            "User-Agent": f"pykoclaw-acp/{__version__}",
            "Pykoclaw-Notice": notice_id,
            "Pykoclaw-Signature": signature(secret, body, int(time.time())),
            "Connection": "close",
        }
        self._connection: http.client.HTTPConnection | None = None
        self._closed = False

    def wait(self, limit: float) -> None:
        """Send it and wait for the status, blocking; raises NotAccepted."""
        path = self._parts.path or "/"
        target = quote(f"{path}?{self._parts.query}" if self._parts.query else path, punctuation)
        try:
            self._connection = _connection(self._parts, limit)
            self._connection.connect()
            self._connection.auto_open = 0
            if self._closed:
                raise NotAccepted("it was stopped")
            self._connection.request("POST", target, self._body, self._headers)
            status = self._connection.getresponse().status
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise NotAccepted(f"{type(error).__name__}: {error}") from error
        finally:
            self.close()
        if not 200 <= status < 300:
            raise NotAccepted(f"HTTP status {status}")

    def close(self) -> None:
        """Close the connection, from any thread."""
        self._closed = True
        connection = self._connection
        if connection is not None:
            if connection.sock is not None:
                with contextlib.suppress(OSError):
                    connection.sock.shutdown(socket.SHUT_RDWR)
            connection.close()


async def tell(url: str, secret: str, body: bytes, notice_id: str, limit: float = LIMIT) -> None:
    """Send the request; raises NotAccepted, at the latest after `limit` (s)."""
    post = Post(url, secret, body, notice_id)
    try:
        async with asyncio.timeout(limit):
            await abandonable(lambda: post.wait(limit))
    except TimeoutError:
        raise NotAccepted(f"no answer within {limit:.0f} s") from None
    finally:
        post.close()


def _connection(parts: SplitResult, limit: float) -> http.client.HTTPConnection:
    host = parts.hostname or ""
    # Without one, the client takes the end of an IPv6 address.
    port = parts.port or (443 if parts.scheme == "https" else 80)
    if parts.scheme == "https":
        context = ssl.create_default_context()
        return http.client.HTTPSConnection(host, port, timeout=limit, context=context)
    if not is_loopback(host):
        raise ValueError("a webhook on another machine needs https")
    # The name may lead elsewhere: http is for this machine alone.
    return http.client.HTTPConnection(
        "127.0.0.1" if host == "localhost" else host, port, timeout=limit
    )
