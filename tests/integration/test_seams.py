"""A plain `session/resume` inside of a message: what a client is shown is Markdown by itself."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pykoclaw_acp.model.seams import CONTINUED
from tests.integration.client_windows import Windows, resume, seen, windows
from tests.integration.linked import INITIALIZE, Front, new, until_there_is, words
from tests.integration.memory_launcher import MemoryChannel
from tests.waiting import eventually

MITTO: dict[str, Any] = {
    "initialize": {"protocolVersion": 1, "clientInfo": {"name": "mitto", "version": "1"}}
}
EDITOR: dict[str, Any] = {"initialize": INITIALIZE}


def chunks(one: Front) -> list[dict[str, Any]]:
    """Messages of the agent that the front's client got, in order."""
    lines = [rest[rest.index("{") :] for kind, rest in one.heard if kind in ("update", "notify")]
    updates = [json.loads(line).get("params", {}).get("update", {}) for line in lines]
    return [one for one in updates if one.get("sessionUpdate") == "agent_message_chunk"]


def text(one: Front) -> str:
    return "".join(chunk["content"]["text"] for chunk in chunks(one))


async def begun(w: Windows, one: Front, *said: str) -> tuple[str, MemoryChannel, str]:
    """A session in whose turn this was said, its worker, and the turn."""
    session = await new(one)
    one.call(2, "session/prompt", **words(session, "hang"))
    launcher = w.r.launcher
    await eventually(lambda: launcher.launched and launcher.launched[-1].acked)
    await until_there_is(w.r, "state = 'running'")
    [(turn,)] = await w.r.database.read("SELECT turn_id FROM acp_turns")
    for part in said:
        launcher.launched[-1].say(launcher.launched[-1].event(turn, part))
    await eventually(lambda: text(one) == "".join(said))
    return session, launcher.launched[-1], turn


async def last(w: Windows, session: str) -> int:
    return (await w.r.sessions.get(session)).last_seq


@pytest.mark.parametrize("lives", [False, True], ids=["dead", "alive"])
async def test_open_block_begins_again_if_mitto_lost_it(tmp_path: Any, lives: bool) -> None:
    async with windows(tmp_path) as w:
        first = await w.open(1, **MITTO)
        session, worker, turn = await begun(w, first, "Look:\n\n```py\none\n", "two")
        await seen(w, first, await last(w, session))
        if lives:
            await first.leave()
        else:
            await w.die(1, first)
        worker.say(worker.event(turn, "\nthree\n"))
        second = await w.open(1 if lives else 2, **MITTO)
        await resume(second, session)
        worker.say(worker.event(turn, "```\nDone.\n"))
        again = "```py\n" if lives else CONTINUED + "```py\none\ntwo"
        rest = "\nthree\n```\nDone.\n"
        await eventually(lambda: text(second) == again + rest)
        assert len({chunk["messageId"] for chunk in chunks(second)}) == 1
        assert chunks(second)[0]["messageId"] != chunks(first)[0]["messageId"]


async def test_the_open_paragraph_begins_again_for_mitto(tmp_path: Any) -> None:
    """It keeps one when it is over."""
    async with windows(tmp_path) as w:
        first = await w.open(1, **MITTO)
        session, worker, turn = await begun(w, first, "Look:\n\nA long\npara", "graph has")
        await seen(w, first, await last(w, session))
        await w.die(1, first)
        worker.say(worker.event(turn, " begun"))
        second = await w.open(2, **MITTO)
        await resume(second, session)
        worker.say(worker.event(turn, " and ends.\n\nDone.\n"))
        again = f"{CONTINUED}A long\nparagraph has begun and ends.\n\nDone.\n"
        await eventually(lambda: text(second) == again)


