"""Threads for plugins: what one of them blocks, is its own event loop.

A plugin's MCP servers run in its thread; messages travel between that loop and the worker's, in
which the Claude Agent SDK runs.
"""

from __future__ import annotations

import asyncio
import dataclasses
import threading
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar, cast

import anyio

from pykoclaw_acp.tasks import told_elsewhere

T = TypeVar("T")
_END: Final = object()
EXITS: Final = (SystemExit, KeyboardInterrupt)


class PluginFailed(Exception):
    """A plugin's code failed; the message says how, in one line."""


class PluginThread:
    """A thread with an event loop, for the code of one plugin. It lives as long as the worker, also
    if that code wants to end the process: then `complain` is called in it, with what the plugin did.
    """

    def __init__(self, name: str, complain: Callable[[str], None]) -> None:
        self.loop = asyncio.new_event_loop()
        self._complain = complain
        # A daemon thread: one that hangs does not keep the worker from ending.
        self.thread = threading.Thread(target=self._serve, name=f"plugin {name}", daemon=True)
        self.thread.start()

    async def call(self, function: Callable[[], T], limit: float) -> T:
        """The result of `function()`, called in the thread; raises PluginFailed for whatever it
        raises, and TimeoutError after `limit` (s), while it goes on.
        """

        async def guarded() -> T:
            try:
                return function()
            except BaseException as error:
                raise PluginFailed(_in_a_line(error)) from error

        async with asyncio.timeout(limit):
            return await asyncio.shield(self.start(guarded()))

    def start(self, coroutine: Coroutine[Any, Any, T]) -> asyncio.Future[T]:
        """Run a coroutine in the thread's loop. Its end by an exit is a PluginFailed."""
        guarded = _without_exit(coroutine)
        running = asyncio.wrap_future(asyncio.run_coroutine_threadsafe(guarded, self.loop))
        running.add_done_callback(told_elsewhere)
        return running

    def _serve(self) -> None:
        asyncio.set_event_loop(self.loop)
        while True:
            try:
                self.loop.run_forever()
                return
            except EXITS as error:  # asyncio ends a loop in which one is raised
                # Without its words: they may be of the conversation, and the log keeps this.
                self._complain(f"tried to end its process ({type(error).__name__})")


class ThreadedServer:
    """A plugin's `mcp.server.Server` for the SDK: it runs in the plugin's thread."""

    def __init__(self, server: Any, thread: PluginThread) -> None:
        self._server = server
        self._thread = thread

    def create_initialization_options(self, *given: Any, **named: Any) -> Any:
        """What the server says of itself."""
        return self._server.create_initialization_options(*given, **named)

    async def run(self, read: Any, write: Any, options: Any, *_: Any, **__: Any) -> None:
        """Serve one connection until `read` ends; its streams are of the worker's loop."""
        inward: asyncio.Queue[Any] = asyncio.Queue()  # only used in the plugin's loop
        outward: asyncio.Queue[Any] = asyncio.Queue()  # only used in this one
        here, there = asyncio.get_running_loop(), self._thread.loop

        def put_in(item: Any) -> None:
            there.call_soon_threadsafe(inward.put_nowait, crossing(item, here))

        def put_out(item: Any) -> None:
            here.call_soon_threadsafe(outward.put_nowait, item)

        serving = self._thread.start(_serve(self._server, options, inward, put_out))
        try:
            async with anyio.create_task_group() as group:
                group.start_soon(_pass_on, read, put_in)
                while (item := await outward.get()) is not _END:
                    await write.send(item)
                group.cancel_scope.cancel()
            await serving
        finally:
            serving.cancel()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._server, name)


async def _pass_on(read: Any, put: Callable[[Any], None]) -> None:
    async for item in read:
        put(item)
    put(_END)


def crossing(item: Any, loop: asyncio.AbstractEventLoop) -> Any:
    """A message for the other loop, which calls back into this one."""
    metadata = getattr(item, "metadata", None)
    unanswered = getattr(metadata, "on_request_unanswered", None)
    if unanswered is None:
        return item

    async def here() -> None:
        asyncio.run_coroutine_threadsafe(unanswered(), loop)

    changed = dataclasses.replace(cast("Any", metadata), on_request_unanswered=here)
    return dataclasses.replace(item, metadata=changed)


async def _serve(
    server: Any, options: Any, inward: asyncio.Queue[Any], put_out: Callable[[Any], None]
) -> None:
    """Serve in the plugin's loop: from `inward`, to `put_out`."""
    from mcp.shared.memory import create_client_server_memory_streams

    async def feed(send: Any) -> None:
        while (item := await inward.get()) is not _END:
            await send.send(item)
        await send.aclose()

    async def drain(receive: Any) -> None:
        async for item in receive:
            put_out(item)

    try:
        async with create_client_server_memory_streams() as (client, streams):
            receive, send = client
            async with anyio.create_task_group() as group:
                group.start_soon(feed, send)
                group.start_soon(drain, receive)
                await server.run(*streams, options, raise_exceptions=False)
                await streams[1].aclose()
                group.cancel_scope.cancel()
    finally:
        put_out(_END)


async def _without_exit(coroutine: Coroutine[Any, Any, T]) -> T:
    """The coroutine's result; raises PluginFailed in place of what would end the caller's loop."""
    try:
        return await coroutine
    except (Exception, asyncio.CancelledError):
        raise
    except BaseException as error:
        cause = error
        while isinstance(cause, BaseExceptionGroup):
            cause = cause.exceptions[0]
        raise PluginFailed(_in_a_line(cause)) from error


def _in_a_line(error: BaseException) -> str:
    words = " ".join(str(error).split())
    return f"{type(error).__name__}: {words}"[:300] if words else type(error).__name__
