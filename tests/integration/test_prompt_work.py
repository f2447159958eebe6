"""Prompts of commands whose turn leaves work in the background."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pykoclaw_acp.model.events import BLOCKED, WHY, Text, ToolEnded, ToolStarted, note_event
from pykoclaw_acp.store import work
from tests.integration.callers import Caller, caller
from tests.integration.memory_launcher import MemoryChannel
from tests.integration.queueing import fetch
from tests.integration.rig import Rig, rig
from tests.waiting import eventually

AGENT = ToolStarted("call", "Agent", "look", "think")
ENDED = ToolEnded("call", "completed", background=True)


def again(cli: Caller, session: str, **params: Any) -> int:
    return cli.begin(
        "prompt", session=session, text="hang", whole=True, idempotencyKey="k", **params
    )


async def running(r: Rig, tmp_path: Path, cli: Caller) -> tuple[str, int, MemoryChannel, str]:
    """A prompt whose turn runs."""
    session = (await r.session()).id
    at = again(cli, session)
    await eventually(lambda: r.launcher.launched and r.launcher.launched[-1].acked)
    ((turn,),) = fetch(tmp_path / "pykoclaw.db", "SELECT turn_id FROM acp_turns")
    return session, at, r.launcher.launched[-1], turn


async def launched(r: Rig, tmp_path: Path, cli: Caller) -> tuple[str, int, MemoryChannel]:
    """A prompt whose turn has ended with the words `Started.`, and a subagent that runs."""
    session, at, worker, turn = await running(r, tmp_path, cli)
    worker.background(1)
    worker.report(turn, AGENT, Text("a", "Started."))
    worker.say(worker.ended(turn))
    await eventually(lambda: cli.told("waits"))
    return session, at, worker


async def test_prompt_followed_again_shows_every_word(tmp_path: Path) -> None:
    async with rig(tmp_path) as r, caller(r, tmp_path) as one, caller(r, tmp_path) as two:
        session, at, worker = await launched(r, tmp_path, one)
        seen = r.sessions.live[session].last_seq
        worker.report(None, ENDED)
        worker.background(0)
        worker.begin_own("own", "call")
        worker.report("own", Text("b", "Eight files."))
        await eventually(lambda: worker.acked == worker.last)
        resumed = again(two, session, after=seen)
        await eventually(lambda: two.told("waits"))
        worker.report("own", Text("b", " And more."))
        worker.say(worker.ended("own"))
        await eventually(lambda: at in one.answers and resumed in two.answers)
        assert two.text() == "Eight files. And more."
        assert any(one["update"].get("status") == "completed" for one in two.told("event"))


async def test_repeated_prompt_keeps_its_outcome(tmp_path: Path) -> None:
    async with rig(tmp_path) as r, caller(r, tmp_path) as one, caller(r, tmp_path) as two:
        session, at, worker = await launched(r, tmp_path, one)
        worker.report(None, ENDED)
        worker.background(0)
        await eventually(lambda: at in one.answers)
        other = one.begin("prompt", session=session, text="hang", detach=True)
        await eventually(lambda: other in one.answers)
        later = one.answers[other]["result"]["turnId"]
        begun = f"SELECT 1 FROM acp_turns WHERE turn_id = '{later}' AND state != 'queued'"
        await eventually(lambda: fetch(tmp_path / "pykoclaw.db", begun))
        worker.say(worker.ended(later))
        worker.begin_own("own", "made by the other prompt")
        worker.report("own", Text("b", "About the other prompt."))
        await eventually(lambda: worker.acked == worker.last)
        worker.kill()
        failed = "SELECT 1 FROM acp_turns WHERE turn_id = 'own' AND state = 'failed'"
        await eventually(lambda: fetch(tmp_path / "pykoclaw.db", failed))
        repeated = again(two, session)
        await eventually(lambda: repeated in two.answers)
        first, second = one.answers[at]["result"], two.answers[repeated]["result"]
        assert (second["state"], second["text"]) == (first["state"], first["text"])
        assert two.text() == one.text() == "Started."


async def test_finished_subagent_holds_up_no_prompt(tmp_path: Path) -> None:
    async with rig(tmp_path) as r, caller(r, tmp_path) as one:
        session, at, worker, turn = await running(r, tmp_path, one)
        worker.report(turn, AGENT, ToolEnded("call", "completed"), Text("a", "Done."))
        other = one.begin("prompt", session=session, text="hang", detach=True)
        await eventually(lambda: other in one.answers)
        worker.say(worker.ended(turn))
        await eventually(lambda: at in one.answers)
        assert one.told("waits") == []
        unfinished = (
            "SELECT state FROM acp_turns WHERE state IN ('queued', 'dispatched', 'running')"
        )
        assert fetch(tmp_path / "pykoclaw.db", unfinished)


async def test_subagent_that_ended_early_is_told_of(tmp_path: Path) -> None:
    async with rig(tmp_path) as r, caller(r, tmp_path) as one:
        _, at, worker, turn = await running(r, tmp_path, one)
        worker.report(turn, AGENT, ENDED, Text("a", "It looks."))
        worker.say(worker.ended(turn))
        await eventually(lambda: one.told("waits"))
        worker.begin_own("own", "call")
        worker.report("own", Text("b", "Done."))
        worker.say(worker.ended("own"))
        await eventually(lambda: at in one.answers)
        assert one.answers[at]["result"]["text"] == "It looks.\n\nDone."


async def test_repeated_prompt_is_told_of_lost_work(tmp_path: Path) -> None:
    async with rig(tmp_path) as r, caller(r, tmp_path) as one, caller(r, tmp_path) as two:
        session, at, worker = await launched(r, tmp_path, one)
        repeated = again(two, session)
        await eventually(lambda: two.told("waits"))
        worker.kill()
        await eventually(lambda: at in one.answers and repeated in two.answers)
        later = again(two, session)
        await eventually(lambda: later in two.answers)
        for answer in (one.answers[at], two.answers[repeated], two.answers[later]):
            assert (answer["result"]["state"], answer["result"]["text"]) == ("failed", "Started.")


async def test_prompt_says_which_hook_blocked_it(tmp_path: Path) -> None:
    async with rig(tmp_path) as r, caller(r, tmp_path) as cli:
        session, at, worker, turn = await running(r, tmp_path, cli)
        words = "**A hook blocked this** (`UserPromptSubmit`): no"
        worker.report(turn, note_event(f"line-1{BLOCKED}", words), note_event("line-2", "Besides."))
        worker.say(worker.ended(turn))
        await eventually(lambda: at in cli.answers)
        answer = cli.answers[at]["result"]
        assert (answer["state"], answer["text"], answer["blocked"]) == ("done", "", words)
        other = await cli.call("prompt", session=session, text="say 1")
        assert (other["text"], other["blocked"]) == ("0 ", None)


async def test_hook_that_blocks_after_own_turn(tmp_path: Path) -> None:
    """A turn of Claude's own has run under the name of the prompt's."""
    async with rig(tmp_path) as r, caller(r, tmp_path) as cli:
        _, at, worker, turn = await running(r, tmp_path, cli)
        worker.report(None, note_event(f"{turn}{WHY}", "> A command has ended.", ("before",)))
        worker.report(turn, Text("a", "It passed."), note_event(f"line-1{BLOCKED}", "No."))
        worker.say(worker.ended(turn))
        await eventually(lambda: at in cli.answers)
        assert cli.answers[at]["result"]["blocked"] == "No."
        assert await work.blocked(r.database, turn) == "No."


async def test_hook_that_blocks_another_prompt_is_none(tmp_path: Path) -> None:
    """A hook blocks a prompt that comes into the turn."""
    async with rig(tmp_path) as r, caller(r, tmp_path) as cli:
        _, at, worker, turn = await running(r, tmp_path, cli)
        worker.report(turn, AGENT, ToolEnded("call", "completed"))
        worker.report(turn, note_event(f"line-1{BLOCKED}", "No."), Text("a", "Done."))
        worker.say(worker.ended(turn))
        await eventually(lambda: at in cli.answers)
        answer = cli.answers[at]["result"]
        assert (answer["state"], answer["text"], answer["blocked"]) == ("done", "Done.", None)
