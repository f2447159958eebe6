"""`serve --stdio` and a database that must be opened anew: the server goes on with its client, or
ends and says why.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from pykoclaw_acp.config.settings import Settings
from pykoclaw_acp.errors import RestartWanted
from pykoclaw_acp.link.places import DATABASE
from pykoclaw_acp.server import stdio
from pykoclaw_acp.server.app import App
from pykoclaw_acp.store.open_file import OpenFile
from pykoclaw_acp.store.sqlite import sqlite3
from tests.databases import place
from tests.waiting import eventually, not_within

OPENED: dict[str, Any] = {"cwd": "/", "mcpServers": []}


class Client:
    """A client of a server in this process, over two pipes. `apps`: what that has started."""

    def __init__(self, path: Path, apps: list[App]) -> None:
        (source, self._given), (self._shown, sink) = os.pipe(), os.pipe()
        self.apps = apps
        self._reader = asyncio.StreamReader()
        self._ids = count(1)
        settings = Settings(
            data=path / "data",
            state=path / "state",
            early_start="off",
            workspace_trust="off",
        )
        self.serving = asyncio.create_task(self._serve(settings, source, sink))

    async def introduce(self) -> None:
        """Begin to read, and to speak."""
        await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(self._reader), os.fdopen(self._shown, "rb", 0)
        )
        assert "result" in await self.call("initialize", protocolVersion=1)

    async def call(self, method: str, **params: Any) -> dict[str, Any]:
        """The answer."""
        message = {"jsonrpc": "2.0", "id": next(self._ids), "method": method, "params": params}
        os.write(self._given, json.dumps(message).encode() + b"\n")
        async with asyncio.timeout(60):
            while line := await self._reader.readline():
                frame: dict[str, Any] = json.loads(line)
                if frame.get("id") == message["id"]:
                    return frame
        raise EOFError("the server has ended")

    async def _serve(self, settings: Settings, source: int, sink: int) -> None:
        try:
            await stdio.serve(settings, source, sink, None)
        except BaseException:
            self._reader.feed_eof()  # it may not have opened them
            raise

    async def new(self) -> str:
        """A session; its id, or why there is none."""
        answer = await self.call("session/new", **OPENED)
        if "error" in answer:
            return str(answer["error"]["data"]["errorKind"])
        return str(answer["result"]["sessionId"])

    async def leave(self) -> None:
        """End of input."""
        os.close(self._given)
        await asyncio.wait([self.serving])


@pytest.fixture
async def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The database of a server that was here before."""
    (tmp_path / "data").mkdir(mode=0o700)
    found = place(tmp_path / "data" / DATABASE)
    async with served(found, monkeypatch):
        pass
    return found


@asynccontextmanager
async def served(path: Path, patch: pytest.MonkeyPatch) -> AsyncIterator[Client]:
    """A client that has introduced itself."""
    apps: list[App] = []
    start = App.start

    async def noted(*given: Any, **named: Any) -> App:
        apps.append(await start(*given, **named))
        return apps[-1]

    with patch.context() as noting:
        noting.setattr(App, "start", noted)
        client = Client(path.parent.parent, apps)
        try:
            await client.introduce()
            yield client
        finally:
            await client.leave()


def locked(path: Path) -> sqlite3.Connection:
    """Another program, which holds the write lock until this is closed."""
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    return other


@pytest.mark.parametrize("said", [None, "logout"])
async def test_start_under_a_lock_is_overcome(
    path: Path, monkeypatch: pytest.MonkeyPatch, said: str | None
) -> None:
    """What the client has said of itself before counts afterwards."""
    with closing(locked(path)) as other:
        async with served(path, monkeypatch) as client:
            assert await client.new() == "store_locked"
            if said is not None:
                assert "result" in await client.call(said)
            other.close()
            await eventually(lambda: len(client.apps) == 2)
            made = await client.new()
            live = list(client.apps[1].sessions.live)
            assert (live, made) == (
                ([made], made) if said is None else ([], "authentication_missing")
            )
            assert not client.serving.done()


async def test_open_sessions_make_server_end(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What their client has asked for with them, a new server would not know."""
    async with served(path, monkeypatch) as client:
        session = await client.new()
    with closing(locked(path)) as other:
        async with served(path, monkeypatch) as client:
            assert "result" in await client.call("session/load", sessionId=session, **OPENED)
            other.close()
            with pytest.raises(RestartWanted, match="Start the server again"):
                await asyncio.wait_for(client.serving, 60)
    async with served(path, monkeypatch) as client:
        assert "result" in await client.call("session/load", sessionId=session, **OPENED)


@pytest.mark.parametrize("wanted", [False, True])
async def test_uncertain_commit_makes_server_end(
    path: Path, monkeypatch: pytest.MonkeyPatch, *, wanted: bool
) -> None:
    """Also if it was to be opened anew before, at some time."""
    check, away = OpenFile.check_after_commit, path.with_name("moved")

    def sessions() -> int:
        with closing(sqlite3.connect(path)) as other:
            return int(other.execute("SELECT COUNT(*) FROM acp_sessions").fetchone()[0])

    def move(self: OpenFile) -> None:
        if sessions() == before:  # a commit of something else, such as a look at transcripts
            return check(self)
        path.rename(away)
        monkeypatch.setattr(OpenFile, "check_after_commit", check)
        return check(self)

    async with served(path, monkeypatch) as client:
        await client.new()
        before = sessions()
        if wanted:
            client.apps[0].database.reopen_wanted.set()
            await not_within(client.serving.done)
        monkeypatch.setattr(OpenFile, "check_after_commit", move)
        assert await client.new() == "store_uncertain"
        away.rename(path)
        with pytest.raises(RestartWanted):
            await asyncio.wait_for(client.serving, 60)


async def test_writable_database_ends_no_server(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is to be opened anew after another program has changed its journal mode."""
    async with served(path, monkeypatch) as client:
        session = await client.new()
        client.apps[0].database.reopen_wanted.set()
        await not_within(client.serving.done)
        assert "result" in await client.call("session/load", sessionId=session, **OPENED)
        assert len(client.apps) == 1
