"""Calls that outlive their time limit: they keep no process from ending, and do nothing later."""

from __future__ import annotations

import asyncio
import http.client
import subprocess
import sys
import threading
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest

from pykoclaw_acp.notify import command
from pykoclaw_acp.notify.acceptance import NotAccepted
from pykoclaw_acp.notify.command import CommandRun
from pykoclaw_acp.notify.webhook import Post
from pykoclaw_acp.server.lag import LoopLag
from pykoclaw_acp.system import threads
from pykoclaw_acp.worker.plugins import loading
from pykoclaw_acp.worker.plugins.loading import Plugins
from pykoclaw_acp.worker.plugins.output import PluginOutput
from pykoclaw_acp.worker.plugins.probing import TOO_SLOW, Probes
from tests.waiting import eventually

HANGS = """
import asyncio, time
from pykoclaw_acp.notify.threads import abandonable
from pykoclaw_acp.server.lag import run
from pykoclaw_acp.system import threads

threads.GRACE = 0.1

async def main(_):
    asyncio.get_running_loop().run_in_executor(None, time.sleep, 3600)
    try:
        async with asyncio.timeout(0.1):
            await abandonable(lambda: time.sleep(3600))
    except TimeoutError:
        print("over", flush=True)

run(main)
threads.leave(3)
"""


def test_calls_that_hang_keep_no_process_from_ending() -> None:
    done = subprocess.run(
        [sys.executable, "-c", HANGS], capture_output=True, text=True, timeout=120, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (3, "over\n", "")


def test_calls_that_end_are_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "GRACE", 60.0)
    begun, go_on, over = threading.Event(), threading.Event(), threading.Event()

    def work() -> None:
        begun.set()
        go_on.wait(60)
        over.set()

    async def main() -> None:
        asyncio.get_running_loop().run_in_executor(None, work)
        assert await asyncio.to_thread(begun.wait, 60)
        threading.Timer(0.05, go_on.set).start()

    LoopLag().run(main())
    assert over.is_set()
    threads.leave(1)  # returns


def test_command_that_was_stopped_is_not_started_later(tmp_path: Path) -> None:
    run = CommandRun(("touch", str(tmp_path / "started")), b"{}")
    run.kill()
    with pytest.raises(NotAccepted, match="stopped"):
        run.wait(60)
    assert not (tmp_path / "started").exists()


async def test_command_unable_to_start_in_time_is_abandoned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when its file is on a disk that hangs."""
    monkeypatch.setattr(command, "GRACE", 0.1)
    hang, wait = threading.Event(), CommandRun.wait
    ended: list[str] = []

    def hanging(run: CommandRun, limit: float) -> None:
        hang.wait(60)
        try:
            wait(run, limit)
        except NotAccepted as error:
            ended.append(str(error))

    monkeypatch.setattr(CommandRun, "wait", hanging)
    with pytest.raises(NotAccepted, match="hung"):
        await command.tell(("touch", str(tmp_path / "started")), b"{}", 0.1)
    hang.set()
    await eventually(lambda: ended == ["it was stopped"])
    assert not (tmp_path / "started").exists()


def test_request_that_was_stopped_is_not_sent_later(monkeypatch: pytest.MonkeyPatch) -> None:
    """As when its host name took too long to be looked up."""
    sent: list[bytes] = []

    class Connection:
        sock = None
        auto_open = 1

        def __init__(self, *_: Any, **__: Any) -> None:
            pass

        def connect(self) -> None:
            post.close()

        def request(self, *_: Any) -> None:
            sent.append(b"request")

        def close(self) -> None:
            pass

    monkeypatch.setattr(http.client, "HTTPSConnection", Connection)
    post = Post("https://example.org/hook", "secret", b"{}", "one")
    with pytest.raises(NotAccepted, match="stopped"):
        post.wait(60)
    assert sent == []


async def test_plugin_that_loads_too_slowly_writes_nothing_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    go_on = threading.Event()
    refused: list[str] = []
    statements: list[Any] = []

    class Calls:
        async def run(self, *given: Any) -> list[Any]:
            statements.append(given)
            return []

    class Plugin:
        def get_mcp_servers(self, db: Any, _: str) -> dict[str, Any]:
            go_on.wait(60)
            try:
                db.execute("CREATE TABLE late (a)")
            except Exception as error:
                refused.append(str(error))
                raise
            return {}

    monkeypatch.setattr(loading, "LIMIT", 0.1)
    monkeypatch.setattr(EntryPoint, "load", lambda _: Plugin)
    monkeypatch.setattr(loading, "installed", lambda: [EntryPoint("slow", "a:b", loading.GROUP)])
    monkeypatch.setattr(PluginOutput, "install", lambda: PluginOutput(sys.stdout))

    monkeypatch.setattr(Probes, "failures", _none)
    made = Plugins("acp-1", Calls())  # type: ignore[arg-type]
    await made.load()
    assert [(one.plugin, one.what) for one in made.complaints] == [("slow", TOO_SLOW)]
    assert made.servers == [{}]
    go_on.set()
    await eventually(lambda: refused == ["This handle is closed."])
    assert statements == []


async def _none(_: Probes, plugins: Any) -> list[None]:
    return [None for _ in plugins]


async def test_plugins_unfit_server_costs_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    class Plugin:
        def get_mcp_servers(self, *_: Any) -> dict[str, Any]:
            return {
                "bare": {"type": "sdk"},
                "path": {"type": "stdio", "command": Path("/bin/cat")},
                "none": {},
                "good": {"type": "stdio", "command": "cat"},
            }

    monkeypatch.setattr(EntryPoint, "load", lambda _: Plugin)
    monkeypatch.setattr(loading, "installed", lambda: [EntryPoint("one", "a:b", loading.GROUP)])
    monkeypatch.setattr(PluginOutput, "install", lambda: PluginOutput(sys.stdout))
    monkeypatch.setattr(Probes, "failures", _none)
    made = Plugins("acp-1", None)  # type: ignore[arg-type]
    await made.load()
    assert made.servers == [{"good": {"type": "stdio", "command": "cat"}}]
    assert [one.what for one in made.complaints] == [
        f"gives an MCP server that is none ({name!r})" for name in ("bare", "path", "none")
    ]
