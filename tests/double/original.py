"""The earlier plugin's `pykoclaw acp`: one request after the other, plain text, no history."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
import uuid
from pathlib import Path
from typing import Any, Final

from tests.double.agent import Engine
from tests.double.handle import Handle
from tests.double.tables import (
    get_conversation,
    get_pending_deliveries,
    mark_delivered,
    upsert_conversation,
)

LONGEST_LINE: Final = 64 * 1024  # bytes; a longer one is dropped and never answered
AGENT: Final = {"name": "pykoclaw", "version": "0.1.0"}
SYSTEM_PROMPT: Final = "If a tool call fails, try it again before you call the tool unavailable."


def name_of(session_id: str) -> str:
    """The conversation of an ACP session id: the only link between the two."""
    return f"acp-{session_id[:8]}"


class Refused(Exception):
    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


class Original:
    """`conversations` are those with a worker in this process: name to Claude's session id, which
    is not looked up again while the worker lives.
    """

    def __init__(self, db: Handle, data: Path, engine: Engine) -> None:
        self._db = db
        self._data = data
        self._engine = engine
        self._known: set[str] = set()
        self._workers: dict[str, str | None] = {}
        self._sessions: dict[str, str] = {}

    async def handle(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        if method == "initialize":
            return {
                "protocolVersion": 1,
                "agentCapabilities": {"loadSession": True},
                "agentInfo": AGENT,
            }
        if method == "session/new":
            session_id = str(uuid.uuid4())
            self._known.add(session_id)
            return {"sessionId": session_id}
        if method == "session/load":
            row = get_conversation(self._db, name_of(params["sessionId"]))
            if row is None or not row.session_id:
                raise Refused(-32001, "session not found")
            self._known.add(params["sessionId"])
            return {}
        if method == "session/prompt":
            return await self._prompt(params["sessionId"], params["prompt"])
        raise Refused(-32601, f"no such method: {method}")

    async def _prompt(self, session_id: str, blocks: list[dict[str, Any]]) -> dict[str, Any]:
        if session_id not in self._known:
            raise Refused(-32000, "unknown session")
        text = "\n".join(block["text"] for block in blocks if block.get("type") == "text")
        if not text:
            raise Refused(-32602, "no text")
        name = name_of(session_id)
        if name not in self._workers:
            row = get_conversation(self._db, name)
            self._workers[name] = None if row is None else row.session_id
        self._sessions[name] = session_id
        cwd = self._data / "conversations" / name
        cwd.mkdir(parents=True, exist_ok=True)
        try:
            ended = await self._engine.run(
                text,
                cwd,
                system_prompt=SYSTEM_PROMPT,
                resume=self._workers[name],
                servers={},
                partial=False,
            )
        except Exception as error:
            self._update(session_id, {"sessionUpdate": "error", "message": str(error)})
            return {"stopReason": "end_turn"}
        self._workers[name] = ended.session_id
        upsert_conversation(self._db, name, ended.session_id or "", str(cwd))
        for piece in ended.texts:
            self._say(session_id, piece)
        return {"stopReason": "end_turn"}

    async def deliver(self, every: float) -> None:
        """Results for conversations with a worker here become text, wherever it falls."""
        while True:
            await asyncio.sleep(every)
            for delivery in get_pending_deliveries(self._db, "acp"):
                if delivery.conversation in self._workers:
                    self._say(self._sessions[delivery.conversation], delivery.message)
                    self._db.record.add("sent", id=delivery.id, message=delivery.message)
                    mark_delivered(self._db, delivery.id)

    def _say(self, session_id: str, text: str) -> None:
        content = {"type": "text", "text": text}
        self._update(session_id, {"sessionUpdate": "agent_message_chunk", "content": content})

    def _update(self, session_id: str, update: dict[str, Any]) -> None:
        _write({"method": "session/update", "params": {"sessionId": session_id, "update": update}})


def _write(message: dict[str, Any]) -> None:
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)


async def serve(db: Handle, data: Path, engine: Engine, every: float) -> None:
    """Serve stdin and stdout until the end of input."""
    server = Original(db, data, engine)
    print(time.strftime("%H:%M:%S INFO pykoclaw_acp: started"), file=sys.stderr, flush=True)
    delivering = asyncio.create_task(server.deliver(every))
    while line := await asyncio.to_thread(sys.stdin.buffer.readline):
        if len(line) > LONGEST_LINE:
            continue
        try:
            request = json.loads(line)
        except ValueError:
            _write({"id": None, "error": {"code": -32700, "message": "parse error"}})
            continue
        try:
            result = await server.handle(request["method"], request.get("params") or {})
            _write({"id": request.get("id"), "result": result})
        except Refused as refused:
            error = {"code": refused.code, "message": str(refused)}
            _write({"id": request.get("id"), "error": error})
    delivering.cancel()


def healthcheck(command: list[str], within: float = 10.0) -> int:
    """The earlier plugin's healthcheck of an ACP program: `initialize` with empty parameters, end
    of input at once, one line within 10 s. Says on stderr what was found; 0 or 1.
    """
    print(f"Starting ACP server {' '.join(command)}", file=sys.stderr)
    begin = time.monotonic()
    request = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {}}
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        process.stdin.write(json.dumps(request).encode() + b"\n")
        process.stdin.close()
        line = _first_line(process, within)
        answer = json.loads(line)
        assert answer["jsonrpc"] == "2.0", "not JSON-RPC 2.0"
        assert answer["id"] == 1, f"the id is {answer['id']}"
        result = answer["result"]
        version = result["protocolVersion"]
        agent = result.get("agentInfo", {})
    except Exception as error:
        print(f"FAIL: {type(error).__name__}: {error}", file=sys.stderr)
        return 1
    finally:
        process.terminate()
        process.wait()
        process.stdout.close()
    took = time.monotonic() - begin
    print(
        f"OK: {agent.get('name')} v{agent.get('version')} (protocol v{version}) responded in {took:.2f}s",
        file=sys.stderr,
    )
    return 0


def _first_line(process: subprocess.Popen[bytes], within: float) -> bytes:
    import selectors

    assert process.stdout is not None
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        if not selector.select(within):
            raise TimeoutError(f"no answer within {within} s")
    line = process.stdout.readline()
    if not line:
        raise EOFError("the output ended without an answer")
    return line
