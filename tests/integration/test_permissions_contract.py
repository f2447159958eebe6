"""Contract of `sessions.ports.PermissionStore`: the first settlement counts, and a parked request
is used once.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from pykoclaw_acp.channel.frames import AskWithdrawn
from pykoclaw_acp.errors import Conflict
from pykoclaw_acp.model.events import Text
from pykoclaw_acp.model.permissions import Deadline, RequestPolicy, Settlement
from tests.integration.journals import BOTH, CANCELLED, DONE, Subject, end, prompt, request, subject

ALLOWED: dict[str, Any] = {"outcome": "selected", "option_id": "allow_once", "answered_by": "Zed"}


@pytest.fixture(params=BOTH)
async def s(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Subject]:
    async with subject(request.param, tmp_path) as made:
        yield made


async def asked(s: Subject, *names: str) -> tuple[str, int]:
    """A running turn whose worker has asked for these."""
    session = await s.session()
    _, epoch = await s.running(session)
    await s.journal.record(
        session, epoch, [request(name, epoch=epoch, n=2 + n) for n, name in enumerate(names)], {}
    )
    return session, epoch


async def test_pending_requests_are_found_the_oldest_first(s: Subject) -> None:
    session, _ = await asked(s, "b", "a")
    found = await s.journal.find_active(session)
    assert [one.request.ask_id for one in found] == ["b", "a"]
    assert (found[0].session_id, found[0].turn_id, found[0].policy) == (session, "turn", "attended")
    assert found[0].request == request("b", n=2)
    assert await s.journal.find_active("other") == []
    assert len(await s.journal.find_active()) == 2
    assert await s.journal.is_pending("a")
    assert not await s.journal.is_pending("nothing")


async def test_the_first_settlement_counts(s: Subject) -> None:
    session, _ = await asked(s, "a", "b")
    await s.journal.settle(Settlement("a", **ALLOWED, content={"name": "value"}))
    await s.journal.settle(Settlement("a", "denied", answered_by="policy"))
    (row,) = await s.journal.find_settled(["a", "b", "nothing"])
    assert (row.outcome, row.option, row.answered_by) == ("selected", "allow_once", "Zed")
    assert row.content == {"name": "value"}
    assert [one.request.ask_id for one in await s.journal.find_active(session)] == ["b"]
    assert not await s.journal.is_pending("a")
    assert await s.journal.find_settled([]) == []


async def test_rules_last_with_the_settlement_that_counts(s: Subject) -> None:
    await asked(s, "a", "b")
    rules = ("Bash(make)", "WebSearch")
    lasting: dict[str, Any] = {**ALLOWED, "option_id": "allow_lasting"}
    await s.journal.settle(Settlement("a", **ALLOWED))
    await s.journal.settle(Settlement("a", **lasting, rules=("Bash(late)",), path="/p"))
    await s.journal.settle(Settlement("b", **lasting, rules=rules, path="/p"))
    assert await s.journal.rules("/p", "other") == ("Bash(make)", "WebSearch")
    assert await s.journal.rules("/p/below", "other") == ()


async def test_session_rules_hold_there_until_it_is_deleted(s: Subject) -> None:
    session, _ = await asked(s, "a", "b")
    always: dict[str, Any] = {**ALLOWED, "option_id": "allow_always"}
    await s.journal.settle(Settlement("a", **ALLOWED))
    await s.journal.settle(Settlement("a", **always, rules=("Bash(late)",)))
    await s.journal.settle(Settlement("b", **always, rules=("WebSearch", "Bash(make)")))
    assert await s.journal.rules("/p", session) == ("Bash(make)", "WebSearch")
    assert await s.journal.rules("/p", await s.session("two")) == ()
    await s.journal.delete(session)
    assert await s.journal.rules("/p", session) == ()


async def test_a_withdrawn_request_is_not_pending(s: Subject) -> None:
    session, epoch = await asked(s, "a")
    await s.journal.record(session, epoch, [AskWithdrawn(epoch=epoch, n=3, ask_id="a")], {})
    (row,) = await s.journal.find_settled(["a"])
    assert row.outcome == "withdrawn"


async def test_pending_requests_clock_can_be_set(s: Subject) -> None:
    session, _ = await asked(s, "a")
    await s.journal.set_clock("a", RequestPolicy.DENY, Deadline(5000, 70))
    (row,) = await s.journal.find_active(session)
    assert (row.policy, row.deadline, row.deadline_clock) == ("deny", 5000, 70)
    await s.journal.set_clock("a", RequestPolicy.ATTENDED, None)
    (row,) = await s.journal.find_active(session)
    assert (row.policy, row.deadline, row.deadline_clock) == ("attended", None, None)
    await s.journal.settle(Settlement("a", "timeout"))
    await s.journal.set_clock("a", RequestPolicy.DENY, Deadline(1, 1))
    (row,) = await s.journal.find_settled(["a"])
    assert row.policy == "attended"


async def test_a_parked_request_outlives_its_worker(s: Subject) -> None:
    session, epoch = await asked(s, "a")
    await s.journal.set_clock("a", RequestPolicy.PARK, Deadline(5000, 70))
    assert await s.journal.park(session, request("a"), [Text("m", "It waits.")]) == [1]
    await s.journal.record(session, epoch, [AskWithdrawn(epoch=epoch, n=3, ask_id="a")], {})
    await s.journal.set_clock("a", RequestPolicy.DENY, Deadline(1, 1))
    (row,) = await s.journal.find_active(session)
    assert (row.policy, row.deadline, row.deadline_clock, row.outcome) == (
        "parked",
        None,
        None,
        None,
    )
    assert await s.texts(session) == "It waits."


async def test_a_settled_request_cannot_be_parked(s: Subject) -> None:
    session, _ = await asked(s, "a")
    await s.journal.settle(Settlement("a", **ALLOWED))
    with pytest.raises(Conflict):
        await s.journal.park(session, request("a"), [Text("m", "not said")])
    assert await s.texts(session) == ""


async def test_answer_to_parked_request_queues_turn_once(s: Subject) -> None:
    session, epoch = await asked(s, "a")
    await s.journal.park(session, request("a"), [])
    await s.journal.record(session, epoch, [end(epoch, 3, "turn")], {"turn": CANCELLED})
    await s.journal.answer_parked(Settlement("a", **ALLOWED), prompt(session, "next"))
    (row,) = await s.journal.find_active(session)
    assert (row.outcome, row.turn_id, row.policy) == ("selected", "next", "parked")
    assert await s.journal.find_settled(["a"]) == [], "its decision went to another turn"
    with pytest.raises(Conflict):
        await s.journal.answer_parked(Settlement("a", "cancelled"), prompt(session, "again"))
    assert [*await s.journal.turns_of_front(session, "front")] == ["turn", "next"]


async def test_only_parked_request_is_answered_by_turn(s: Subject) -> None:
    session, _ = await asked(s, "a")
    with pytest.raises(Conflict):
        await s.journal.answer_parked(Settlement("a", **ALLOWED), prompt(session, "next"))
    assert await s.journal.is_pending("a")
    assert [*await s.journal.turns_of_front(session, "front")] == ["turn"]


async def test_decision_is_consumed_by_its_call(s: Subject) -> None:
    session, _ = await asked(s, "a", "same")
    await s.journal.park(session, request("a"), [])
    await s.journal.answer_parked(Settlement("a", **ALLOWED), prompt(session, "next"))
    await s.journal.settle(Settlement("same", **ALLOWED), used="a")
    assert await s.journal.find_active(session) == []


async def test_decision_ends_with_turn_that_continues_with_it(s: Subject) -> None:
    session, _ = await asked(s, "a")
    await s.journal.park(session, request("a"), [])
    await s.journal.answer_parked(Settlement("a", **ALLOWED), prompt(session, "next"))
    await s.journal.finish(session, "next", DONE, [])
    assert await s.journal.find_active(session) == []


async def test_requests_are_found_by_id_prefix(s: Subject) -> None:
    await asked(s, "a1", "a2", "a3", "b1")
    await s.journal.settle(Settlement("a3", "cancelled"))
    assert [one.request.ask_id for one in await s.journal.find_by_prefix("a")] == ["a2", "a1", "a3"]
    assert [one.request.ask_id for one in await s.journal.find_by_prefix("a1")] == ["a1"]
    assert await s.journal.find_by_prefix("c") == []


async def test_at_most_twenty_requests_match(s: Subject) -> None:
    await asked(s, *(f"a{n}" for n in range(25)))
    assert len(await s.journal.find_by_prefix("a")) == 20


async def test_requests_of_a_deleted_session_are_gone(s: Subject) -> None:
    session, _ = await asked(s, "a")
    await s.journal.delete(session)
    assert await s.journal.find_active() == []
    assert not await s.journal.is_pending("a")