@pytest.mark.parametrize("gave_up", [False, True], ids=["load", "resume, then load"])
async def test_mitto_gets_after_replay_what_it_lost(tmp_path: Any, gave_up: bool) -> None:
    """It drops what comes before the answer; and a resume for which it did not wait."""
    async with windows(tmp_path) as w:
        first = await w.open(1, **MITTO)
        session, worker, turn = await begun(w, first, "Look:\n\n```py\none\n", "two")
        await seen(w, first, await last(w, session))
        await w.die(1, first)
        worker.say(worker.event(turn, "\nthree\n"))
        second = await w.open(2, **MITTO)
        if gave_up:
            await resume(second, session)
            await eventually(lambda: "three" in text(second))
        await second.result(9, "session/load", sessionId=session, cwd="/", mcpServers=[])
        dropped = len(text(second))
        worker.say(worker.event(turn, "```\nDone.\n"))
        rest = f"{CONTINUED}```py\none\ntwo\nthree\n```\nDone.\n"
        await eventually(lambda: text(second)[dropped:] == rest)


async def test_client_keeping_what_it_saw_gets_markdown_rest(
    tmp_path: Any,
) -> None:
    async with windows(tmp_path) as w:
        first = await w.open(1, **EDITOR)
        session, worker, turn = await begun(w, first, "1. An item\n   ```sh\n   one\n")
        await seen(w, first, await last(w, session))
        await w.die(1, first)
        second = await w.open(2, **EDITOR)
        await resume(second, session)
        worker.say(worker.event(turn, "   two\n   ```\n"))
        await eventually(lambda: text(second) == "1. ```sh\n   two\n   ```\n")


async def test_client_naming_its_place_gets_exact_rest(tmp_path: Any) -> None:
    async with windows(tmp_path) as w:
        first = await w.open(1, **MITTO)
        session, worker, turn = await begun(w, first, "```py\none\n")
        place = await last(w, session)
        await w.die(1, first)
        second = await w.open(2, **MITTO)
        await resume(second, session, _meta={"pykoclaw.dev/after": place})
        worker.say(worker.event(turn, "two\n```\n"))
        await eventually(lambda: text(second) == "two\n```\n")
        assert chunks(second)[0]["messageId"] == chunks(first)[0]["messageId"]


async def test_answered_turn_is_not_repeated(tmp_path: Any) -> None:
    async with windows(tmp_path) as w:
        first = await w.open(1, **MITTO)
        session, worker, turn = await begun(w, first, "A paragraph")
        worker.say(worker.ended(turn))
        await first.answer(2)
        first.say("done 2")
        await until_there_is(w.r, "answered_at IS NOT NULL")
        await seen(w, first, await last(w, session))
        await w.die(1, first)
        await w.r.run(await w.r.sessions.get(session), "say 1")
        second = await w.open(2, **MITTO)
        await resume(second, session)
        await eventually(lambda: text(second).endswith("\n\n"))
        assert "A paragraph" not in text(second)


async def test_turns_last_words_repeat_if_end_was_untold(
    tmp_path: Any,
) -> None:
    """The client was killed between the last words and the answer."""
    async with windows(tmp_path) as w:
        first = await w.open(1, **MITTO)
        session, worker, turn = await begun(w, first, "The first.\n\n", "- a\n- b\n")
        await seen(w, first, await last(w, session))
        await w.die(1, first)
        worker.say(worker.ended(turn))
        await until_there_is(w.r, "state = 'done'")
        second = await w.open(2, **MITTO)
        await resume(second, session)
        await eventually(lambda: text(second) == f"{CONTINUED}- a\n- b\n\n\n")


async def test_open_code_is_ended_before_the_next_answer(tmp_path: Any) -> None:
    """What a turn left open, which ended early while nobody looked."""
    async with windows(tmp_path) as w:
        first = await w.open(1, **MITTO)
        session, worker, turn = await begun(w, first, "Before.\n\n")
        await seen(w, first, await last(w, session))
        await w.die(1, first)
        worker.say(worker.event(turn, "~~~\nnever ended"), worker.ended(turn, "max_tokens"))
        await until_there_is(w.r, "state = 'done'")
        second = await w.open(2, **MITTO)
        await resume(second, session)
        await eventually(lambda: text(second) == "~~~\nnever ended\n~~~\n\n\n")
