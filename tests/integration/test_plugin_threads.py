"""MCP servers of plugins, each in a thread: what blocks one stops nobody else."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from claude_agent_sdk import create_sdk_mcp_server, tool
from claude_agent_sdk._internal.sdk_mcp_bridge import SdkMcpBridge
from mcp.shared.message import ServerMessageMetadata, SessionMessage
from mcp.types import JSONRPCRequest

from pykoclaw_acp.worker.plugins.output import PluginOutput
from pykoclaw_acp.worker.plugins.threads import (
    PluginFailed,
    PluginThread,
    ThreadedServer,
    crossing,
)
from tests.waiting import eventually


@asynccontextmanager
async def thread(
    name: str = "test", complain: Callable[[str], None] = pytest.fail
) -> AsyncIterator[PluginThread]:
    made = PluginThread(name, complain)
    try:
        yield made
    finally:
        made.loop.call_soon_threadsafe(made.loop.stop)
        await eventually(lambda: not made.thread.is_alive())
        made.loop.close()


class Plugin:
    """A server with a tool that waits, and one that says in which thread it runs."""

    def __init__(self, thread: PluginThread) -> None:
        self.let_go = threading.Event()
        self.cancelled = 0

        @tool("block", "Blocks.", {})
        async def block(_: Any) -> dict[str, Any]:
            self.let_go.wait(60)
            return {"content": [{"type": "text", "text": "unblocked"}]}

        @tool("where", "Names the thread.", {})
        async def where(_: Any) -> dict[str, Any]:
            return {"content": [{"type": "text", "text": threading.current_thread().name}]}

        @tool("wait", "Waits for ever.", {})
        async def wait(_: Any) -> dict[str, Any]:
            try:
                await asyncio.sleep(3600)
            except asyncio.CancelledError:
                self.cancelled += 1
                raise
            return {}

        @tool("exit", "Ends the process.", {})
        async def exit_(_: Any) -> dict[str, Any]:
            sys.exit("no such option")

        server = create_sdk_mcp_server("plugin", tools=[block, where, wait, exit_])
        self.bridge = SdkMcpBridge("plugin", ThreadedServer(server["instance"], thread))  # type: ignore[arg-type]

    async def begin(self) -> None:
        info = {
            "protocolVersion": "2025-06-18",
            "capabilities": {},
            "clientInfo": {"name": "t", "version": "1"},
        }
        await self.send("initialize", 1, info)
        await self.bridge.handle({"jsonrpc": "2.0", "method": "notifications/initialized"})

    async def call(self, name: str, number: int) -> str:
        answer = await self.send("tools/call", number, {"name": name, "arguments": {}})
        return str(answer["result"]["content"][0]["text"]) if "result" in answer else str(answer)

    async def send(self, method: str, number: int, params: dict[str, Any]) -> dict[str, Any]:
        message = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
        answer = await asyncio.wait_for(self.bridge.handle(message), 60)
        assert answer is not None
        return answer


async def test_blocking_tool_stops_neither_worker_nor_other_plugins() -> None:
    async with thread("one") as first, thread("two") as second:
        blocking, other = Plugin(first), Plugin(second)
        await blocking.begin()
        await other.begin()
        waiting = asyncio.ensure_future(blocking.call("block", 2))
        assert await other.call("where", 2) == "plugin two"
        assert not waiting.done()
        blocking.let_go.set()
        assert await waiting == "unblocked"
        assert await blocking.call("where", 3) == "plugin one"
        await blocking.bridge.aclose()
        await other.bridge.aclose()


async def test_a_cancelled_call_ends_in_the_plugins_thread() -> None:
    async with thread() as one:
        plugin = Plugin(one)
        await plugin.begin()
        waiting = asyncio.ensure_future(plugin.call("wait", 2))
        assert await plugin.call("where", 3) == "plugin test"  # so that the first one has begun
        cancel = {"requestId": 2, "reason": "the user stops"}
        await plugin.bridge.handle(
            {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": cancel}
        )
        assert "cancelled" in (await waiting).lower()
        await eventually(lambda: plugin.cancelled)
        assert await plugin.call("where", 4) == "plugin test"
        await plugin.bridge.aclose()


async def test_messages_callback_runs_where_it_came_from() -> None:
    """The SDK's futures are not to be settled in another thread: its loop would sleep on."""
    called: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def unanswered() -> None:
        called.set_result(threading.current_thread().name)

    metadata = ServerMessageMetadata(on_request_unanswered=unanswered)
    request = JSONRPCRequest(jsonrpc="2.0", id=1, method="ping")
    crossed = crossing(SessionMessage(request, metadata=metadata), asyncio.get_running_loop())
    async with thread() as one:
        await one.start(crossed.metadata.on_request_unanswered())
        assert await called == threading.main_thread().name


async def test_a_server_ends_with_its_connection() -> None:
    async with thread() as one:
        plugin = Plugin(one)
        await plugin.begin()
        waiting = asyncio.ensure_future(plugin.send("tools/call", 2, {"name": "wait"}))
        assert await plugin.call("where", 3)
        await plugin.bridge.aclose()
        await asyncio.wait([waiting], timeout=60)
        assert waiting.done()
        waiting.exception()
        await eventually(lambda: plugin.cancelled)


async def test_tool_that_exits_fails_its_calls_only() -> None:
    complaints: list[str] = []
    async with thread(complain=complaints.append) as one:
        plugin, other = Plugin(one), Plugin(one)
        await plugin.begin()
        await other.begin()
        for number in (2, 3):
            with pytest.raises(Exception, match="SDK MCP server 'plugin'"):
                await plugin.call("exit", number)
        assert complaints == ["tried to end its process (SystemExit)"]
        assert await other.call("where", 2) == "plugin test"
        await plugin.bridge.aclose()
        await other.bridge.aclose()


async def test_thread_survives_exit_of_any_task() -> None:
    complaints: list[str] = []

    def interrupted() -> None:
        raise KeyboardInterrupt

    async def exiting() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(asyncio.to_thread(sys.exit, 3))

    async with thread(complain=complaints.append) as one:
        one.loop.call_soon_threadsafe(interrupted)
        with pytest.raises(PluginFailed, match="SystemExit: 3"):
            await one.start(exiting())
        assert await one.call(lambda: "alive", 60) == "alive"
    exits = ("KeyboardInterrupt", "SystemExit")
    assert complaints == [f"tried to end its process ({one})" for one in exits]


async def test_plugins_error_is_named_and_hang_is_left() -> None:
    hanging = threading.Event()
    async with thread() as one:
        for error, words in (
            (ValueError("no\nsuch"), "ValueError: no such"),
            (SystemExit(3), "SystemExit: 3"),
            (KeyError(), "KeyError"),
        ):

            def failing(error: BaseException = error) -> None:
                raise error

            with pytest.raises(PluginFailed) as failed:
                await one.call(failing, 60)
            assert str(failed.value) == words
        with pytest.raises(TimeoutError):
            await one.call(lambda: hanging.wait(60), 0.05)
        hanging.set()
        assert await one.call(lambda: "alive", 60) == "alive"


async def test_only_plugins_output_is_dropped(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdout", sys.stdout)
    output = PluginOutput.install()
    printed: list[int] = []
    async with thread() as one:
        output.watch(one.thread, lambda: printed.append(1))
        await one.call(lambda: print("by the plugin"), 60)
        print("by the worker")
    assert printed
    assert capsys.readouterr().out == "by the worker\n"
