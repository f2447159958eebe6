"""The official Python SDK's client: the main job, and everything that it can call, without a warning
on either side.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import acp
import pytest
from acp import schema
from acp.client.connection import ClientSideConnection

from tests.e2e.harness import Stack, script, text
from tests.e2e.harness.logs import STARTING, logs, warnings
from tests.e2e.harness.stack import PROGRAM
from tests.pictures import encoded, png
from tests.waiting import eventually


class Editor:
    """What an editor does: shows updates, and chooses `answer` when it is asked."""

    def __init__(self) -> None:
        self.answer = "allow_once"
        self.updates: list[Any] = []
        self.asked: list[schema.ToolCallUpdate] = []

    async def session_update(self, session_id: str, update: Any, **kwargs: Any) -> None:
        if not str(getattr(update, "message_id", "")).endswith("-start-shown"):  # on a busy machine
            self.updates.append(update)

    async def request_permission(
        self,
        session_id: str,
        tool_call: schema.ToolCallUpdate,
        options: list[schema.PermissionOption],
        **kwargs: Any,
    ) -> schema.RequestPermissionResponse:
        self.asked.append(tool_call)
        chosen = next(option for option in options if option.kind == self.answer)
        outcome = schema.AllowedOutcome(outcome="selected", option_id=chosen.option_id)
        return schema.RequestPermissionResponse(outcome=outcome)

    @property
    def events(self) -> list[Any]:
        """The updates that are history; what Claude offers is not, and comes when it suits."""
        offered = schema.AvailableCommandsUpdate, schema.ConfigOptionUpdate
        return [one for one in self.updates if one.field_meta or not isinstance(one, offered)]

    def said(self, kind: type[Any]) -> str:
        return "".join(update.content.text for update in self.updates if isinstance(update, kind))


def kept(events: list[Any]) -> list[Any]:
    """Without what a replay has only once."""
    return [one for one in events if not isinstance(one, schema.UsageUpdate)]


@pytest.fixture(autouse=True)
def silent(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """What the SDK cannot read or does not expect it only logs."""
    yield
    said = [
        one.getMessage() for one in caplog.get_records("call") if one.levelno >= logging.WARNING
    ]
    assert said == []


through = pytest.mark.parametrize(
    "arguments",
    [
        pytest.param((), id="front", marks=pytest.mark.long),
        pytest.param(("serve", "--stdio"), id="stdio"),
    ],
)


@asynccontextmanager
async def connected(
    stack: Stack, arguments: tuple[str, ...]
) -> AsyncIterator[tuple[ClientSideConnection, Editor, int]]:
    editor = Editor()
    log = (stack.root / "agent.log").open("ab")
    with log:
        async with acp.spawn_agent_process(
            editor, *stack.recorded(*PROGRAM, *arguments),  # type: ignore[arg-type]
            env=stack.environment, cwd=stack.root, use_unstable_protocol=True,
            transport_kwargs={"stderr": log, "shutdown_timeout": 10.0},
        ) as (connection, process):  # fmt: skip
            answer = await connection.initialize(
                protocol_version=acp.PROTOCOL_VERSION,
                client_info=schema.Implementation(name="editor", version="1"),
            )
            assert answer.protocol_version == acp.PROTOCOL_VERSION
            assert answer.agent_capabilities is not None
            assert answer.agent_capabilities.load_session
            yield connection, editor, process.pid


@through
@pytest.mark.long
@pytest.mark.filterwarnings(
    "ignore::ResourceWarning"
)  # the SDK leaves the pipes of a killed agent to the collector
async def test_official_client_tells_the_story(stack: Stack, arguments: tuple[str, ...]) -> None:
    first = script(
        "thinking Let me think.", "text I make it.", "bash mkdir made", "text The first answer."
    )
    async with connected(stack, arguments) as (connection, editor, server):
        session = (await connection.new_session(cwd=str(stack.work), mcp_servers=[])).session_id
        answer = await connection.prompt(session_id=session, prompt=[acp.text_block(first)])
        assert answer.stop_reason == "end_turn"
        assert editor.said(schema.AgentMessageChunk) == "I make it.The first answer."
        assert editor.said(schema.AgentThoughtChunk) == "Let me think."
        assert [call.title for call in editor.asked] == ["mkdir made"]
        live = kept(editor.events)
        os.kill(server, signal.SIGKILL)
        await stack.kill_everything()

    async with connected(stack, arguments) as (connection, editor, _):
        await connection.load_session(cwd=str(stack.work), session_id=session, mcp_servers=[])
        assert [
            one for one in kept(editor.events) if not isinstance(one, schema.UserMessageChunk)
        ] == live
        assert editor.said(schema.UserMessageChunk) == first
        answer = await connection.prompt(
            session_id=session, prompt=[acp.text_block(text("The second answer."))]
        )
        assert answer.stop_reason == "end_turn"
        assert answer.usage is not None
        await connection.close_session(session_id=session)
        editor.updates.clear()
        await connection.resume_session(session_id=session, cwd=str(stack.work), mcp_servers=[])
        assert editor.events == []
        await connection.prompt(
            session_id=session, prompt=[acp.text_block(text("The third answer."))]
        )
        assert editor.said(schema.AgentMessageChunk) == "The third answer."
        with pytest.raises(acp.RequestError) as unknown:
            await connection.load_session(
                cwd=str(stack.work), session_id="no-such-session", mcp_servers=[]
            )
        assert unknown.value.code == -32002
    assert stack.asked()[-1]["user_texts"] == [
        first,
        text("The second answer."),
        text("The third answer."),
    ]
    if arguments:  # else the daemon goes on
        await stack.nothing_left()


@through
async def test_whole_surface_works_with_official_client(
    stack: Stack, arguments: tuple[str, ...]
) -> None:
    async with connected(stack, arguments) as (connection, editor, _):
        wire = connection._conn  # noqa: SLF001  for what is not in the SDK's client yet
        ask = wire.send_request
        await connection.authenticate(method_id="anthropic-api-key")
        login = await ask("auth/status", {})
        assert login["state"] == "authenticated"
        assert login["accounts"] != []
        made = await connection.new_session(cwd=str(stack.work), mcp_servers=[])
        session = made.session_id
        assert made.modes is not None
        assert {"default", "acceptEdits"} <= {one.id for one in made.modes.available_modes}
        assert {one.id for one in made.config_options or []} == {"mode", "model", "effort"}

        editor.answer = "reject_once"
        refused = script("write refused.txt <<< x", "text Refused.")
        answer = await connection.prompt(session_id=session, prompt=[acp.text_block(refused)])
        assert answer.stop_reason == "end_turn"
        assert len(editor.asked) == 1
        assert not (stack.work / "refused.txt").exists()

        await connection.set_session_mode(session_id=session, mode_id="acceptEdits")
        link = acp.resource_link_block("notes", "file:///notes.md")
        allowed = acp.text_block(script("write made.txt <<< x", "text Made."))
        picture = acp.image_block(encoded(png(3, 2)), "image/png")
        notes = acp.embedded_text_resource("file:///notes.md", "The word is ananas.")
        attached: list[Any] = [link, picture, acp.resource_block(notes), allowed]
        await connection.prompt(session_id=session, prompt=attached)
        assert len(editor.asked) == 1
        assert (stack.work / "made.txt").exists()
        await connection.set_config_option(config_id="effort", session_id=session, value="high")
        chosen = await connection.set_config_option(
            config_id="model", session_id=session, value="haiku"
        )
        values = {one.id: one.current_value for one in chosen.config_options}
        assert values == {"mode": "acceptEdits", "model": "haiku", "effort": "high"}

        long = acp.text_block(script("repeat 600x100ms w{n} "))
        running = asyncio.ensure_future(connection.prompt(session_id=session, prompt=[long]))
        await eventually(lambda: "w2" in editor.said(schema.AgentMessageChunk))
        await connection.cancel(session_id=session)
        assert (await running).stop_reason == "cancelled"

        number = wire._next_request_id  # noqa: SLF001  as above
        editor.updates.clear()
        running = asyncio.ensure_future(connection.prompt(session_id=session, prompt=[long]))
        await eventually(lambda: "w2" in editor.said(schema.AgentMessageChunk))
        await wire.send_notification("$/cancel_request", {"requestId": number})
        assert (await running).stop_reason == "cancelled"

        named = {"sessionId": session, "title": " A title "}
        assert await ask("session/set_title", named) == {"title": "A title"}
        for method, there in (("archive", []), ("unarchive", [session])):
            assert await ask(f"session/{method}", {"sessionId": session}) == {}
            listed = await connection.list_sessions(cwd=str(stack.work))
            assert [one.session_id for one in listed.sessions] == there
        assert listed.sessions[0].title == "A title"
        await connection.resume_session(session_id=session, cwd=str(stack.work), mcp_servers=[])

        listed = await connection.list_sessions(cwd=str(stack.work))
        assert [one.session_id for one in listed.sessions] == [session]
        assert listed.sessions[0].updated_at is not None
        with pytest.raises(acp.RequestError) as unknown:
            await connection.list_sessions(cursor="unknown")
        assert unknown.value.code == -32602

        with pytest.raises(acp.RequestError) as unknown:
            await connection.ext_method("example.com/unknown", {})
        assert unknown.value.code == -32601
        await connection.ext_notification("example.com/unknown", {})
        await connection.close_session(session_id=session)
        resumed = await connection.resume_session(
            session_id=session, cwd=str(stack.work), mcp_servers=[]
        )
        assert resumed.modes is not None
        assert resumed.modes.current_mode_id == "acceptEdits"
        editor.updates.clear()
        loaded = await connection.load_session(
            cwd=str(stack.work), session_id=session, mcp_servers=[]
        )
        assert {one.id: one.current_value for one in loaded.config_options or []} == values
        assert "Refused.Made.w1" in editor.said(schema.AgentMessageChunk)
        shown = [one.content for one in editor.updates if isinstance(one, schema.UserMessageChunk)]
        assert shown[1:5] == attached

        forked = await connection.fork_session(session_id=session, cwd=str(stack.work))
        assert {one.id: one.current_value for one in forked.config_options or []} == values
        editor.updates.clear()
        answer = await connection.prompt(
            session_id=forked.session_id, prompt=[acp.text_block(text("Forked."))]
        )
        assert answer.stop_reason == "end_turn"
        assert editor.said(schema.AgentMessageChunk) == "Forked."
        for one in (session, forked.session_id):
            assert await ask("session/delete", {"sessionId": one}) == {}
        assert (await connection.list_sessions()).sessions == []
        assert await ask("logout", {}) == {}
        with pytest.raises(acp.RequestError) as locked:
            await connection.new_session(cwd=str(stack.work), mcp_servers=[])
        assert locked.value.code == -32000
    agent = (stack.root / "agent.log").read_text()
    if not arguments:
        assert STARTING.fullmatch(agent)
        agent = ""
        assert logs(stack)
    assert warnings(agent, *logs(stack)) == []
