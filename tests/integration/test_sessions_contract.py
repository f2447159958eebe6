"""Contract of `sessions.ports.SessionStore`."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from pykoclaw_acp.errors import Conflict, RowRefused
from pykoclaw_acp.model.away import AwayPolicy
from pykoclaw_acp.model.events import BY_WORDS, Text, TitleChanged, note_event
from pykoclaw_acp.model.permissions import Settlement, Workspace
from pykoclaw_acp.model.session_environment import StoredEnvironment
from pykoclaw_acp.model.session_options import SessionOptions
from pykoclaw_acp.model.turns import Outcome, SessionRecord, Turn, TurnState
from tests.integration.journals import BOTH, DONE, Subject, end, events, prompt, request, subject


@pytest.fixture(params=BOTH)
async def s(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Subject]:
    async with subject(request.param, tmp_path) as made:
        yield made


def later(s: Subject) -> int:
    """A moment after all that was done, on the own clock."""
    return s.journal.clock.now() + 1


async def test_a_session_is_found_as_it_was_created(s: Subject) -> None:
    record = SessionRecord(
        "one", "acp-one", "/work", ("/more",), model="opus", request_key="f:1", client="Mitto"
    )
    await s.journal.create(record)
    assert await s.journal.find("one") == replace(record, request_key=None, client=None)
    assert await s.journal.find_created("f:1") == "one"
    assert await s.journal.find("two") is None
    assert await s.journal.find_created("f:2") is None


async def test_account_and_environment_stay_until_others_are_given(s: Subject) -> None:
    given = StoredEnvironment("work", {"MAX_THINKING_TOKENS": "1"}, ("ANTHROPIC_API_KEY",))
    record = SessionRecord("one", "acp-one", "/work", mode="plan", environment=given)
    await s.journal.create(record)
    assert await s.journal.find("one") == record
    for other in (StoredEnvironment("work"), StoredEnvironment(), given):
        await s.journal.reopen(replace(record, environment=other))
        found = await s.journal.find("one")
        assert found is not None
        assert found.environment == other


async def test_ids_names_and_request_keys_are_given_once(s: Subject) -> None:
    await s.session("one", request_key="f:1")
    for refused in (
        SessionRecord("one", "acp-other", "/"),
        SessionRecord("two", "acp-one", "/"),
        SessionRecord("two", "acp-two", "/", request_key="f:1"),
    ):
        with pytest.raises(RowRefused):
            await s.journal.create(refused)
    assert await s.journal.find("two") is None
    assert await s.journal.name_taken("acp-one")
    assert not await s.journal.name_taken("acp-two")


async def test_requests_of_sessions_and_turns_are_taken(s: Subject) -> None:
    session = await s.session("one", request_key="f:1")
    await s.journal.accept(prompt(session, "turn"))
    assert await s.journal.was_taken("f:1")
    assert await s.journal.was_taken("front:turn")
    assert not await s.journal.was_taken("f:2")


async def test_options_and_steering_are_kept(s: Subject) -> None:
    session = await s.session()
    for steers in (True, False):
        options = SessionOptions(max_turns=3) if steers else SessionOptions()
        await s.journal.set_steering(session, steers=steers)
        await s.journal.append(session, [], options=options)
        found = await s.journal.find(session)
        assert found is not None
        assert (found.steers, found.options) == (steers, options)


async def test_closing_and_reopening_are_kept(s: Subject) -> None:
    session = await s.session()
    await s.journal.mark_closed(session)
    found = await s.journal.find(session)
    assert found is not None
    assert found.closed
    await s.journal.reopen(replace(found, additional_directories=("/b",)))
    assert await s.journal.find(session) == replace(
        found, closed=False, additional_directories=("/b",)
    )


async def test_reopening_is_told_with_one_commit(s: Subject) -> None:
    session = await s.session()
    await s.journal.append(session, [Text("a", "Hello.")])
    found = await s.journal.find(session)
    assert found is not None
    moved = [note_event("moved-1", "It continues elsewhere.")]
    assert await s.journal.reopen(replace(found, cwd="/new"), moved) == [2]
    assert events(await s.journal.read(session, 1, 9)) == moved
    assert await s.journal.reopen(found) == []


async def test_nonexistent_session_cannot_be_changed(s: Subject) -> None:
    for change in (
        s.journal.mark_closed("none"),
        s.journal.reopen(SessionRecord("none", "acp-none", "/")),
        s.journal.set_away_policy("none", AwayPolicy.DENY),
        s.journal.set_steering("none", steers=True),
        s.journal.delete("none"),
    ):
        with pytest.raises(Conflict):
            await change


async def test_its_own_away_policy_is_kept(s: Subject) -> None:
    session = await s.session()
    await s.journal.set_away_policy(session, AwayPolicy.PARK)
    found = await s.journal.find(session)
    assert found is not None
    assert found.away_policy == "park"
    await s.journal.set_away_policy(session, None)
    found = await s.journal.find(session)
    assert found is not None
    assert found.away_policy is None


async def test_a_deleted_session_is_never_found_again(s: Subject) -> None:
    session = await s.session(request_key="f:1")
    await s.ended(session, "turn")
    await s.journal.append(session, [Text("m", "secret")])
    await s.journal.delete(session)
    assert await s.journal.find(session) is None
    assert await s.journal.find_created("f:1") is None
    assert await s.journal.read(session, 0, 100) == []
    assert await s.state(session, "turn") is None
    assert await s.journal.name_taken("acp-one"), "its name is not given again"
    with pytest.raises(RowRefused):
        await s.session(session)


async def test_only_sessions_that_nobody_prompted_are_unused(s: Subject) -> None:
    await s.session("never")
    await s.session("helper")
    helper = prompt("helper", "a", client="Mitto")
    helper.helper = True
    await s.journal.accept(helper)
    await s.session("person")
    await s.ended("person", "b")
    assert await s.journal.unused(later(s)) == ["never"], "a turn of the helper waits"
    await s.journal.delete("never")
    await s.journal.record(
        "helper", 0, [end(0, 1, "a")], {"a": (await s.journal.finish("helper", "a", DONE, []))[0]}
    )
    assert await s.journal.unused(later(s)) == ["helper"]
    assert await s.journal.unused(0) == []


async def test_session_with_pending_request_is_in_use(s: Subject) -> None:
    session = await s.session()
    await s.journal.insert_request(
        session, request("a", epoch=0, n=0, workspaces=(Workspace("/work", "hash"),))
    )
    assert await s.journal.unused(later(s)) == []
    assert not await s.journal.prune(session, later(s))
    await s.journal.settle(Settlement("a", "cancelled"))
    assert await s.journal.unused(later(s)) == [session]


async def test_title_that_comes_with_an_end_is_kept(s: Subject) -> None:
    session = await s.session()
    turn = Turn("turn", session, [{"type": "text", "text": "Hello"}])
    await s.journal.accept(turn)
    ended = Outcome(TurnState.CANCELLED, "cancelled")
    await s.journal.finish(session, turn.turn_id, ended, [TitleChanged("Hello", BY_WORDS)])
    found = await s.journal.find(session)
    assert found is not None
    assert (found.title, found.title_by) == ("Hello", BY_WORDS)


async def test_pruned_session_is_empty_and_can_be_reopened(s: Subject) -> None:
    session = await s.session()
    await s.journal.append(session, [TitleChanged("A title", BY_WORDS), Text("m", "old")])
    assert await s.journal.prune(session, later(s))
    found = await s.journal.find(session)
    assert found is not None
    assert (found.last_seq, found.pruned_upto) == (2, 2)
    assert (found.title, found.title_by) == ("A title", BY_WORDS)
    assert await s.journal.read(session, 0, 100) == []
    assert not await s.journal.prune(session, later(s)), "once"
    assert await s.journal.unused(later(s)) == []
    assert await s.journal.append(session, [Text("m", "new")]) == [3], "no seq is given twice"
    await s.journal.reopen(found)
    assert await s.journal.unused(later(s)) == [session]


async def test_session_prompted_meanwhile_is_not_pruned(s: Subject) -> None:
    session = await s.session()
    await s.ended(session, "turn")
    assert not await s.journal.prune(session, later(s))
    assert not await s.journal.prune("none", later(s))
    assert await s.state(session, "turn") == "done"


async def test_inherited_end_is_that_before_first_write(s: Subject) -> None:
    session = await s.session()
    assert await s.journal.inherited_end(session) is None
    for _ in range(2):
        await s.journal.append(session, [Text("m", "new"), Text("m", " words")])
        assert await s.journal.inherited_end(session) == 0
    assert await s.journal.inherited_end("none") is None


async def test_seq_is_unchanged_without_merged_logs(s: Subject) -> None:
    assert await s.journal.current_seq(await s.session(), 7) == 7
