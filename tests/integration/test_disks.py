"""Directories whose disks do not answer: whoever asks about them is told, and nobody else waits."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from pykoclaw_acp.system import disks, threads
from pykoclaw_acp.system.mounts import Mounts
from tests.integration.rig import rig
from tests.integration.wires import client, new, prompt
from tests.waiting import not_within


class Disk:
    """A directory all of whose files keep a caller waiting until it answers."""

    def __init__(self, path: Path) -> None:
        path.mkdir()
        self.path = str(path)
        self.answers = threading.Event()

    def hanging(self, function: Any) -> Any:
        def wait(path: Any, *arguments: Any, **named: Any) -> Any:
            if isinstance(path, str) and (path + "/").startswith(self.path + "/"):
                self.answers.wait(60)
            return function(path, *arguments, **named)

        return wait


@pytest.fixture
def dead(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Disk]:
    disk = Disk(tmp_path / "dead")
    for name in ("stat", "lstat"):
        monkeypatch.setattr(os, name, disk.hanging(getattr(os, name)))
    monkeypatch.setattr(disks, "WAIT", 0.2)
    yield disk
    disk.answers.set()


@pytest.fixture
async def own_threads() -> None:
    asyncio.get_running_loop().set_default_executor(threads.started())


def look(disk: Disk, path: str = "") -> asyncio.Task[bool]:
    place = os.path.join(disk.path, path)
    return asyncio.ensure_future(disks.call(place, partial(os.path.isdir, place)))


async def silent(disk: Disk) -> bool:
    try:
        return not await look(disk)
    except TimeoutError:
        return True


@pytest.mark.usefixtures("own_threads")
async def test_calls_about_other_directories_go_on(dead: Disk, tmp_path: Path) -> None:
    calls = [look(dead) for _ in range(30)]
    assert await disks.call(str(tmp_path), partial(os.path.isdir, str(tmp_path)))
    assert await asyncio.to_thread(os.path.isdir, tmp_path)
    told = await asyncio.gather(*calls, return_exceptions=True)
    assert {type(one) for one in told} == {TimeoutError}
    assert {one.strerror for one in told} == {disks.SILENT}  # type: ignore[union-attr]
    assert await disks.call(str(tmp_path), partial(os.path.isdir, str(tmp_path)))


@pytest.mark.usefixtures("own_threads")
async def test_asking_silent_disk_again_fails_at_once(
    dead: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    await asyncio.gather(*(look(dead) for _ in range(disks.EACH)), return_exceptions=True)
    monkeypatch.setattr(disks, "WAIT", 3600)
    with pytest.raises(TimeoutError):
        await look(dead)
    dead.answers.set()

    async with asyncio.timeout(60):
        while await silent(dead):
            pass


@pytest.mark.usefixtures("own_threads")
async def test_withdrawn_call_holds_its_thread_and_no_other(dead: Disk, tmp_path: Path) -> None:
    for _ in range(30):
        call = look(dead)
        await asyncio.sleep(0)
        call.cancel()
    assert await disks.call(str(tmp_path), partial(os.path.isdir, str(tmp_path)))
    with pytest.raises(TimeoutError):
        await look(dead)


@pytest.mark.usefixtures("own_threads")
async def test_some_threads_are_never_given_to_such_calls(dead: Disk, tmp_path: Path) -> None:
    calls = [look(dead, str(number)) for number in range(30)]
    assert await asyncio.to_thread(os.path.isdir, tmp_path)
    told = await asyncio.gather(*calls, return_exceptions=True)
    assert {type(one) for one in told} == {TimeoutError}


async def test_call_raises_errors_of_its_function(tmp_path: Path) -> None:
    path = str(tmp_path / "none")
    with pytest.raises(FileNotFoundError):
        await disks.call(path, partial(os.stat, path))


def test_directories_of_one_network_disk_hang_as_one(tmp_path: Path) -> None:
    listed = tmp_path / "mountinfo"
    listed.write_text(
        "21 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n"
        "22 21 0:40 / /far rw shared:2 master:1 - nfs4 host:/x rw\n"
        "23 22 0:41 / /far/with\\040space rw - fuse.sshfs host: rw\n"
        "24 21 0:42 / /near rw - tmpfs none rw\n"
        "a line of a later kernel\n"
    )
    disk_of = Mounts(str(listed)).disk_of
    assert disk_of("/far/a") == disk_of("/far") == disk_of("/far/b/c") == "/far"
    assert disk_of("/far/with space/x") == "/far/with space"
    assert disk_of("/farther") == "/farther"
    assert disk_of("/near/x") == "/near/x"
    assert Mounts(str(tmp_path / "none")).disk_of("/far/a") == "/far/a"


@pytest.mark.usefixtures("own_threads")
@pytest.mark.parametrize("method", ["session/new", "session/load", "session/list"])
async def test_requests_about_a_dead_disk_keep_nobody_waiting(
    tmp_path: Path, dead: Disk, method: str
) -> None:
    async with rig(tmp_path) as r, client(r) as one, client(r) as other:
        session, healthy = await new(one), await new(other)
        about: dict[str, Any] = {"cwd": dead.path}
        if method != "session/list":
            about |= {"mcpServers": []}
        if method == "session/load":
            about |= {"sessionId": session}
        asked = [one.begin(method, **about) for _ in range(12)]
        answer = await other.call("session/prompt", **prompt(healthy, "say 1"))
        assert answer["result"]["stopReason"] == "end_turn"
        for each in asked:
            answer = await one.answer(each)
            if method == "session/list":
                assert answer["result"]["sessions"] == []
            else:
                assert answer["error"]["code"] == -32602
                message = answer["error"]["message"]
                assert (message[:7], message.endswith(f"{disks.SILENT}.")) == ("`cwd`: ", True)


@pytest.mark.usefixtures("own_threads")
async def test_prompt_on_dead_disk_says_so_without_delay(tmp_path: Path, dead: Disk) -> None:
    async with rig(tmp_path) as r, client(r) as one, client(r) as other:
        dead.answers.set()
        session = (await one.call("session/new", cwd=dead.path, mcpServers=[]))["result"]
        dead.answers.clear()
        healthy = await new(other)
        for _ in range(8):
            asked = one.begin("session/prompt", **prompt(session["sessionId"], "say 1"))
            one.send({"method": "session/cancel", "params": {"sessionId": session["sessionId"]}})
            assert (await one.answer(asked))["result"]["stopReason"] == "cancelled"
        answer = await other.call("session/prompt", **prompt(healthy, "say 1"))
        assert answer["result"]["stopReason"] == "end_turn"
        answer = await one.call("session/prompt", **prompt(session["sessionId"], "say 1"))
        assert answer["error"]["data"]["errorKind"] == "cwd_missing"
        assert disks.SILENT in answer["error"]["message"]
        dead.answers.set()
        asked = one.begin("session/prompt", **prompt(session["sessionId"], "say 1"))
        assert (await one.answer(asked))["result"]["stopReason"] == "end_turn"


@pytest.mark.usefixtures("own_threads")
async def test_slow_links_keep_no_other_request_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a server far away: to resolve a path takes a look at each of its directories."""
    slow = Disk(tmp_path / "slow")
    slow.answers.set()
    monkeypatch.setattr(os, "lstat", slow.hanging(os.lstat))
    async with rig(tmp_path) as r, client(r) as one:
        about: dict[str, Any] = {"cwd": slow.path, "mcpServers": []}
        made = [await one.call("session/new", **about) for _ in range(disks.EACH)]
        slow.answers.clear()
        for session in made:
            known = session["result"]["sessionId"]
            assert "result" in await one.call("session/load", sessionId=known, **about)
        asked = one.begin("session/new", **about)
        await not_within(lambda: any(line.get("id") == asked for line in one.lines))
        slow.answers.set()
        assert "result" in await one.answer(asked)
