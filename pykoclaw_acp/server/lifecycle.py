"""`session/new`, `load`, `resume`, `close`: answered from the database; none of them starts a worker."""

from __future__ import annotations

import asyncio
import os

import msgspec

from pykoclaw_acp.errors import InvalidParams, SessionNotFound
from pykoclaw_acp.protocol.jsonrpc import decode_params
from pykoclaw_acp.protocol.messages import (
    Empty,
    LoadSessionParams,
    McpServer,
    NewSessionParams,
    NewSessionResult,
    ResumeSessionParams,
    SessionParams,
)
from pykoclaw_acp.server.connection import Call
from pykoclaw_acp.sessions.session import Session
from pykoclaw_acp.worker.spec import McpStdio


async def new(call: Call, params: NewSessionParams) -> NewSessionResult:
    """A session; its row is committed before the answer."""
    cwd = _absolute("cwd", params.cwd)
    if not await asyncio.to_thread(os.path.isdir, cwd):
        raise InvalidParams("`cwd`: there is no such directory.")
    session = await call.sessions.create(cwd, _directories(params.additional_directories), _servers(params.mcp_servers))
    call.connection.attach(session, after=0)
    call.warm()
    return NewSessionResult(session_id=session.id)


async def load(call: Call, params: LoadSessionParams) -> Empty:
    """The whole history as updates, then the answer."""
    session = await _reopen(call, params, params.mcp_servers)
    told = session.last_seq
    attachment = call.connection.attach(session, after=0)
    try:
        await attachment.reached(told)
    except BaseException:
        attachment.close()
        raise
    return Empty()


async def resume(call: Call, params: ResumeSessionParams) -> Empty:
    """The same without history."""
    session = await _reopen(call, params, params.mcp_servers or [])
    call.connection.attached(session)
    return Empty()


async def close(call: Call, params: SessionParams) -> Empty:
    """Ends the session's turns and its worker; its history stays, and it can be loaded again."""
    session = await call.sessions.find(params.session_id)
    if session is None:
        raise SessionNotFound(params.session_id)
    await call.sessions.close(session)
    return Empty()


async def _reopen(call: Call, params: LoadSessionParams | ResumeSessionParams, servers: list[msgspec.Raw]) -> Session:
    cwd = _absolute("cwd", params.cwd)
    directories, mcp = _directories(params.additional_directories), _servers(servers)
    session = await call.sessions.find(params.session_id)
    if session is None:
        raise SessionNotFound(params.session_id)
    known = session.record.cwd
    if known is not None and not await asyncio.to_thread(_same_place, known, cwd):
        raise InvalidParams("`cwd`: the session belongs to another directory.", {"sessionCwd": known})
    await call.sessions.reopen(session, cwd, directories, mcp)
    call.warm()
    return session


def _same_place(one: str, other: str) -> bool:
    return os.path.realpath(one) == os.path.realpath(other)


def _absolute(name: str, path: str) -> str:
    if not os.path.isabs(path) or "\0" in path:
        raise InvalidParams(f"`{name}`: must be an absolute path.")
    return path


def _directories(paths: list[str] | None) -> tuple[str, ...]:
    return tuple(_absolute(f"additionalDirectories[{at}]", path) for at, path in enumerate(paths or []))


def _servers(raw: list[msgspec.Raw]) -> tuple[McpStdio, ...]:
    servers: list[McpStdio] = []
    for at, one in enumerate(raw):
        place = f"mcpServers[{at}]"
        if _transport(bytes(one)) not in (None, "stdio"):
            raise InvalidParams(f"`{place}.type`: this agent connects to stdio servers only.")
        server = decode_params(bytes(one), McpServer, place)
        if any(server.name == other.name for other in servers):
            raise InvalidParams(f"`{place}.name`: two servers have the same name.")
        servers.append(
            McpStdio(
                server.name, server.command, server.args, {variable.name: variable.value for variable in server.env}
            )
        )
    return tuple(servers)


def _transport(raw: bytes) -> object:
    try:
        value = msgspec.json.decode(raw)
    except msgspec.MsgspecError:
        return None
    return value.get("type") if isinstance(value, dict) else None
