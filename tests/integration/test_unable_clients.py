"""Forms of MCP servers while only clients that cannot show them are there; on workers in memory."""

from __future__ import annotations

from pathlib import Path

import pytest

from pykoclaw_acp.model.permissions import Form
from tests.integration.asking import LONG, Asking, Person, begin, rig
from tests.integration.callers import Caller, caller
from tests.integration.forms import ADA, FORM, PAGE, given, person_asked
from tests.waiting import eventually, pass_loop_time


def leave(asking: Asking, person: Person) -> None:
    next(place for place in asking.session.subscriptions if place.client is person).close()


@pytest.mark.parametrize("policy", ["wait", "park", "deny", "allow"])
@pytest.mark.parametrize("form", [FORM, PAGE])
async def test_form_ends_with_last_client_that_shows_it(
    tmp_path: Path, policy: str, form: Form
) -> None:
    async with rig(tmp_path, policy, 1000 * LONG, LONG) as r:
        able, plain = Person("able", forms=True, pages=True), Person("plain")
        asking = await begin(r, able, plain)
        asking.ask("q1", form=form)
        await person_asked(able)
        leave(asking, able)
        await asking.away("q1")
        pass_loop_time(LONG + 1)
        assert await asking.settled("q1") == ("unsupported", None, None)
        assert await given(asking) == ("cancel", None)
        assert plain.asked == []


async def test_form_waits_for_client_that_reconnects(tmp_path: Path) -> None:
    async with rig(tmp_path, grace=LONG) as r:
        asking = await begin(r, able := Person("able", forms=True), Person("plain"))
        asking.ask("q1", form=FORM)
        await person_asked(able)
        leave(asking, able)
        await asking.away("q1")
        back = Person("back", forms=True)
        asking.session.subscribe(back, 0)
        await person_asked(back)
        pass_loop_time(2 * LONG)
        await back.answer("q1", ADA)
        assert await asking.settled("q1") == ("accept", None, "back")


async def test_waiting_form_ends_with_client_without_forms(tmp_path: Path) -> None:
    async with rig(tmp_path, timeout=1000 * LONG, grace=LONG) as r:
        asking = await begin(r)
        asking.ask("q1", form=FORM)
        await asking.away("q1")
        asking.session.subscribe(Person("plain"), 0)
        pass_loop_time(LONG + 1)
        assert await asking.settled("q1") == ("unsupported", None, None)


async def test_form_waits_on_once_nobody_is_there(tmp_path: Path) -> None:
    async with rig(tmp_path, timeout=1000 * LONG, grace=LONG) as r:
        asking = await begin(r, able := Person("able", forms=True), plain := Person("plain"))
        asking.ask("q1", form=FORM)
        await person_asked(able)
        leave(asking, able)
        leave(asking, plain)
        await asking.times_out_in("q1", 1000 * LONG)


async def attach(asking: Asking, cli: Caller) -> None:
    """Follow in a terminal, where a form can be declined and no more."""
    already = len(asking.session.subscriptions)
    cli.begin("follow", session=asking.session.id, live=True, present=True)
    await eventually(lambda: len(asking.session.subscriptions) > already)


@pytest.mark.parametrize("form", [FORM, PAGE])
async def test_form_does_not_wait_for_a_terminal(tmp_path: Path, form: Form) -> None:
    async with rig(tmp_path, timeout=1000 * LONG, grace=LONG) as r, caller(r, tmp_path) as cli:
        asking = await begin(r, Person("plain"))
        await attach(asking, cli)
        asking.ask("q1", form=form)
        assert await asking.settled("q1") == ("unsupported", None, None)
        assert await given(asking) == ("cancel", None)


@pytest.mark.parametrize("leaves", [False, True])
async def test_terminal_stops_no_policy_for_forms(tmp_path: Path, *, leaves: bool) -> None:
    """It is shown the form, and comes and goes as if it had not been there."""
    async with rig(tmp_path, timeout=1000 * LONG, grace=LONG) as r, caller(r, tmp_path) as cli:
        asking = await begin(r)
        asking.ask("q1", form=FORM)
        deadline = await asking.away("q1")
        await attach(asking, cli)
        await eventually(lambda: cli.told("question"))
        assert await asking.deadline("q1") == deadline
        if leaves:
            await cli.leave()
            await eventually(lambda: not asking.session.subscriptions)
        await asking.times_out_in("q1", 1000 * LONG)


async def test_form_is_declined_in_a_terminal(tmp_path: Path) -> None:
    """It is shown there beside a client that can fill it in, and when that has left."""
    async with rig(tmp_path, timeout=1000 * LONG, grace=LONG) as r, caller(r, tmp_path) as cli:
        asking = await begin(r, able := Person("able", forms=True))
        await attach(asking, cli)
        asking.ask("q1", form=FORM)
        await person_asked(able)
        await eventually(lambda: cli.told("question"))
        leave(asking, able)
        await asking.away("q1")
        assert cli.told("settled") == []
        await cli.call("questions/answer", question="q1", decision="deny")
        assert await asking.settled("q1") == ("decline", None, "cli")


async def test_form_ends_although_terminal_leaves(tmp_path: Path) -> None:
    async with rig(tmp_path, timeout=1000 * LONG, grace=LONG) as r, caller(r, tmp_path) as cli:
        asking = await begin(r, able := Person("able", forms=True), Person("plain"))
        await attach(asking, cli)
        asking.ask("q1", form=FORM)
        await person_asked(able)
        leave(asking, able)
        await asking.away("q1")
        await cli.leave()
        await eventually(lambda: len(asking.session.subscriptions) == 1)
        pass_loop_time(LONG + 1)
        assert await asking.settled("q1") == ("unsupported", None, None)
