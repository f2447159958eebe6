"""Turns of the agent in memory: it plays what the scripted model would."""

from __future__ import annotations

import asyncio
import json
import re
import uuid
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from tests.conformance.fake.installation import Failure, Frame, Session, invalid

if TYPE_CHECKING:
    from tests.conformance.fake.agent import FakeAgent

CALLS = {"write", "edit", "read", "bash", "tool"}  # after each the model is asked again
STEP = 0.002  # seconds between two deltas, whatever the script says
REQUIRED = {
    "text": "text",
    "image": "data",
    "audio": "data",
    "resource_link": "uri",
    "resource": "resource",
}


class Turn:
    """One prompt; raises Failure if it is malformed."""

    def __init__(self, agent: FakeAgent, params: Frame) -> None:
        self._agent = agent
        for block in params["prompt"]:
            field = REQUIRED.get(str(block.get("type"))) if isinstance(block, dict) else None
            if field is None or not block.get(field):
                raise invalid("prompt")
        texts = [block["text"] for block in params["prompt"] if block["type"] == "text"]
        self._prompt = "\n".join(texts)
        self._blocks = params["prompt"]
        self._message = str(uuid.uuid4())

    async def play(self, session: Session) -> str:
        """Play the script; the stop reason."""
        session.user_texts.append(self._prompt)
        kept = {"sessionUpdate": "user_message_chunk", "messageId": f"{self._message}-user"}
        session.history += [{**kept, "content": block} for block in self._blocks]
        await self._extras(session)
        found = re.search(r"\[\[script\n(.*?)\n\]\]", self._prompt, re.DOTALL)
        reason, requests = "end_turn", 0
        for line in found[1].split("\n") if found else [f"text {self._prompt}"]:
            step, _, rest = line.partition(" ")
            if step == "stop":
                reason = rest
                continue
            await self._steps[step](self, session, rest)
            requests += step in CALLS
            if requests == session.most_requests:
                reason = "max_turn_requests"
                break
        if reason == "refusal":
            session.user_texts.pop()
        self._agent.update(
            session,
            sessionUpdate="usage_update",
            used=10,
            size=100,
            cost={"amount": 0.5, "currency": "USD"},
        )
        self._agent.update(
            session,
            sessionUpdate="session_info_update",
            title=session.title or "A title",
            updatedAt="2026-11-22T10:00:00+00:00",
        )
        return reason

    def note(self, session: Session, words: str, kind: str = "note") -> None:
        """What is said of the turn."""
        made: Frame = {"content": {"type": "text", "text": words}}
        made["_meta"] = {"pykoclaw.dev/note": kind}
        message = f"{self._message}-{kind}"
        self._agent.update(session, sessionUpdate="agent_message_chunk", messageId=message, **made)

    async def _error(self, session: Session, rest: str) -> None:
        raise Failure(-32603, rest)

    def _chunk(self, session: Session, kind: str, words: str) -> None:
        content = {"type": "text", "text": words}
        self._agent.update(
            session, sessionUpdate=kind, content=content, messageId=f"{self._message}-{kind}"
        )

    async def _text(self, session: Session, rest: str) -> None:
        self._chunk(session, "agent_message_chunk", rest)

    async def _thinking(self, session: Session, rest: str) -> None:
        self._chunk(session, "agent_thought_chunk", rest)

    async def _report(self, session: Session, rest: str) -> None:
        self._chunk(session, "agent_message_chunk", json.dumps(session.user_texts))

    async def _repeat(self, session: Session, rest: str) -> None:
        times, words = rest.split("x", 1)
        for n in range(1, int(times) + 1):
            self._chunk(
                session, "agent_message_chunk", words.split(" ", 1)[1].replace("{n}", str(n))
            )
            await asyncio.sleep(STEP)

    async def _write(self, session: Session, rest: str) -> None:
        path, _, content = rest.partition(" <<< ")
        await self._tool(session, Path(session.cwd) / path, content)

    async def _edit(self, session: Session, rest: str) -> None:
        path, _, change = rest.partition(" <<< ")
        await self._tool(session, Path(session.cwd) / path, change, changed=True)

    async def _other(self, session: Session, rest: str) -> None:
        if rest.startswith("AskUserQuestion ") and self._agent.can("elicitation.form"):
            await self._question(session)
            return
        if rest.startswith("ExitPlanMode "):
            await self._tool(session, None, "", kind="switch_mode")
            session.values["mode"] = "ask"
            self._agent.update(session, sessionUpdate="current_mode_update", currentModeId="ask")
            return
        if rest.startswith("Task"):
            self._plan(session, *rest.split(" ", 1))
            return
        call = await self._tool(session, None, "")
        if rest.startswith("Agent "):
            await self._tool(session, None, "", parent=call)

    def _plan(self, session: Session, tool: str, given: str) -> None:
        asked = json.loads(given)
        if tool == "TaskCreate":
            made = {"content": asked["subject"], "priority": "medium", "status": "pending"}
            session.plan.append(made)
        else:
            at = int(asked["taskId"]) - 1
            session.plan[at] = {**session.plan[at], "status": asked["status"]}
        self._agent.update(session, sessionUpdate="plan", entries=[*session.plan])

    async def _tool(
        self,
        session: Session,
        path: Path | None,
        content: str,
        *,
        changed: bool = False,
        parent: str | None = None,
        kind: str = "other",
    ) -> str:
        call: Frame = {"toolCallId": str(uuid.uuid4()), "title": "A tool", "kind": kind}
        if parent is not None:
            call["_meta"] = {"pykoclaw.dev/parentToolCallId": parent}
        if path is not None:
            call["kind"] = "edit"
            call["locations"] = [{"path": str(path), "line": 1}]
            call["content"] = [{"type": "diff", "path": str(path), "newText": content}]
        self._agent.update(session, sessionUpdate="tool_call", status="pending", **call)
        options = [
            {"optionId": kind, "name": kind, "kind": kind} for kind in ("allow_once", "reject_once")
        ]
        decided = await self._agent.ask(
            "session/request_permission", sessionId=session.id, toolCall=call, options=options
        )
        chosen: Any = decided.get("outcome") or {}
        allowed = chosen.get("outcome") == "selected" and chosen.get("optionId") == "allow_once"
        if allowed and path is not None:
            path.write_text(content)  # noqa: ASYNC240 - nobody else waits
        if reason := (chosen.get("_meta") or {}).get("pykoclaw.dev/reason"):
            session.user_texts.append(reason)
        places = {"pykoclaw.dev/line": 1, "pykoclaw.dev/oldLine": 1}
        diff = {"type": "diff", "path": str(path), "oldText": "b", "newText": content}
        self._agent.update(
            session,
            sessionUpdate="tool_call_update",
            toolCallId=call["toolCallId"],
            status="completed" if allowed else "failed",
            **(
                {"content": [{**diff, "_meta": places}], "locations": call["locations"]}
                if changed and allowed
                else {}
            ),
        )
        return str(call["toolCallId"])

    async def _question(self, session: Session) -> None:
        colour = {"type": "string", "enum": ["Red", "Blue"]}
        answered = await self._agent.ask(
            "elicitation/create",
            mode="form",
            message="Which one?",
            sessionId=session.id,
            requestedSchema={"type": "object", "properties": {"colour": colour}},
        )
        chosen = (answered.get("content") or {}).get("colour")
        if chosen in colour["enum"]:
            session.user_texts.append(str(chosen))

    async def _extras(self, session: Session) -> None:
        """What only clients get that have advertised it."""
        agent = self._agent
        if agent.can("session.notices"):
            agent.update(session, keep=False, sessionUpdate="notice", severity="info", title="Note")
        if agent.can("session.compaction"):
            made: Frame = {"compactionId": str(uuid.uuid4())}
            kind = "compaction_update"
            agent.update(session, keep=False, sessionUpdate=kind, status="in_progress", **made)
            content = {"type": "text", "text": "short"}
            agent.update(
                session,
                keep=False,
                sessionUpdate="compaction_summary_chunk",
                content=content,
                **made,
            )
            agent.update(session, keep=False, sessionUpdate=kind, status="completed", **made)
        if agent.can("fs.readTextFile"):
            await agent.ask("fs/read_text_file", sessionId=session.id, path="/etc/hosts", line=1)
        if agent.can("terminal"):
            made = {"sessionId": session.id}
            terminal = await agent.ask("terminal/create", command="true", **made)
            made["terminalId"] = terminal["terminalId"]
            await agent.ask("terminal/wait_for_exit", **made)
            await agent.ask("terminal/release", **made)
        if agent.can("elicitation.form"):
            schema = {"type": "object", "properties": {"name": {"type": "string"}}}
            await agent.ask(
                "elicitation/create",
                mode="form",
                message="Who?",
                sessionId=session.id,
                requestedSchema=schema,
            )
        if agent.can("elicitation.url"):
            await agent.ask(
                "elicitation/create",
                mode="url",
                message="Open it.",
                sessionId=session.id,
                elicitationId=str(uuid.uuid4()),
                url="https://example.com/login",
            )

    _steps: ClassVar[dict[str, Callable[[Turn, Session, str], Awaitable[None]]]] = {
        "text": _text,
        "thinking": _thinking,
        "report": _report,
        "repeat": _repeat,
        "write": _write,
        "edit": _edit,
        "read": _other,
        "bash": _other,
        "tool": _other,
        "error": _error,
    }
