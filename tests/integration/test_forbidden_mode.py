"""The mode bypassPermissions, which a client forbids while a session plans that was in it: no approval
of the plan leads back to it.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
from msgspec.structs import replace

from pykoclaw_acp.channel.choosing import SetMode
from pykoclaw_acp.channel.frames import EventFrame, ToWorker
from pykoclaw_acp.errors import InvalidParams, StoreUnavailable
from pykoclaw_acp.model.condition import DatabaseState
from pykoclaw_acp.model.events import ConfigChanged, ModeChanged, Text
from pykoclaw_acp.model.session_options import RequestedOptions, SessionOptions
from pykoclaw_acp.sessions.choosing import LEAVING
from pykoclaw_acp.sessions.session import Session
from tests.integration.asking import Asking, Person, begin, choice, rig
from tests.integration.memory_launcher import MemoryChannel
from tests.integration.rig import Rig
from tests.waiting import eventually, pass_loop_time
from tests.workers import OPTIONS

BYPASS = "bypassPermissions"
STAYS = "did not leave a permission mode that is forbidden"
BYPASSING = replace(OPTIONS, permission_mode=BYPASS, bypass=True)
FORBIDS = RequestedOptions(
    options=SessionOptions(forbids_bypass=True), given={"forbids_bypass": "_meta"}
)


async def planning(r: Rig, *clients: Person) -> Asking:
    """A turn in plan mode, into which the session came from bypassPermissions."""
    asking = await begin(r, *clients)
    await asking.session.choosing.choose("modeId", mode="plan")
    assert modes_set(asking.channel)[-1].before_plan == BYPASS
    return asking


def modes_set(worker: MemoryChannel) -> list[SetMode]:
    return [one for one in worker.got if isinstance(one, SetMode)]


def report(worker: MemoryChannel, *events: ModeChanged | ConfigChanged) -> None:
    for event in events:
        worker.last += 1
        epoch = worker.spec.epoch
        worker.say(EventFrame(epoch=epoch, n=worker.last, turn_id=None, event=event))


async def forbid(r: Rig, session: Session) -> None:
    await r.sessions.reopen(session, "/", (), (), FORBIDS)


async def test_plan_asked_before_leads_to_no_forbidden_mode(tmp_path: Path) -> None:
    async with rig(tmp_path, options=BYPASSING) as r:
        early, late = Person(), Person("late")
        asking = await planning(r, early)
        asking.ask("q1", plan=True, always="edits", former=BYPASS)
        await eventually(lambda: early.asked)
        await forbid(r, asking.session)
        asking.session.subscribe(late, 0)
        await eventually(lambda: late.asked)
        assert [one.asked[0].former for one in (early, late)] == [BYPASS, ""]
        assert (await r.sessions.requests.list_pending())[0].request.former == ""
        with pytest.raises(InvalidParams, match="with: --allow, --always, --deny"):
            await r.sessions.requests.decide("q1", "allow_former", "cli")
        await early.answer("q1", choice("allow_former"))
        assert await asking.settled("q1") == ("selected", "allow_once", "editor")
        (answer,) = await eventually(lambda: asking.answers)
        assert answer.decision == "allow_once"
        told = [one.decided["q1"] for one in (early, late)]
        assert [one and one.option for one in told] == ["allow_once", "allow_once"]


async def test_running_worker_forgets_forbidden_former_mode(tmp_path: Path) -> None:
    async with rig(tmp_path, options=BYPASSING) as r:
        person = Person()
        asking = await planning(r, person)
        await forbid(r, asking.session)
        newest = modes_set(asking.channel)[-1]
        assert (newest.mode, newest.before_plan) == ("plan", "default")
        asking.ask("q1", plan=True, always="edits", former=BYPASS)  # it had asked before that
        await eventually(lambda: person.asked)
        assert person.asked[0].former == ""
        assert (await r.sessions.requests.list_pending())[0].request.former == ""


async def test_forbidden_mode_that_claude_reports_is_taken_back(tmp_path: Path) -> None:
    async with rig(tmp_path, options=BYPASSING) as r:
        asking = await planning(r)
        session, worker = asking.session, asking.channel
        told = await session.choosing.selection()
        await forbid(r, session)
        report(worker, ModeChanged(BYPASS), ConfigChanged(replace(told, mode=BYPASS)))

        async def is_taken_back() -> bool:
            logged = await r.journal.read(session.id, 0, 1000)
            modes = [e.mode for one in logged if isinstance(e := one.event, ModeChanged)]
            shown = [e.selection.mode for o in logged if isinstance(e := o.event, ConfigChanged)]
            return BYPASS in modes and modes[-1] == shown[-1] == "default"

        taken_back: bool = await eventually(is_taken_back)
        assert taken_back
        await eventually(lambda: modes_set(worker)[-1].mode == "default")
        session.cancel()
        await session.idle()
        await r.run(session, "say 1")
        options = r.launcher.launched[-1].spec.options
        assert options.permission_mode == "default"


async def test_worker_that_stays_in_forbidden_mode_is_ended(tmp_path: Path) -> None:
    async with rig(tmp_path, options=BYPASSING) as r:
        asking = await begin(r)
        session, worker = asking.session, asking.channel
        told = await session.choosing.selection()
        send = worker.send

        async def refuse(frame: ToWorker) -> None:
            await send(frame)
            if isinstance(frame, SetMode) and len(modes_set(worker)) < 5:
                report(worker, ModeChanged(BYPASS), ConfigChanged(replace(told, mode=BYPASS)))

        worker.send = refuse  # type: ignore[method-assign]
        await forbid(r, session)
        await eventually(lambda: asking.turn.ended.done() and not r.launcher.live)
        assert [one.mode for one in modes_set(worker)] == ["default", "default"]

        async def said() -> list[str]:
            logged = await r.journal.read(session.id, 0, 1000)
            return [e.text for one in logged if isinstance(e := one.event, Text) and e.note]

        await eventually(lambda: not session.reports)
        assert len([one for one in await said() if STAYS in one]) == 1
        await r.run(session, "say 1")
        assert r.launcher.launched[-1].spec.options.permission_mode == "default"


async def test_worker_that_leaves_each_forbidden_mode_stays(tmp_path: Path) -> None:
    """It says nothing when it does what it is told."""
    async with rig(tmp_path, options=BYPASSING) as r:
        asking = await begin(r)
        session, worker = asking.session, asking.channel
        await forbid(r, session)
        for _ in range(2):
            sent = len(modes_set(worker))
            report(worker, ModeChanged(BYPASS))
            await eventually(partial(lambda sent: len(modes_set(worker)) > sent, sent))
            await eventually(lambda: not session.reports)
            pass_loop_time(LEAVING + 1)
        assert modes_set(worker)[-1].mode == "default"
        assert r.launcher.live
        assert not asking.turn.ended.done()


async def test_forbidden_mode_is_left_while_nothing_is_readable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def locked(*_: object) -> None:
        raise StoreUnavailable(DatabaseState.LOCKED, "Another program keeps it locked.")

    async with rig(tmp_path, options=BYPASSING) as r:
        asking = await begin(r)
        session, worker = asking.session, asking.channel
        await forbid(r, session)
        sent = len(modes_set(worker))
        monkeypatch.setattr(r.journal, "offer", locked)
        report(worker, ModeChanged(BYPASS))
        await eventually(lambda: len(modes_set(worker)) > sent)
        assert modes_set(worker)[-1].mode == "default"
        monkeypatch.undo()
        session.cancel()
        await session.idle()
