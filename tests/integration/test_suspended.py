"""A client that drops what it is sent of a session, and resumes it on the same connection."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pykoclaw_acp.model.events import Text
from tests.integration.linked import Front, front, new, words
from tests.integration.rig import Rig, rig
from tests.waiting import eventually


def named(name: str) -> dict[str, Any]:
    return {"initialize": {"protocolVersion": 1, "clientInfo": {"name": name, "version": "1"}}}


async def tell(r: Rig, one: Front, session: str, text: str) -> None:
    """Something comes that the client has not asked for."""
    found = await r.sessions.find(session)
    assert found is not None
    await found.log.tell([Text(f"other {text}", f"{text}\n\n")])
    await eventually(lambda: text in one.text())


async def resume(r: Rig, one: Front, number: int, session: str) -> None:
    """Returns when what follows the answer was sent."""
    await one.result(number, "session/resume", sessionId=session, cwd="/")
    found = await r.sessions.find(session)
    assert found is not None
    (subscription,) = found.subscriptions
    await subscription.reached(found.last_seq)


@pytest.mark.parametrize(("name", "times"), [("mitto", 2), ("unknown", 2), ("editor", 1)])
async def test_suspending_client_is_shown_what_it_dropped(
    tmp_path: Path, name: str, times: int
) -> None:
    async with rig(tmp_path) as r, front(r, **named(name)) as one:
        session = await new(one)
        await one.result(2, "session/prompt", **words(session, "say 1"))
        one.say("done 2")
        said = one.text()
        await tell(r, one, session, "The job is done.")
        for number in (3, 4):  # the second time it has all of it
            await resume(r, one, number, session)
            assert one.text() == said + "The job is done.\n\n" * times
        await tell(r, one, session, "And another.")
        await resume(r, one, 5, session)
        assert one.text().count("And another.") == times


async def test_resume_repeats_no_answer_to_a_prompt(tmp_path: Path) -> None:
    async with rig(tmp_path) as r, front(r, **named("mitto")) as one:
        session = await new(one)
        await tell(r, one, session, "Before.")
        await one.result(2, "session/prompt", **words(session, "say 9"))
        said = one.text()
        await resume(r, one, 3, session)  # before the answer is confirmed
        one.say("done 2")
        await resume(r, one, 4, session)
        one.call(5, "session/prompt", **words(session, "hang"))
        await eventually(lambda: r.launcher.live and len(r.launcher.live[0].prompts) == 2)
        await resume(r, one, 6, session)
        assert one.text() == said
