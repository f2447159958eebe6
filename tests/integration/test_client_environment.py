"""What a front gives of its client's environment: to its own sessions, as long as it is there."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import AsyncMock
from uuid import uuid4

import pytest

from pykoclaw_acp.model.scheduled import TaskRun
from pykoclaw_acp.protocol.control.tasks import RunTaskParams
from pykoclaw_acp.server.scheduled import ScheduledTasks
from pykoclaw_acp.sessions import session_environment
from pykoclaw_acp.sessions.task_runs import TaskRuns
from pykoclaw_acp.store.journal.tasks import SqlTaskStore
from tests.integration import linked
from tests.integration.callers import caller
from tests.integration.linked import Front
from tests.integration.rig import Rig, rig
from tests.integration.scheduling import CALL, logs, scheduling, task
from tests.waiting import eventually

KEY, OTHER = "sk-of-one", "sk-of-another"
NAME = "ANTHROPIC_API_KEY"


async def opened(one: Front, session: str, number: int = 50) -> None:
    await one.result(number, "session/load", sessionId=session, cwd="/", mcpServers=[])


async def prompt(one: Front, number: int, session: str) -> dict[str, Any]:
    own = {"pykoclaw.dev/idempotencyKey": str(uuid4())}
    one.call(number, "session/prompt", **linked.words(session, "say 1", **own))
    return await one.answer(number)


def environment(r: Rig) -> dict[str, str] | None:
    """Of the newest worker."""
    return r.launcher.launched[-1].spec.options.environment


async def test_each_front_gives_its_own(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        async with (
            linked.front(r, "one", environment={NAME: KEY, "PYKOCLAW_MAX_WORKERS": "3"}) as one,
            linked.front(r, "two", environment={NAME: OTHER, "HTTPS_PROXY": "http://p"}) as two,
            linked.front(r, "three") as three,
        ):
            for at, front in enumerate((one, two, three), 1):
                session = await linked.new(front, at)
                assert "result" in await prompt(front, 10 + at, session)
            given = [one.spec.options.environment for one in r.launcher.launched]
            assert given == [{NAME: KEY}, {NAME: OTHER, "HTTPS_PROXY": "http://p"}, {}]
        kept = await r.database.read("SELECT variables, secrets FROM acp_surroundings ORDER BY 1")
        assert kept == [('{"HTTPS_PROXY": "http://p"}', f'["{NAME}"]'), ("{}", f'["{NAME}"]')]


async def test_model_mode_and_their_faults(tmp_path: Path) -> None:
    said = {"PYKOCLAW_MODEL": "opus", "PYKOCLAW_PERMISSION_MODE": "plan"}
    async with rig(tmp_path) as r:
        async with linked.front(r, environment=said) as one:
            made = await one.result(1, "session/new", cwd="/", mcpServers=[])
            assert made["modes"]["currentModeId"] == "plan"
            await prompt(one, 2, made["sessionId"])
            options = r.launcher.launched[-1].spec.options
            assert (options.model, options.permission_mode) == ("opus", "plan")
        async with linked.front(r, "two", environment={"PYKOCLAW_PERMISSION_MODE": "yes"}) as two:
            two.call(1, "session/new", cwd="/", mcpServers=[])
            error = (await two.answer(1))["error"]
            assert (error["code"], "PYKOCLAW_PERMISSION_MODE" in error["message"]) == (-32602, True)
        async with linked.front(r, "three") as three:  # it keeps what it was made with
            await opened(three, made["sessionId"])
            await prompt(three, 2, made["sessionId"])
            assert r.launcher.launched[-1].spec.options.model == "opus"


async def test_a_key_is_gone_with_its_front(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        async with linked.front(r, "one", environment={NAME: KEY}) as one:
            session = await linked.new(one)
            await prompt(one, 2, session)
        async with linked.front(r, "two", environment={}) as two:
            await opened(two, session)
            assert "result" in await prompt(two, 2, session)  # its worker has the key
            r.launcher.launched[-1].kill()
            await eventually(lambda: not r.pool.is_live(session))
            for number in range(3, 8):
                error = (await prompt(two, number, session))["error"]
                assert error["code"] == -32000
                assert error["data"]["errorKind"] == "authentication_withheld"
                assert (NAME in error["message"], KEY in error["message"]) == (True, False)
            assert len(r.launcher.launched) == 1
        async with linked.front(r, "three", environment={NAME: OTHER}) as three:
            await opened(three, session)
            assert "result" in await prompt(three, 2, session)
            assert environment(r) == {NAME: OTHER}


async def test_another_environment_gets_another_worker(tmp_path: Path) -> None:
    async with rig(tmp_path) as r, linked.front(r, "one", environment={NAME: KEY}) as one:
        session = await linked.new(one)
        await prompt(one, 2, session)
        await prompt(one, 3, session)
        assert len(r.launcher.launched) == 1
        async with linked.front(r, "two", environment={NAME: OTHER}) as two:
            await opened(two, session)
            await prompt(two, 2, session)
            assert (len(r.launcher.launched), environment(r)) == (2, {NAME: OTHER})
        await prompt(one, 4, session)
        assert (len(r.launcher.launched), environment(r)) == (3, {NAME: KEY})


@pytest.mark.parametrize("said", [[], {"a": 1}, "x", {NAME: KEY, "LD_PRELOAD": "/evil"}])
async def test_what_is_not_on_the_list_is_nothing(tmp_path: Path, said: Any) -> None:
    async with (
        rig(tmp_path) as r,
        linked.front(r, environment=said, later={"unknown": True}) as one,
    ):
        session = await linked.new(one)
        assert "result" in await prompt(one, 2, session)
        assert environment(r) == ({NAME: KEY} if isinstance(said, dict) and NAME in said else {})


async def test_who_has_logged_out_stays_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path))
    async with rig(tmp_path) as r:
        async with linked.front(r, environment={NAME: KEY}) as one:
            session = await linked.new(one)
            await one.result(2, "logout")
            one.call(3, "session/new", cwd="/", mcpServers=[])
            assert (await one.answer(3))["error"]["code"] == -32000
            assert (await prompt(one, 4, session))["error"]["code"] == -32000
            one.call(5, "session/fork", sessionId=session, cwd="/", mcpServers=[])
            assert (await one.answer(5))["error"]["code"] == -32000
        async with linked.front(r, environment={NAME: KEY}, loggedOut=True) as again:
            again.call(1, "session/new", cwd="/", mcpServers=[])
            assert (await again.answer(1))["error"]["code"] == -32000
            again.call(2, "authenticate", methodId="none-such")
            assert (await again.answer(2))["error"]["code"] == -32602
            assert await again.result(3, "authenticate", methodId="anthropic-api-key") == {}
            await opened(again, session)
            assert "result" in await prompt(again, 5, session)
            assert environment(r) == {NAME: KEY}


async def test_a_turn_that_has_begun_needs_nobody(tmp_path: Path) -> None:
    """The next prompt in the queue runs on the worker that is there."""
    async with rig(tmp_path) as r:
        async with linked.front(r, "one", environment={NAME: KEY}) as one:
            session = await linked.new(one)
            one.call(2, "session/prompt", **linked.words(session, "hang"))
            await eventually(lambda: r.launcher.launched and r.launcher.launched[-1].prompts)
            one.gone = True
            one.incoming.put_nowait(b"")
            await one.serving
        found = await r.sessions.get(session)
        async with linked.front(r, "two", environment={}) as two:
            await opened(two, session)
            two.call(2, "session/prompt", **linked.words(session, "say 1"))
            await eventually(lambda: len(found.turns) == 2)
            await asyncio.gather(*found.cancel(found.turns[0]))
            assert "result" in await two.answer(2)
            assert len(r.launcher.launched) == 1


async def test_a_task_aside_is_of_its_conversations_account(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "pykoclaw.db"
    async with rig(tmp_path) as r, scheduling(r):
        async with linked.front(r, "one", environment={NAME: KEY}) as one:
            session = await linked.new(one)
            await prompt(one, 2, session)
            name = (await r.sessions.get(session)).record.conversation_name
            first = task(path, name, context_mode="isolated")
            await eventually(lambda: logs(path, first))
            assert (len(r.launcher.launched), environment(r)) == (2, {NAME: KEY})
        monkeypatch.setattr(session_environment, "RETURN", 0.0)
        second = task(path, name, context_mode="isolated")
        await eventually(lambda: logs(path, second))
        (found,) = logs(path, second)
        assert (found[0], NAME in found[2]) == ("error", True)
        assert len(r.launcher.launched) == 2


async def test_a_fork_is_of_the_same_account(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        async with linked.front(r, "one", environment={NAME: KEY}) as one:
            session = await linked.new(one)
            await prompt(one, 2, session)
            params = {"sessionId": session, "cwd": "/", "mcpServers": []}
            fork = (await one.result(3, "session/fork", **params))["sessionId"]
        async with linked.front(r, "two", environment={}) as two:
            await opened(two, fork)
            error = (await prompt(two, 2, fork))["error"]
            assert error["data"]["errorKind"] == "authentication_withheld"


@pytest.mark.parametrize("mode", ["isolated", "group"])
async def test_earlier_daemons_run_waits_for_client_with_key(tmp_path: Path, mode: str) -> None:
    path = tmp_path / "pykoclaw.db"
    async with rig(tmp_path) as r:
        async with linked.front(r, "one", environment={NAME: KEY}) as one:
            session = await linked.new(one)
            await prompt(one, 2, session)
            r.launcher.launched[-1].kill()
            found = await r.sessions.find(session)
            assert found is not None
            due = task(path, found.record.conversation_name, context_mode=mode)
            store = SqlTaskStore(r.database)
            (known,) = await store.due(1)
            await store.claim(
                TaskRun(str(uuid4()), known, None, manual=False, started_at=r.database.clock.now())
            )
        async with scheduling(r), linked.front(r, "one", environment={NAME: KEY}) as one:
            await opened(one, session)
            await eventually(lambda: logs(path, due))
            assert [state for state, _, _ in logs(path, due)] == ["success"]
            assert environment(r) == {NAME: KEY}


async def test_rewind_and_run_take_callers_key(tmp_path: Path) -> None:
    path, key = tmp_path / "pykoclaw.db", {NAME: KEY}
    async with rig(tmp_path) as r, caller(r, tmp_path) as cli:
        async with linked.front(r, "one", environment=key) as one:
            session = await linked.new(one)
            await prompt(one, 2, session)
        r.launcher.launched[-1].kill()
        found = r.sessions.live[session]
        found.requests.rewind_files = AsyncMock(return_value={"canRewind": True})  # type: ignore[method-assign]
        refused = await cli.call("rewind", session=session, dryRun=True)
        assert NAME in refused["filesError"]
        done = await cli.call("rewind", session=session, dryRun=True, environment=key)
        assert (done["filesError"], environment(r)) == (None, key)
        r.launcher.launched[-1].kill()
        due = task(path, found.record.conversation_name, context_mode="isolated")
        runs = TaskRuns(r.sessions, SqlTaskStore(r.database), tmp_path, 100)
        tasks = ScheduledTasks(cast("Any", SimpleNamespace(database=r.database, runs=runs)))
        await tasks.run(CALL, RunTaskParams(task=due, environment=key))
        await eventually(lambda: logs(path, due))
        assert [state for state, _, _ in logs(path, due)] == ["success"]
        assert environment(r) == key
