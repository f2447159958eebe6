"""A session's directories that come, go, and are replaced."""

from __future__ import annotations

import asyncio
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.integration.rig import Rig, rig
from tests.integration.wires import Wire, client, prompt
from tests.waiting import eventually


def launches(r: Rig) -> list[tuple[str, ...]]:
    """The added directories of the workers, in the order of their launch."""
    return [one.spec.options.additional_directories for one in r.launcher.launched]


def notes(wire: Wire) -> list[str]:
    """What was said by us, and not by Claude."""
    return [
        one["content"]["text"]
        for one in wire.updates()
        if one.get("_meta", {}).get("pykoclaw.dev/note")
    ]


async def opened(wire: Wire, method: str, **params: Any) -> dict[str, Any]:
    """The answer to a request that opens a session, whole."""
    return await wire.call(method, **{"mcpServers": [], **params})


async def test_bad_directories_are_refused_in_words(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "data").mkdir()
    missing, file = str(tmp_path / "missing"), str(tmp_path / "file")
    async with rig(tmp_path / "data") as r, client(r) as wire:
        made = await opened(wire, "session/new", cwd="/")
        session = made["result"]["sessionId"]
        nobodys = "there is no such directory"
        bad = {
            missing: nobodys,
            file: "it is not a directory",
            f"{file}/": "it is not a directory",
            f"{file}/below": nobodys,
        }
        for path, why in bad.items():
            answer = await opened(wire, "session/new", cwd=path)
            assert answer["error"]["code"] == -32602
            assert answer["error"]["message"] == f"`cwd`: {path} cannot be used: {why}."
            for method, more in (
                ("session/new", {}),
                ("session/load", {"sessionId": session}),
                ("session/resume", {"sessionId": session}),
                ("session/fork", {"sessionId": session}),
            ):
                answer = await opened(
                    wire, method, cwd="/", additionalDirectories=["/tmp", path], **more
                )
                assert answer["error"]["code"] == -32602
                assert answer["error"]["message"] == (
                    f"`additionalDirectories[1]`: {path} cannot be used: {why}."
                )


async def test_users_settings_claude_leaves_out_are_named_once(tmp_path: Path) -> None:
    settings = tmp_path / "claude/settings.json"
    settings.parent.mkdir()
    (tmp_path / "data").mkdir()
    async with rig(tmp_path / "data") as r, client(r) as wire:
        r.sessions.daemon_environment = replace(
            r.sessions.daemon_environment, claudes=str(settings.parent)
        )
        made = await opened(wire, "session/new", cwd="/")
        session = made["result"]["sessionId"]
        said = []
        for data in ("{}", '{"permissions": {"deny": ["Read"]},}', "[", "{}", "["):
            settings.write_text(data)
            assert "result" in await wire.call("session/prompt", **prompt(session, "say 1"))
            said.append(len(notes(wire)))
        assert said == [0, 1, 1, 1, 2]
        assert f"are ignored: `{settings}` is not valid JSON (line 1," in notes(wire)[0]
        assert len(r.launcher.launched) == 1


async def test_path_that_is_too_long_is_refused_unread(tmp_path: Path) -> None:
    long = "/" + "a/" * 400_000  # its links would be resolved for half a minute, in a shared thread
    async with rig(tmp_path) as r, client(r) as wire:
        made = await opened(wire, "session/new", cwd="/")
        session = {"sessionId": made["result"]["sessionId"], "cwd": "/"}
        for method, name, params in (
            ("session/new", "cwd", {}),
            ("session/load", "cwd", session),
            ("session/resume", "cwd", session),
            ("session/fork", "cwd", session),
            ("session/list", "cwd", {}),
            ("session/new", "additionalDirectories", {"cwd": "/"}),
        ):
            wrong = {name: [long] if name == "additionalDirectories" else long}
            answer = await asyncio.wait_for(opened(wire, method, **params | wrong), 10)
            assert answer["error"]["code"] == -32602
            assert "is longer than 4,095 bytes" in answer["error"]["message"]
        assert "result" in await wire.call(
            "session/prompt", **prompt(session["sessionId"], "say 1")
        )


