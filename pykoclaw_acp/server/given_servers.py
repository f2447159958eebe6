"""The MCP servers that a client gives a session, decoded and checked."""

from __future__ import annotations

import re
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec

from pykoclaw_acp.channel.options import McpServer
from pykoclaw_acp.errors import InvalidParams
from pykoclaw_acp.protocol.jsonrpc import decode_params
from pykoclaw_acp.protocol.messages import HttpHeader, StdioServer, WebServer

MAX_SERVERS: Final = 200
NO_NAME: Final = "__proto__"  # of a property in JavaScript, in which Claude's CLI is written
_TRANSPORTS: Final = ("stdio", "http", "sse")
_TOKEN: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")  # RFC 9110, 5.6.2
_CONTROL: Final = re.compile(r"[\x00-\x20\x7f]")
_BREAKS: Final = re.compile(r"[\x00\r\n]")


def servers(raw: list[msgspec.Raw]) -> tuple[McpServer, ...]:
    """Decode the MCP servers; raises InvalidParams, without values that may be secret."""
    if len(raw) > MAX_SERVERS:
        raise InvalidParams(
            f"`mcpServers`: are more than {MAX_SERVERS}; give a session those that it needs."
        )
    taken: dict[str, McpServer] = {}
    for at, one in enumerate(raw):
        place = f"mcpServers[{at}]"
        server = _server(bytes(one), place)
        if not server.name:
            raise InvalidParams(f"`{place}.name`: must not be empty.")
        if server.name == NO_NAME:
            raise InvalidParams(f"`{place}.name`: Claude cannot have a server named {NO_NAME}.")
        if server.name in taken:
            raise InvalidParams(f"`{place}.name`: two servers have the same name.")
        taken[server.name] = server
    return tuple(taken.values())


def _server(raw: bytes, place: str) -> McpServer:
    transport = _transport(raw)
    if transport is not None and transport not in _TRANSPORTS:
        raise InvalidParams(
            f"`{place}.type`: this agent connects to servers on stdio, http and sse only."
        )
    if transport in (None, "stdio"):
        program = decode_params(raw, StdioServer, place)
        environment = {variable.name: variable.value for variable in program.env}
        return McpServer(
            name=program.name, command=program.command, args=tuple(program.args), env=environment
        )
    web = decode_params(raw, WebServer, place)
    _require_address(web.url, place)
    headers = _headers(web.headers, place)
    return McpServer(name=web.name, transport=web.type, url=web.url, headers=headers)


def _require_address(url: str, place: str) -> None:
    try:
        parts = urlsplit(url)
        valid = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        valid = False
    if not valid or _CONTROL.search(url):
        raise InvalidParams(f"`{place}.url`: must be an address that begins with http or https.")


def _headers(given: list[HttpHeader], place: str) -> dict[str, str]:
    for at, one in enumerate(given):
        if not _TOKEN.fullmatch(one.name):
            raise InvalidParams(f"`{place}.headers[{at}].name`: is not a valid HTTP header name.")
        if _BREAKS.search(one.value):
            raise InvalidParams(f"`{place}.headers[{at}].value`: must be one line.")
    return {one.name: one.value for one in given}


class _Transport(msgspec.Struct):
    type: Any = None


def _transport(raw: bytes) -> object:
    try:
        return msgspec.json.decode(raw, type=_Transport).type
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return None
