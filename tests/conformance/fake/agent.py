"""An agent in memory that keeps all rules and advertises everything, for trying out the rules."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
from collections.abc import Callable
from typing import Any, Final

from tests.conformance.fake import own_meta
from tests.conformance.fake.following import FOLLOW, Followers
from tests.conformance.fake.installation import (
    Failure,
    Frame,
    Installation,
    Session,
    directory,
    invalid,
    not_found,
    text,
    visit,
)
from tests.conformance.fake.turns import Turn
from tests.conformance.recording import granted

PAGE: Final = 2  # sessions
CAPABILITIES: Final[Frame] = {
    "loadSession": True,
    "promptCapabilities": {"image": True, "audio": True, "embeddedContext": True},
    "mcpCapabilities": {"http": True, "sse": True},
    "sessionCapabilities": {
        **{name: {} for name in ("additionalDirectories", "archive", "close", "delete", "fork")},
        **{name: {} for name in ("list", "resume", "status", "title", "systemPrompt")},
    },
    "auth": {"logout": {}, "status": {}},
    "providers": {},
}


class FakeAgent:
    """One connection. `emit` takes what the agent says."""

    def __init__(self, installation: Installation, emit: Callable[[Frame], None]) -> None:
        self.installation = installation
        self.emit = emit
        self.client: Frame | None = None  # its capabilities
        self._followers = Followers(emit)
        self._asked: dict[Any, asyncio.Future[Frame]] = {}
        self._turns: dict[str, tuple[Session, asyncio.Task[None]]] = {}  # by the id of the prompt
        self._methods: dict[str, Callable[[Frame], Frame]] = {
            "authenticate": self._authenticate,
            "logout": self._logout,
            "auth/status": self._auth_status,
            "providers/list": self._providers,
            "providers/disable": self._disable,
            "session/new": self._new,
            "session/load": self._load,
            "session/resume": self._resume,
            "session/fork": self._fork,
            "session/list": self._list,
            "session/delete": self._delete,
            "session/close": self._close,
            "session/archive": lambda params: self._archive(params, archived=True),
            "session/unarchive": lambda params: self._archive(params, archived=False),
            "session/status": self._status,
            "session/set_title": self._set_title,
            "session/set_mode": self._set_mode,
            "session/set_config_option": self._set_option,
        }

    # --- the wire

    def take(self, line: bytes) -> None:
        """A line of the client."""
        try:
            frame = json.loads(line)
        except ValueError:
            self._fail(None, Failure(-32700, "Not JSON."))
            return
        if not isinstance(frame, dict):
            self._fail(None, Failure(-32600, "Not a message."))
        elif "method" not in frame:
            waiting = self._asked.pop(frame.get("id"), None)
            if waiting is not None and not waiting.done():
                waiting.set_result(frame)
        elif "id" not in frame:
            self._notified(frame["method"], frame.get("params") or {})
        else:
            self._request(frame["id"], frame["method"], frame.get("params") or {})

    def end(self) -> None:
        """The client is gone."""
        for _, turn in self._turns.values():
            turn.cancel()

    def _request(self, message_id: Any, method: str, params: Frame) -> None:
        try:
            if method == "session/prompt" and self.client is not None:
                self._prompt(message_id, params)
            elif method == FOLLOW:
                found = self.installation.find({"sessionId": params.get("session")})
                self._followers.begin(message_id, found, params)
            else:
                self.emit({"jsonrpc": "2.0", "id": message_id, "result": self._do(method, params)})
        except Failure as failure:
            self._fail(message_id, failure)

    def _fail(self, message_id: Any, failure: Failure) -> None:
        self.emit({"jsonrpc": "2.0", "id": message_id, "error": failure.error})

    def _do(self, method: str, params: Frame) -> Frame:
        if method == "initialize":
            return self._initialize(params)
        if self.client is None:
            raise Failure(-32600, "Initialize first.")
        if method not in self._methods:
            raise Failure(-32601, "There is no such method.")
        return self._methods[method](params)

    def _notified(self, method: str, params: Frame) -> None:
        if method == "session/cancel":
            for session, turn in list(self._turns.values()):
                if session.id == params.get("sessionId"):
                    turn.cancel()
        elif method == "$/cancel_request":
            _, found = self._turns.get(json.dumps(params.get("requestId")), (None, None))
            if found is not None:
                found.cancel()

    # --- what turns need

    def update(self, session: Session, *, keep: bool = True, **update: Any) -> None:
        """Send an update; `keep`: a load replays it."""
        if keep:
            session.history.append(update)
            update = own_meta.placed(session, len(session.history) - 1)[0]
            self._followers.more(session, update)
        params = {"sessionId": session.id, "update": update}
        self.emit({"jsonrpc": "2.0", "method": "session/update", "params": params})

    async def ask(self, method: str, **params: Any) -> Frame:
        """Ask the client; its result, empty after an error."""
        message_id = f"ask-{len(self._asked)}-{id(params)}"
        self._asked[message_id] = asyncio.get_running_loop().create_future()
        message = {"jsonrpc": "2.0", "id": message_id, "method": method, "params": params}
        answered = self._asked[message_id]
        self.emit(message)
        self._followers.asked(message_id, method, params)
        result: Frame = (await answered).get("result") or {}
        self._followers.settled(message_id, method, params)
        return result

    def can(self, capability: str) -> bool:
        return granted(self.client, capability)

    # --- methods

    def _initialize(self, params: Frame) -> Frame:
        version = params.get("protocolVersion")
        if not isinstance(version, int) or version < 0:
            raise invalid("protocolVersion")
        capabilities = params.get("clientCapabilities")
        self.client = capabilities if isinstance(capabilities, dict) else {}
        methods: list[Frame] = [{"id": "key", "name": "A key"}] if self.installation.logins else []
        if methods and (self.client.get("auth") or {}).get("terminal") is True:
            methods.append({"type": "terminal", "id": "shell", "name": "A shell"})
        return {
            "protocolVersion": 1,
            "agentCapabilities": CAPABILITIES,
            "authMethods": methods,
            "agentInfo": {"name": "fake", "version": "1"},
        }

    def _authenticate(self, params: Frame) -> Frame:
        if params.get("methodId") != "key" or not self.installation.logins:
            raise invalid("methodId")
        self.installation.logged_in = True
        self._tell_login("authenticated")
        return {}

    def _logout(self, params: Frame) -> Frame:
        self.installation.logged_in = False
        self._tell_login("unauthenticated")
        return {}

    def _tell_login(self, state: str) -> None:
        params = {"state": state}
        self.emit({"jsonrpc": "2.0", "method": "auth/status_update", "params": params})

    def _auth_status(self, params: Frame) -> Frame:
        state = "authenticated" if self.installation.logged_in else "unauthenticated"
        return {"state": state, "accounts": []}

    def _providers(self, params: Frame) -> Frame:
        return {"providers": [{"providerId": "main", "supported": ["anthropic"], "required": True}]}

    def _disable(self, params: Frame) -> Frame:
        if params.get("providerId") == "main":
            raise invalid("providerId is required")
        return {}

    def _opened(self, session: Session, params: Frame) -> Frame:
        session.directories = params.get("additionalDirectories", [])
        switches = self.can("session.configOptions.boolean")
        return {"modes": session.modes(), "configOptions": session.options(switches=switches)}

    def _new(self, params: Frame) -> Frame:
        cwd, asked = directory(params), own_meta.keys(params)
        session = self.installation.new(cwd, asked.get("sessionId"))
        session.most_requests = asked.get("maxTurns")
        for server in params["mcpServers"]:
            if server.get("type") in ("http", "sse"):
                visit(server)
                continue
            if "type" in server:
                raise invalid("mcpServers")
            environment = {one["name"]: one["value"] for one in server["env"]}
            command = [server["command"], *server["args"]]
            subprocess.run(
                command, env={**os.environ, **environment}, stdin=subprocess.DEVNULL, check=False
            )
        return {"sessionId": session.id, **self._opened(session, params)}

    def _load(self, params: Frame) -> Frame:
        session, asked = self.installation.find(params), own_meta.keys(params)
        if directory(params) != session.cwd:
            raise invalid("cwd")
        after, meta = 0, Frame()
        if "replay" in asked:
            after, meta = own_meta.newest(session, asked["replay"]["last"])
        for update in own_meta.placed(session, after):
            self.update(session, keep=False, **update)
        return {**self._opened(session, params), **({"_meta": meta} if meta else {})}

    def _resume(self, params: Frame) -> Frame:
        directory({"mcpServers": [], **params})
        session, asked = self.installation.find(params), own_meta.keys(params)
        if "after" in asked:
            for update in own_meta.placed(session, own_meta.position(session, asked["after"])):
                self.update(session, keep=False, **update)
        return self._opened(session, params)

    def _fork(self, params: Frame) -> Frame:
        origin = self.installation.find(params)
        upto, meta = own_meta.forked(origin, own_meta.keys(params))
        copy = self.installation.new(directory(params))
        copy.history += origin.history[:upto]
        copy.user_texts += origin.user_texts
        return {"sessionId": copy.id, **self._opened(copy, params), "_meta": meta}

    def _list(self, params: Frame) -> Frame:
        wanted, cursor = params.get("archived", "exclude"), params.get("cursor")
        if wanted not in {"exclude", "include", "only"}:
            raise invalid("archived")
        if cursor is not None and not cursor.isdigit():
            raise invalid("cursor")
        found = [
            session.listed()
            for session in self.installation.sessions.values()
            if session.user_texts
            and params.get("cwd") in {None, session.cwd}
            and (wanted == "include" or session.archived == (wanted == "only"))
        ]
        start = int(cursor or 0)
        more = {"nextCursor": str(start + PAGE)} if len(found) > start + PAGE else {}
        return {"sessions": found[start : start + PAGE], **more}

    def _delete(self, params: Frame) -> Frame:
        self.installation.sessions.pop(text(params, "sessionId"), None)
        return {}

    def _close(self, params: Frame) -> Frame:
        session = self.installation.find(params)
        for other, turn in list(self._turns.values()):
            if other is session:
                turn.cancel()
        self._followers.end(session)
        return {}

    def _archive(self, params: Frame, *, archived: bool) -> Frame:
        self.installation.find(params).archived = archived
        return self._close(params) if archived else {}

    def _status(self, params: Frame) -> Frame:
        self.installation.find(params)
        return {"status": "open"}

    def _set_title(self, params: Frame) -> Frame:
        session = self.installation.find(params)
        session.title = " ".join(text(params, "title").split())
        if not session.title:
            raise invalid("title")
        return {"title": session.title}

    def _set_mode(self, params: Frame) -> Frame:
        session, mode = self.installation.find(params), params.get("modeId")
        if mode not in {one["id"] for one in session.modes()["availableModes"]}:
            raise invalid("modeId")
        session.values["mode"] = mode
        return {}

    def _set_option(self, params: Frame) -> Frame:
        session = self.installation.find(params)
        switches = self.can("session.configOptions.boolean")
        options = {one["id"]: one for one in session.options(switches=switches)}
        option, value = options.get(str(params.get("configId"))), params.get("value")
        if option is None:
            raise invalid("configId")
        values = [one["value"] for one in option.get("options", [])] or [True, False]
        if value not in values:
            raise invalid("value")
        session.values[option["id"]] = value
        return {"configOptions": session.options(switches=switches)}

    # --- prompts

    def _prompt(self, message_id: Any, params: Frame) -> None:
        if params.get("sessionId") not in self.installation.sessions:
            raise not_found(str(params.get("sessionId")))
        session, turn = self.installation.find(params), Turn(self, params)
        asked = own_meta.keys(params)
        if (name := asked.get("idempotencyKey")) is not None:
            if session.keys.setdefault(name, params["prompt"]) != params["prompt"]:
                raise invalid("_meta: the key of another prompt")
            if name in session.answered:
                result = {"stopReason": "end_turn"}
                self.emit({"jsonrpc": "2.0", "id": message_id, "result": result})
                return
            session.answered.add(name)
        meta = {"pykoclaw.dev/steering": "startedNewTurn"} if "steering" in asked else {}
        key = json.dumps(message_id)
        task = asyncio.create_task(self._run(message_id, session, turn, meta))
        self._turns[key] = (session, task)
        task.add_done_callback(lambda _: self._turns.pop(key, None))

    async def _run(self, message_id: Any, session: Session, turn: Turn, meta: Frame) -> None:
        try:
            async with session.ready:
                reason = await turn.play(session)
        except asyncio.CancelledError:
            reason = "cancelled"
            turn.note(session, "Cancelled.")
        except Failure as failure:
            turn.note(session, failure.error["message"], "failure")
            self._fail(message_id, failure)
            return
        result = {"stopReason": reason, **({"_meta": meta} if meta else {})}
        self.emit({"jsonrpc": "2.0", "id": message_id, "result": result})