async def test_changed_directories_reach_only_the_next_turn(tmp_path: Path) -> None:
    async with rig(tmp_path) as r, client(r) as wire:
        made = await opened(wire, "session/new", cwd="/", additionalDirectories=["/usr"])
        session = made["result"]["sessionId"]
        await wire.call("session/prompt", **prompt(session, "say 1"))
        for method, path in (("session/load", "/tmp"), ("session/resume", "/etc")):
            await opened(wire, method, sessionId=session, cwd="/", additionalDirectories=[path])
            await wire.call("session/prompt", **prompt(session, "say 1"))
        assert launches(r) == [("/usr",), ("/tmp",), ("/etc",)]


async def test_missing_added_directory_is_said_and_returns(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    more = tmp_path / "more"
    more.mkdir()
    async with rig(tmp_path / "data") as r, client(r) as wire:
        made = await opened(wire, "session/new", cwd="/", additionalDirectories=[str(more)])
        session = made["result"]["sessionId"]
        more.rmdir()
        reopened = {"sessionId": session, "cwd": "/", "additionalDirectories": [str(more)]}
        assert "result" in await opened(wire, "session/load", **reopened)
        await wire.call("session/prompt", **prompt(session, "say 1"))
        await wire.call("session/prompt", **prompt(session, "say 1"))
        (said,) = notes(wire)
        assert f"**The additional directory `{more}` cannot be used: there is no such" in said
        assert len(launches(r)) == 1
        more.mkdir()
        await wire.call("session/prompt", **prompt(session, "say 1"))
        assert len(launches(r)) == 2, "Claude has taken no notice that it is back"
        assert notes(wire) == [said]


@pytest.mark.parametrize("fate", ["refused", "cancelled"])
async def test_what_is_missing_is_said_whatever_ends_prompt(tmp_path: Path, fate: str) -> None:
    """The prompt that finds out may never reach Claude."""
    settings, more, data = tmp_path / "claude/settings.json", tmp_path / "more", tmp_path / "data"
    for one in (settings.parent, more, data):
        one.mkdir()
    async with rig(data) as r, client(r) as wire:
        r.sessions.daemon_environment = replace(
            r.sessions.daemon_environment, claudes=str(settings.parent)
        )
        made = await opened(wire, "session/new", cwd="/", additionalDirectories=[str(more)])
        session = made["result"]["sessionId"]
        more.rmdir()
        settings.write_text("[")
        r.launcher.refuse, r.launcher.slow = fate == "refused", True
        running = wire.begin("session/prompt", **prompt(session, "say 1"))
        if fate == "cancelled":
            await eventually(lambda: r.launcher.launched)
            wire.send({"method": "session/cancel", "params": {"sessionId": session}})
        answer = await wire.answer(running)
        assert (fate == "refused") == ("error" in answer)
        r.launcher.refuse = r.launcher.slow = False
        for worker in r.launcher.launched:
            worker.ready()
        assert "result" in await wire.call("session/prompt", **prompt(session, "say 1"))
        for words in ("Claude settings are ignored", f"additional directory `{more}` cannot"):
            assert len([one for one in notes(wire) if words in one]) == 1


async def test_session_without_its_directory_is_read_only(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    work = tmp_path / "work"
    work.mkdir()
    async with rig(tmp_path / "data") as r, client(r) as wire:
        session = (await opened(wire, "session/new", cwd=str(work)))["result"]["sessionId"]
        await wire.call("session/prompt", **prompt(session, "say 1"))
        shutil.rmtree(work)
        shown = len(wire.updates())
        assert "result" in await opened(wire, "session/load", sessionId=session, cwd=str(work))
        assert len(wire.updates()) > shown, "nothing was replayed"
        error = (await wire.call("session/prompt", **prompt(session, "say 1")))["error"]
        assert error["data"]["errorKind"] == "cwd_missing"
        assert (
            f"{work} cannot be used: there is no such directory. The prompt was not sent"
            in error["message"]
        )
        assert len(launches(r)) == 1
        work.mkdir()
        await wire.call("session/prompt", **prompt(session, "say 1"))
        assert len(launches(r)) == 2, "Claude is still in the directory that was deleted"


async def prompted(wire: Wire, cwd: Path) -> dict[str, str]:
    """The parameter that names a session of this directory, which has had a prompt."""
    made = await opened(wire, "session/new", cwd=str(cwd))
    session = {"sessionId": made["result"]["sessionId"]}
    await wire.call("session/prompt", **prompt(session["sessionId"], "say 1"))
    return session


async def test_one_of_two_clients_moves_a_session(tmp_path: Path) -> None:
    """Both ask at once, with directories of their own: the second one is refused."""
    old, new, newer = (tmp_path / name for name in ("old", "new", "newer"))
    for each in (tmp_path / "data", old, new, newer):
        each.mkdir()
    async with rig(tmp_path / "data") as r, client(r) as wire, client(r) as other:
        session = await prompted(wire, old)
        old.rmdir()
        answers = await asyncio.gather(
            opened(wire, "session/load", **session, cwd=str(new)),
            opened(other, "session/resume", **session, cwd=str(newer)),
        )
        (refused,) = (one["error"] for one in answers if "error" in one)
        (listed,) = (await wire.call("session/list"))["result"]["sessions"]
        assert refused["data"]["sessionCwd"] == listed["cwd"]
        assert refused["data"]["cwd"] != listed["cwd"]


@pytest.mark.parametrize("method", ["session/load", "session/resume"])
async def test_session_follows_a_project_that_moved(tmp_path: Path, method: str) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    (tmp_path / "data").mkdir()
    old.mkdir()
    async with rig(tmp_path / "data") as r, client(r) as wire, client(r) as other:
        session = await prompted(wire, old)
        new.mkdir()
        refused = (await opened(wire, method, **session, cwd=str(new)))["error"]
        assert refused["code"] == -32602
        assert "`session/fork`" in refused["message"]
        named = {"sessionCwd": str(old), "cwd": str(new), "instead": "session/fork"}
        assert refused["data"] == named
        old.rmdir()
        missing = await opened(wire, method, **session, cwd=str(tmp_path / "missing"))
        assert "missing cannot be used: there is no such directory" in missing["error"]["message"]
        assert "result" in await opened(wire, method, **session, cwd=str(new))
        said = f"directory {old} does not exist any more. It continues in {new}"
        await eventually(lambda: any(said in one for one in notes(wire)))
        await opened(other, "session/load", **session, cwd=str(new))
        assert sum(said in one for one in notes(other)) == 1
        (listed,) = (await wire.call("session/list", cwd=str(new)))["result"]["sessions"]
        assert listed["cwd"] == str(new)
        await wire.call("session/prompt", **prompt(session["sessionId"], "say 1"))
        assert [one.spec.options.cwd for one in r.launcher.launched] == [str(old), str(new)]
        old.mkdir()
        back = (await opened(wire, method, **session, cwd=str(old)))["error"]
        assert back["data"]["sessionCwd"] == str(new)


@pytest.mark.parametrize("link", ["work", "."], ids=["itself", "above"])
async def test_session_awaits_disk_behind_its_link(tmp_path: Path, link: str) -> None:
    """A disk that is not mounted leaves a link that leads nowhere: the session is not moved for good."""
    disk, away, other = tmp_path / "disk", tmp_path / "away", tmp_path / "other"
    for each in (tmp_path / "data", disk / "work", other):
        each.mkdir(parents=True)
    (tmp_path / "link").symlink_to(disk / link)
    work = str(tmp_path / "link" / ("" if link == "work" else "work"))
    async with rig(tmp_path / "data") as r, client(r) as wire:
        made = await opened(wire, "session/new", cwd=work)
        session = made["result"]["sessionId"]
        await wire.call("session/prompt", **prompt(session, "say 1"))
        disk.rename(away)
        for method in ("session/load", "session/resume"):
            refused = (await opened(wire, method, sessionId=session, cwd=str(other)))["error"]
            assert refused["data"]["sessionCwd"] == work
        refused = (await wire.call("session/prompt", **prompt(session, "say 1")))["error"]
        assert "a symbolic link in its path leads nowhere" in refused["message"]
        away.rename(disk)
        assert "result" in await opened(wire, "session/load", sessionId=session, cwd=work)
        assert "result" in await wire.call("session/prompt", **prompt(session, "say 1"))
