"""MCP servers over http and sse on loopback, in the test's own event loop, with the official SDK.

`WebServer` says what it was sent: the headers of each request by path. With `sign_in` it wants a
token of its own OAuth server (RFC 6749 with PKCE, and dynamic registration), whose page approves at
once.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import socket
import time
import urllib.error
import urllib.request
from collections.abc import AsyncIterator
from typing import Any

import uvicorn
from mcp.server.auth.provider import (
    AccessToken,
    AuthorizationCode,
    AuthorizationParams,
    OAuthAuthorizationServerProvider,
    RefreshToken,
    construct_redirect_uri,
)
from mcp.server.auth.settings import (
    AuthSettings,
    ClientRegistrationOptions,
    RevocationOptions,
)
from mcp.server.mcpserver import MCPServer
from mcp.shared.auth import OAuthClientInformationFull, OAuthToken
from pydantic import AnyHttpUrl
from starlette.types import ASGIApp, Receive, Scope, Send

from tests.waiting import eventually

LIFE = 3600  # s of a token


class Accounts(OAuthAuthorizationServerProvider[AuthorizationCode, RefreshToken, AccessToken]):
    """An authorization server that approves everybody, as the SDK's provider."""

    def __init__(self) -> None:
        self.clients: dict[str, OAuthClientInformationFull] = {}
        self.codes: dict[str, AuthorizationCode] = {}
        self.tokens: dict[str, AccessToken] = {}
        self.renewals: dict[str, RefreshToken] = {}

    async def get_client(self, client_id: str) -> OAuthClientInformationFull | None:
        return self.clients.get(client_id)

    async def register_client(self, client_info: OAuthClientInformationFull) -> None:
        assert client_info.client_id is not None
        self.clients[client_info.client_id] = client_info

    async def authorize(
        self, client: OAuthClientInformationFull, params: AuthorizationParams
    ) -> str:
        assert client.client_id is not None
        code = AuthorizationCode(
            code=secrets.token_urlsafe(32),
            scopes=params.scopes or [],
            expires_at=time.time() + LIFE,
            client_id=client.client_id,
            code_challenge=params.code_challenge,
            redirect_uri=params.redirect_uri,
            redirect_uri_provided_explicitly=params.redirect_uri_provided_explicitly,
            resource=params.resource,
        )
        self.codes[code.code] = code
        return construct_redirect_uri(str(params.redirect_uri), code=code.code, state=params.state)

    async def load_authorization_code(
        self, client: OAuthClientInformationFull, authorization_code: str
    ) -> AuthorizationCode | None:
        del client
        return self.codes.get(authorization_code)

    async def exchange_authorization_code(
        self, client: OAuthClientInformationFull, authorization_code: AuthorizationCode
    ) -> OAuthToken:
        del self.codes[authorization_code.code]
        return self._issue(client, authorization_code.scopes, authorization_code.resource)

    async def load_refresh_token(
        self, client: OAuthClientInformationFull, refresh_token: str
    ) -> RefreshToken | None:
        del client
        return self.renewals.get(refresh_token)

    async def exchange_refresh_token(
        self, client: OAuthClientInformationFull, refresh_token: RefreshToken, scopes: list[str]
    ) -> OAuthToken:
        del self.renewals[refresh_token.token]
        return self._issue(client, scopes, refresh_token.resource)

    async def load_access_token(self, token: str) -> AccessToken | None:
        return self.tokens.get(token)

    async def revoke_token(self, token: AccessToken | RefreshToken) -> None:
        self.tokens.pop(token.token, None)
        self.renewals.pop(token.token, None)

    def _issue(
        self, client: OAuthClientInformationFull, scopes: list[str], resource: str | None
    ) -> OAuthToken:
        assert client.client_id is not None
        access, renewal = "access-" + secrets.token_hex(16), "refresh-" + secrets.token_hex(16)
        self.tokens[access] = AccessToken(
            token=access,
            client_id=client.client_id,
            scopes=scopes,
            expires_at=int(time.time()) + LIFE,
            resource=resource,
        )
        self.renewals[renewal] = RefreshToken(
            token=renewal, client_id=client.client_id, scopes=scopes, resource=resource
        )
        return OAuthToken(access_token=access, expires_in=LIFE, refresh_token=renewal)


class WebServer:
    """One server while `serving`; `headers` are those of the requests by path, in order."""

    def __init__(self, url: str, accounts: Accounts | None) -> None:
        self.url = url
        self.accounts = accounts
        self.requests: list[tuple[str, dict[str, str]]] = []

    def given(self, **fields: Any) -> dict[str, Any]:
        """The server as a client gives it to an agent."""
        made = {"type": "http", "name": "web", "url": f"{self.url}/mcp", "headers": []}
        return {**made, **fields}

    def watch(self, app: ASGIApp) -> ASGIApp:
        async def watched(scope: Scope, receive: Receive, send: Send) -> None:
            if scope["type"] == "http":
                headers = {key.decode(): value.decode() for key, value in scope["headers"]}
                self.requests.append((scope["path"], headers))
            await app(scope, receive, send)

        return watched


@contextlib.asynccontextmanager
async def serving(
    transport: str = "http", *, sign_in: bool = False, place: socket.socket | None = None
) -> AsyncIterator[WebServer]:
    """A server with the tool `greet`, over streamable http or sse."""
    listener = place or socket.create_server(("127.0.0.1", 0))
    listener.listen()
    url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    accounts = Accounts() if sign_in else None
    settings = None
    if sign_in:
        settings = AuthSettings(
            issuer_url=AnyHttpUrl(url),
            resource_server_url=AnyHttpUrl(f"{url}/mcp"),
            client_registration_options=ClientRegistrationOptions(enabled=True),
            revocation_options=RevocationOptions(enabled=True),
            validate_token_resource=False,
        )
    mcp = MCPServer("web", auth_server_provider=accounts, auth=settings, log_level="ERROR")

    @mcp.tool()
    def greet(name: str) -> str:
        return f"Hello, {name}."

    app = mcp.sse_app() if transport == "sse" else mcp.streamable_http_app()
    made = WebServer(url, accounts)
    server = uvicorn.Server(
        uvicorn.Config(made.watch(app), log_level="critical", timeout_graceful_shutdown=1)
    )
    server.install_signal_handlers = lambda: None  # type: ignore[attr-defined]
    running = asyncio.create_task(server.serve(sockets=[listener]))
    try:
        await eventually(lambda: server.started)
        yield made
    finally:
        server.should_exit = True
        await running


async def approve(page: str) -> None:
    """Open the page of a sign-in as a browser does: it approves, and leads to whoever waits."""

    def opened() -> int:
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(page, timeout=30) as answer:
            return int(answer.status)

    assert await asyncio.to_thread(opened) == 200


async def ending(page: str) -> str:
    """The address at which a browser ends that opens the page of a sign-in, and cannot open it."""

    class Stay(urllib.request.HTTPRedirectHandler):
        def redirect_request(self, *_: Any) -> None:
            return None

    def opened() -> str:
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), Stay)
        try:
            opener.open(page, timeout=30)
        except urllib.error.HTTPError as redirected:
            return str(redirected.headers["Location"])
        raise AssertionError("the page leads nowhere")

    return await asyncio.to_thread(opened)
