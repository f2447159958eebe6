"""Contract of `sessions.ports.LimitWaitStore`: a session that a usage limit has stopped goes on once,
and not after anybody has said otherwise.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from pykoclaw_acp.error_kinds import ErrorKind
from pykoclaw_acp.errors import Conflict, RowRefused
from pykoclaw_acp.model.events import Text, UserMessage
from pykoclaw_acp.model.failures import TurnFailure
from pykoclaw_acp.model.imports import ImportedPiece, TranscriptRow
from pykoclaw_acp.model.limit_waits import LimitWait, given_up
from pykoclaw_acp.model.turns import Outcome, PromptKeys, TurnState
from tests.integration.journals import (
    BOTH,
    CANCELLED,
    DONE,
    Subject,
    end,
    events,
    places,
    prompt,
    subject,
)
from tests.integration.programs import TASK

FAILED = Outcome(
    TurnState.FAILED,
    failure=TurnFailure(ErrorKind.USAGE_LIMIT, "Reached.", 429, resets_at=1000),
    goes_on_at=1000,
)


@pytest.fixture(params=BOTH)
async def s(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Subject]:
    async with subject(request.param, tmp_path) as made:
        yield made


async def waiting(s: Subject) -> LimitWait:
    """A session that waits."""
    session = await s.session()
    _, epoch = await s.running(session)
    await s.journal.record(session, epoch, [end(epoch, 2, "turn")], {"turn": FAILED})
    wait = LimitWait(session, "turn", 1000)
    assert await s.journal.limit_waits() == [wait]
    assert await s.journal.limit_wait(session) == wait
    ((_, outcome),) = await s.journal.ended_turns(session, "request_key", "front:turn")
    assert outcome.failure is not None
    assert outcome.failure.resets_at == 1000
    return wait


async def test_continuing_turn_ends_wait_and_is_accepted_once(s: Subject) -> None:
    wait = await waiting(s)
    keys = PromptKeys(request=wait.request_key)
    await s.journal.accept(prompt(wait.session_id, "next", keys=keys))
    assert await s.journal.limit_waits() == []
    for again in ("next", "other"):
        with pytest.raises((Conflict, RowRefused)):
            await s.journal.accept(prompt(wait.session_id, again, keys=replace(keys)))


async def test_persons_prompt_ends_wait_and_tasks_does_not(s: Subject) -> None:
    wait = await waiting(s)
    await s.others.schedule(TASK)
    await s.journal.accept(prompt(wait.session_id, "task", task_id=TASK.id))
    assert await s.journal.limit_waits() == [wait]
    await s.journal.accept(prompt(wait.session_id, "mine"))
    assert await s.journal.limit_waits() == []
    keys = PromptKeys(request=wait.request_key)
    with pytest.raises(Conflict):
        await s.journal.accept(prompt(wait.session_id, "next", keys=keys))


@pytest.mark.parametrize("ends", ["answered", "cancelled"])
@pytest.mark.parametrize("by", ["person", "answer"])
async def test_answer_to_persons_later_prompt_ends_wait(s: Subject, ends: str, by: str) -> None:
    """It waited behind the turn that the limit has stopped; nobody has prompted since."""
    session = await s.session()
    _, epoch = await s.running(session)
    keys = PromptKeys("front:next", fingerprint="words" if by == "person" else None)
    await s.journal.accept(prompt(session, "next", keys=keys))
    await s.journal.record(session, epoch, [end(epoch, 2, "turn")], {"turn": FAILED})
    outcome = DONE if ends == "answered" else CANCELLED
    await s.journal.record(session, epoch, [end(epoch, 3, "next")], {"next": outcome})
    goes_on = (by, ends) != ("person", "answered")
    assert [one.turn_id for one in await s.journal.limit_waits()] == ["turn"] * goes_on


@pytest.mark.parametrize("prompted", [False, True])
async def test_failed_retry_waits_again_unless_person_prompted(s: Subject, prompted: bool) -> None:
    wait = await waiting(s)
    session = wait.session_id
    await s.journal.accept(prompt(session, "next", keys=PromptKeys(request=wait.request_key)))
    if prompted:
        await s.journal.accept(prompt(session, "mine"))
    await s.journal.finish(session, "next", replace(FAILED, goes_on_at=2000, tries=1), [])
    again = LimitWait(session, "next", 2000, 1)
    assert again.request_key != LimitWait(session, "next", 2000).request_key
    assert await s.journal.limit_waits() == ([] if prompted else [again])
    assert await s.journal.limit_wait(session) == (None if prompted else again)
    if not prompted:
        keys = PromptKeys(request=again.request_key)
        await s.journal.accept(prompt(session, "once more", keys=keys))
        assert await s.journal.limit_waits() == []


async def test_wait_is_given_up_once_and_logged(s: Subject) -> None:
    wait = await waiting(s)
    said = given_up(wait.turn_id)
    assert await s.journal.give_up_limit_wait(wait, said) is not None
    assert await s.journal.give_up_limit_wait(wait, said) is None
    assert (await s.texts(wait.session_id)).count("no longer waits") == 1
    assert await s.journal.limit_waits() == []


@pytest.mark.parametrize(
    ("origin", "rests"), [("terminal", True), ("whatsapp", True), ("scheduler", False)]
)
async def test_imported_persons_prompt_ends_wait(s: Subject, origin: str, rests: bool) -> None:
    wait = await waiting(s)
    said = UserMessage("t1", {"type": "text", "text": "Never mind."}, origin)
    row = TranscriptRow("claude", "/t/claude.jsonl", 100, 1, 1, 80, "{}", "t1", related=True)
    piece = ImportedPiece(row, [("e1:0", said), ("e2:0", Text("a", "Fine."))])
    logged = await s.imports.commit_piece(wait.session_id, piece)
    note = given_up(wait.turn_id) if rests else []
    assert [one.event for one in logged] == [said, Text("a", "Fine."), *note]
    read = (await s.journal.read(wait.session_id, 0, 100))[-len(logged) :]
    assert (events(logged), places(logged)) == (events(read), places(read))
    assert await s.journal.limit_waits() == ([] if rests else [wait])
    more = await s.imports.commit_piece(wait.session_id, replace(piece, events=[("e3:0", said)]))
    assert [one.event for one in more] == [said], "it is said once"


async def test_a_closed_session_waits_for_nothing(s: Subject) -> None:
    wait = await waiting(s)
    await s.journal.mark_closed(wait.session_id)
    assert await s.journal.limit_waits() == []
