"""MCP servers of a session that are reached over the web."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from tests.conformance.agents import Agent
from tests.conformance.registry import check, must

MARK = "X-Conformance"
VALUE = "mark ${HOME}"  # no agent may put anything of its own into it


@must
async def mcp_servers_over_http_are_connected(agent: Agent) -> None:
    """The agent connects to an http MCP server of the session, with the headers as given."""
    await _is_connected(agent, "http")


@must
async def mcp_servers_over_sse_are_connected(agent: Agent) -> None:
    """The agent connects to an sse MCP server of the session, with the headers as given."""
    await _is_connected(agent, "sse")


@must
async def unknown_transports_are_invalid(agent: Agent) -> None:
    """An MCP server of a transport that nobody knows is answered with -32602."""
    async with agent.client() as peer:
        server = {"type": "pigeon", "name": "a", "url": "http://127.0.0.1:9/", "headers": []}
        cwd = str(agent.directory())
        error = await peer.refused("session/new", cwd=cwd, mcpServers=[server])
        check(error["code"] == -32602, f"an unknown type is answered with {error}")


async def _is_connected(agent: Agent, transport: str) -> None:
    async with agent.client() as peer:
        peer.needs(f"mcpCapabilities.{transport}")
        with _server() as (url, marks):
            header = {"name": MARK, "value": VALUE}
            server = {"type": transport, "name": "mark", "url": url, "headers": [header]}
            session, _ = await agent.session(peer, mcpServers=[server])
            await peer.prompt(session, agent.text("Connected."))
            await peer.prompt(session, agent.text("Surely."))
        check(bool(marks), "the server was not asked anything within two prompts")
        check(set(marks) == {VALUE}, f"the header came as {set(marks)}")


@contextlib.contextmanager
def _server() -> Iterator[tuple[str, list[str | None]]]:
    """A server without tools on loopback, and what each request had as the header."""
    marks: list[str | None] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            marks.append(self.headers[MARK])
            self.send_error(405)

        def do_POST(self) -> None:
            marks.append(self.headers[MARK])
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            if "id" not in asked:
                self._answer(202, b"")
                return
            made: dict[str, object] = {"jsonrpc": "2.0", "id": asked["id"]}
            if asked["method"] == "initialize":
                made["result"] = {
                    "protocolVersion": asked["params"]["protocolVersion"],
                    "capabilities": {"tools": {}},
                    "serverInfo": {"name": "mark", "version": "1"},
                }
            elif asked["method"] == "tools/list":
                made["result"] = {"tools": []}
            else:
                made["error"] = {"code": -32601, "message": "There is no such method."}
            self._answer(200, json.dumps(made).encode())

        def _answer(self, status: int, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    listener = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=listener.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.server_port}/mcp", marks
    finally:
        listener.shutdown()
        thread.join()
        listener.server_close()
