"""What an agent in memory keeps between its connections: sessions, and whether somebody has logged
in.
"""

from __future__ import annotations

import asyncio
import json
import urllib.request
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Frame = dict[str, Any]

MODES = ("ask", "plan", "free")
MODELS = ("large", "small")


class Failure(Exception):
    """What a request is answered with instead of a result."""

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(message)
        self.error: Frame = {"code": code, "message": message}
        if data is not None:
            self.error["data"] = data


def invalid(what: str) -> Failure:
    return Failure(-32602, f"Invalid params: {what}.")


def not_found(session: str) -> Failure:
    return Failure(-32002, "There is no such session.", {"sessionId": session})


@dataclass
class Session:
    """A conversation. `history` are the updates that a load replays; `keys`: prompts by the keys that
    clients gave them, of which those in `answered` have run; `marks`: what lists say of it;
    `most_requests`: to the model in a turn.
    """

    id: str
    cwd: str
    history: list[Frame] = field(default_factory=list)
    user_texts: list[str] = field(default_factory=list)
    values: dict[str, Any] = field(
        default_factory=lambda: {"mode": "ask", "model": "large", "fast": False}
    )
    title: str | None = None
    archived: bool = False
    turn: asyncio.Task[None] | None = None
    ready: asyncio.Lock = field(default_factory=asyncio.Lock)
    keys: dict[str, list[Frame]] = field(default_factory=dict)
    answered: set[str] = field(default_factory=set)
    marks: Frame = field(default_factory=dict)
    directories: list[str] = field(default_factory=list)
    plan: list[Frame] = field(default_factory=list)
    most_requests: int | None = None

    def modes(self) -> Frame:
        offered = [{"id": mode, "name": mode.title()} for mode in MODES]
        return {"currentModeId": self.values["mode"], "availableModes": offered}

    def options(self, *, switches: bool) -> list[Frame]:
        made: list[Frame] = [
            {
                "id": name,
                "name": name.title(),
                "category": name,
                "type": "select",
                "currentValue": self.values[name],
                "options": [{"value": value, "name": value.title()} for value in values],
            }
            for name, values in (("mode", MODES), ("model", MODELS))
        ]
        if switches:
            current = self.values["fast"]
            made.append({"id": "fast", "name": "Fast", "type": "boolean", "currentValue": current})
        return made

    def listed(self) -> Frame:
        return {
            "sessionId": self.id,
            "cwd": self.cwd,
            "title": self.title,
            "updatedAt": "2026-11-22T10:00:00+00:00",
            "archived": self.archived,
            **({"additionalDirectories": self.directories} if self.directories else {}),
            **({"_meta": self.marks} if self.marks else {}),
        }


@dataclass
class Installation:
    """`logins` says whether there is anything to log in to."""

    logins: bool = True
    logged_in: bool = True
    sessions: dict[str, Session] = field(default_factory=dict)

    def new(self, cwd: str, wanted: str | None = None) -> Session:
        if self.logins and not self.logged_in:
            raise Failure(-32000, "Log in first.")
        if wanted in self.sessions:
            raise invalid("the id is taken")
        session = Session(wanted or str(uuid.uuid4()), cwd)
        self.sessions[session.id] = session
        return session

    def find(self, params: Frame) -> Session:
        wanted = text(params, "sessionId")
        if wanted not in self.sessions:
            raise not_found(wanted)
        return self.sessions[wanted]


def text(params: Frame, name: str) -> str:
    """A required text."""
    value = params.get(name)
    if not isinstance(value, str):
        raise invalid(name)
    return value


def directory(params: Frame) -> str:
    """The directory of a session; the other parameters of opening one are examined as well."""
    cwd = text(params, "cwd")
    if not Path(cwd).is_absolute():
        raise invalid("cwd is relative")
    servers = params.get("mcpServers")
    if not isinstance(servers, list):
        raise invalid("mcpServers")
    for server in servers:
        if not isinstance(server, dict) or not isinstance(
            server.get("url" if server.get("type") in ("http", "sse") else "command"), str
        ):
            raise invalid("mcpServers")
    for extra in params.get("additionalDirectories", []):
        if not isinstance(extra, str) or not Path(extra).is_absolute():
            raise invalid("additionalDirectories")
    prompt = params.get("systemPrompt")
    if prompt is not None and prompt.get("mode") not in {"append", "override"}:
        raise invalid("systemPrompt.mode")
    if any(block.get("type") != "text" for block in (prompt or {}).get("content", [])):
        raise invalid("systemPrompt.content")
    return cwd


def visit(server: Frame) -> None:
    """Connect to an MCP server over http."""
    headers = {one["name"]: one["value"] for one in server["headers"]}
    asked = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": ""}}
    request = urllib.request.Request(server["url"], json.dumps(asked).encode(), headers)
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request):
        pass
