"""Contract of `sessions.ports.TrustStore`."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from pykoclaw_acp.model.permissions import Settlement, Workspace
from tests.integration.journals import BOTH, Subject, prompt, request, subject

HOOKS = Workspace("/work/project", "hash", ("a hook",), {".claude/settings.json": "digest"})


@pytest.fixture(params=BOTH)
async def s(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Subject]:
    async with subject(request.param, tmp_path) as made:
        yield made


async def asked(s: Subject, *names: str) -> str:
    """A session whose waiting prompt has asked for trust."""
    session = await s.session()
    await s.journal.accept(prompt(session))
    for name in names:
        await s.journal.insert_request(session, request(name, epoch=0, n=0, workspaces=(HOOKS,)))
    return session


async def test_trust_reaches_below_a_directory(s: Subject) -> None:
    await s.journal.settle_workspaces(
        Settlement("none", "selected", answered_by="Zed"), [Workspace("/work", "hash")]
    )
    (row,) = await s.journal.trusted(["/work/project/deep", "/elsewhere"])
    assert (row.path, row.content, row.by, row.dotenv) == ("/work", "hash", "Zed", None)
    assert await s.journal.trusted(["/", "/workshop"]) == []
    assert await s.journal.trusted([]) == []


async def test_deciding_a_trust_request_trusts_with_it(s: Subject) -> None:
    session = await asked(s, "a")
    assert [one.request.workspaces for one in await s.journal.find_active(session)] == [(HOOKS,)]
    await s.journal.settle_workspaces(Settlement("a", "selected", "allow_always", "Zed"), [HOOKS])
    assert await s.journal.find_active(session) == []
    (row,) = await s.journal.trusted([HOOKS.path])
    assert (row.path, row.content, row.by) == (HOOKS.path, HOOKS.content, "Zed")
    assert row.files == HOOKS.files


async def test_digests_are_noted_where_there_are_none(s: Subject) -> None:
    others = Workspace("/work/project", "other", files={"kept": "digest"})
    for one in (replace(HOOKS, files={}), others):
        await s.journal.settle_workspaces(Settlement("none", "selected", answered_by="Zed"), [one])
    await s.journal.note_digests([HOOKS, replace(others, files={"new": "digest"})])
    await s.journal.note_digests([Workspace("/elsewhere", "hash", files={"a": "b"})])
    rows = await s.journal.trusted([HOOKS.path, "/elsewhere"])
    assert {one.content: one.files for one in rows} == {
        "hash": HOOKS.files,
        "other": others.files,
    }


async def test_questions_of_turn_are_found_newest_first(s: Subject) -> None:
    await asked(s, "a", "b", "c")
    await s.journal.settle(Settlement("a", "selected", "reject_once"))
    await s.journal.settle(Settlement("c", "cancelled"))
    found = await s.journal.trust_requests("turn")
    assert [(one.request.ask_id, one.outcome) for one in found] == [
        ("c", "cancelled"),
        ("b", None),
        ("a", "selected"),
    ]
    assert await s.journal.trust_requests("other") == []


async def test_requests_of_workers_are_no_trust_requests(s: Subject) -> None:
    session = await s.session()
    _, epoch = await s.running(session)
    await s.journal.record(session, epoch, [request("a", epoch=epoch)], {})
    await s.journal.settle(Settlement("a", "selected", "allow_once"))
    assert await s.journal.trust_requests("turn") == []


async def test_first_use_trust_yields_to_found_content(s: Subject) -> None:
    first = Workspace("/work", "")
    await s.journal.settle_workspaces(
        Settlement("none", "selected", answered_by="upgrade"), [first]
    )
    await s.journal.trust_first_use("/work", [HOOKS, Workspace("/work", "")])
    (row,) = await s.journal.trusted([HOOKS.path])
    assert (row.path, row.content, row.by) == (HOOKS.path, "hash", "upgrade")
