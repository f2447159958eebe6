"""Transcripts that the real CLI has written: what other programs did is in the log once, and what we
did is not imported.
"""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from pykoclaw_acp.model.branches import Branch, Memory, RewindPoint, Rewound
from pykoclaw_acp.model.events import TextPart, ToolEnded, ToolStarted, Usage, UserMessage
from pykoclaw_acp.model.imports import RowStanding, Side
from pykoclaw_acp.scripted_model.process import ScriptedModel
from pykoclaw_acp.store.journal.branches import SqlBranchStore
from tests import folds
from tests.integration.claude_world import World, told, world
from tests.integration.journals import prompt
from tests.unit.transcripts import Transcript
from tests.waiting import eventually


@pytest.fixture(scope="module")
def model() -> Iterator[ScriptedModel]:
    with ScriptedModel() as started:
        yield started


@pytest.fixture
async def w(tmp_path: Path, model: ScriptedModel) -> AsyncIterator[World]:
    model.clear()
    async with world(tmp_path, model) as made:
        yield made


def text(answer: str) -> str:
    return f"[[script text {answer}]]"


async def written(w: World, claude: str, words: str) -> None:
    """The CLI writes down the end of a turn some 100 ms late."""
    await eventually(lambda: words in w.transcript(claude).read_text())


@pytest.mark.long
async def test_imported_turn_reads_as_a_live_one(w: World) -> None:
    live, imported = await w.session(), await w.session()
    (w.work / "a.txt").write_text("one\n")
    script = (
        "[[script thinking Hm. ;; text Let me look. ;; read a.txt ;; bash echo hi ;; & bash exit 3 ;;"
        " write b.txt <<< two ;; edit b.txt <<< two => three ;;"
        ' tool TaskCreate {"subject": "Think", "description": "a lot"} ;; text Done. ]]'
    )
    async with w.claude(session_id=live) as client:
        claude = await w.ours(live, script, client)
    await written(w, claude, "Done.")
    found = await w.look(imported, claude)
    mine = [one for one in await w.log(live) if not isinstance(one, Usage | UserMessage)]
    theirs = [one for one in await w.log(imported) if not isinstance(one, UserMessage)]
    assert len(mine) > 10
    assert folds.seen(theirs) == folds.seen(mine)
    assert [one.event for one in found.logged] == await w.log(imported)
    assert (await w.look(live, claude)).logged == []


@pytest.mark.long
async def test_turns_of_others_are_between_ours(w: World) -> None:
    session = await w.session()
    async with w.claude(session_id=session) as client:
        claude = await w.ours(session, text("first"), client)
    await written(w, claude, "first")
    assert (await w.look(session, claude)).standing is RowStanding.SAME
    other = w.home / "elsewhere"
    other.mkdir()
    assert await w.terminal(text("second"), resume=claude, cwd=other) == claude
    found = await w.look(session, claude)
    assert (found.standing, found.digest) == (RowStanding.MOVED_ON, None)
    assert told(one.event for one in found.logged) == f"[terminal: {text('second')}] second"
    assert (await w.look(session, claude)).standing is RowStanding.MOVED_ON
    async with w.claude(resume=claude) as client:
        await w.ours(session, text("third"), client)
    await written(w, claude, "third")
    found = await w.look(session, claude)
    assert (found.standing, found.logged) == (RowStanding.SAME, [])
    words = [f"[ours: {text('first')}]", "first", f"[terminal: {text('second')}]", "second"]
    words += [f"[ours: {text('third')}]", "third"]
    assert await w.said(session) == " ".join(words)


async def test_conversation_of_others_is_imported_whole(w: World) -> None:
    session = await w.session(conversation="wa-andy-1")
    claude = await w.terminal(text("one"))
    await w.terminal("/compact", resume=claude)
    await w.terminal(text("two"), resume=claude)
    found = await w.look(session, claude)
    assert (found.standing, found.followed) == (RowStanding.MOVED_ON, claude)
    said = f"[terminal: {text('one')}] one [terminal: {text('two')}] two"
    assert await w.said(session) == said
    (compacted,) = (one for one in await w.log(session) if isinstance(one, ToolEnded))
    assert str(compacted.title).startswith("Compacted the conversation in ")
    again = await w.look(session, claude)
    assert (again.standing, again.logged, again.digest) == (RowStanding.MOVED_ON, [], None)


@pytest.mark.long
@pytest.mark.parametrize("looked", [True, False])
async def test_terminals_compaction_after_our_turn_shows_once(w: World, looked: bool) -> None:
    session = await w.session()
    async with w.claude(session_id=session) as client:
        claude = await w.ours(session, text("first"), client)
        await w.ours(session, "/compact", client)
        await w.ours(session, text("second"), client)
    await written(w, claude, "second")
    if looked:
        assert (await w.look(session, claude)).logged == [], "ours is in the log"
    await w.terminal("/compact", resume=claude)
    found = await w.look(session, claude)
    (end,) = (one.event for one in found.logged if isinstance(one.event, ToolEnded))
    assert str(end.title).startswith("Compacted the conversation in ")
    assert (await w.look(session, claude)).logged == []
    path = w.transcript(claude)
    copy = path.with_suffix(".copy")
    copy.write_bytes(path.read_bytes())
    copy.replace(path)
    assert (await w.look(session, claude)).logged == [], "not even if it is read anew"
    async with w.claude(resume=claude) as client:
        await w.ours(session, text("third"), client)
    await written(w, claude, "third")
    assert (await w.look(session, claude)).logged == []
    ends = [one for one in await w.log(session) if isinstance(one, ToolEnded)]
    assert len(ends) == 2


@pytest.mark.long
@pytest.mark.parametrize("command", ["/compact", "/context", "/rewind"])
async def test_worker_is_behind_after_terminals_command(w: World, command: str) -> None:
    session = await w.session()
    async with w.claude(session_id=session) as client:
        claude = await w.ours(session, text("first"), client)
        await w.ours(session, "/context", client)
        await written(w, claude, "local-command-stdout")
        assert (await w.look(session, claude)).standing is RowStanding.SAME, "that command was ours"
        await w.terminal(command, resume=claude)
        found = await w.look(session, claude)
        assert (found.standing, found.digest) == (RowStanding.MOVED_ON, None)
        assert (await w.look(session, claude)).standing is RowStanding.MOVED_ON
        await w.ours(session, text("second"), client)  # it was not replaced for all that
    await written(w, claude, "second")
    found = await w.look(session, claude)
    assert (found.standing, found.digest) == (RowStanding.SAME, None), "a command is no turn"
    assert "[terminal" not in await w.said(session)


async def test_terminals_shell_command_is_between_ours(w: World) -> None:
    """Only a terminal that somebody types in writes such entries; Claude goes on from them."""
    session = await w.session()
    async with w.claude(session_id=session) as client:
        claude = await w.ours(session, text("first"), client)
    await written(w, claude, "first")
    assert (await w.look(session, claude)).standing is RowStanding.SAME
    path = w.transcript(claude)
    lines = [json.loads(one) for one in path.read_text().splitlines()]
    head = [one for one in lines if "uuid" in one][-1]
    names = {one: head[one] for one in ("sessionId", "cwd", "timestamp")}
    t = Transcript(path, head["uuid"])
    for said in (
        "<bash-input>echo from bang</bash-input>",
        "<bash-stdout>from &lt;bang&gt;</bash-stdout><bash-stderr></bash-stderr>",
    ):
        t.prompt(said, str(uuid.uuid4()), **names, entrypoint="cli", isSidechain=False)
    found = await w.look(session, claude)
    assert (found.standing, found.digest) == (RowStanding.MOVED_ON, None)
    asked, started, ended = (one.event for one in found.logged)
    assert told([asked]) == "[terminal: !echo from bang]"
    assert isinstance(started, ToolStarted)
    assert isinstance(ended, ToolEnded)
    assert started.title == "echo from bang"
    assert ended.content == (TextPart("```\nfrom <bang>\n```"),)
    async with w.claude(resume=claude) as client:
        await w.ours(session, "[[script report]]", client)
    assert "echo from bang" in str(w.model.requests()[-1]["messages"])
    await written(w, claude, "This request held")
    found = await w.look(session, claude)
    assert (found.standing, found.logged, found.digest) == (RowStanding.SAME, [], None)


@pytest.mark.long
async def test_blank_session_in_row_is_side_turn(w: World) -> None:
    session = await w.session()
    async with w.claude(session_id=session) as client:
        claude = await w.ours(session, text("ours"), client)
    await w.look(session, claude)
    blank = await w.terminal(text("The backup is done."))
    unnoted = await w.look(session, blank, noted=False)
    found = await w.look(session, blank)
    assert (found.digest, found.digest_id) == (unnoted.digest, unnoted.digest_id)
    assert (found.standing, found.followed) == (RowStanding.SIDE, claude)
    assert "The backup is done." in told(one.event for one in unnoted.logged)
    assert found.digest is not None
    assert "Answered: The backup is done." in found.digest
    again = await w.look(session, blank)
    assert (again.standing, again.digest, again.logged) == (RowStanding.SIDE, None, [])
    assert (await w.look(session, claude)).standing is RowStanding.SAME


@pytest.mark.long
async def test_session_to_branch_off_is_told_of_others(w: World) -> None:
    """After a rewind: other programs go on with what was forgotten, also under another id."""
    session = await w.session()
    async with w.claude(session_id=session) as client:
        claude = await w.ours(session, text("kept"), client)
        await w.ours(session, text("forgotten"), client)
    await written(w, claude, "forgotten")
    await w.look(session, claude)
    turns = await w.journal.transcript_turns(session, 100)
    point = RewindPoint(turns[-1].uuid, 1, 2, Memory(Branch(claude, turns[0].uuid)))
    done = Rewound(turns[-1].uuid, 1, [], None, None)
    await SqlBranchStore(w.database).rewind(session, point, [], done, note=None, request_key=None)
    assert (await w.look(session, claude)).digest is None
    await w.terminal(text("meanwhile"), resume=claude)
    found = await w.look(session, claude)
    assert found.followed == claude
    assert found.digest is not None
    assert "Answered: meanwhile" in found.digest
    assert "Answered: forgotten" not in found.digest
    other = await w.terminal(text("elsewhere"), "--fork-session", resume=claude)
    found = await w.look(session, other)
    assert (found.standing, found.followed) == (RowStanding.SIDE, claude)
    assert found.digest is not None
    assert "Answered: elsewhere" in found.digest
    assert "Answered: forgotten" not in found.digest
    assert "meanwhile" not in found.digest, "that was told"


@pytest.mark.long
async def test_fork_that_holds_our_history_goes_on(w: World) -> None:
    session = await w.session()
    async with w.claude(session_id=session) as client:
        claude = await w.ours(session, text("ours"), client)
    await written(w, claude, "ours")
    await w.look(session, claude)
    fork = await w.terminal(text("forked"), "--fork-session", resume=claude)
    assert fork != claude
    found = await w.look(session, fork)
    assert (found.standing, found.followed, found.digest) == (RowStanding.MOVED_ON, fork, None)
    words = f"[ours: {text('ours')}] ours [terminal: {text('forked')}] forked"
    assert await w.said(session) == words
    async with w.claude(resume=fork) as client:
        assert await w.ours(session, text("again"), client) == fork
    await written(w, fork, "again")
    assert (await w.look(session, fork)).standing is RowStanding.SAME


async def test_two_programs_at_once_lose_no_side(w: World) -> None:
    session = await w.session()
    async with w.claude(session_id=session) as client:
        claude = await w.ours(session, text("start"), client)
        await written(w, claude, "start")
        await w.look(session, claude)
        until = "until [ -e go ]; do sleep 0.05; done"
        slow = f"[[script\ntext Ours begins.\nbash {until}\ntext Ours ends.\n]]"
        mine = asyncio.create_task(w.ours(session, slow, client))
        await eventually(lambda: "Ours begins." in w.transcript(claude).read_text())
        await w.terminal(text("Theirs."), resume=claude)
        (w.work / "go").touch()
        await mine
    await written(w, claude, "Ours ends.")
    found = await w.look(session, claude)
    assert f"[terminal: {text('Theirs.')}] Theirs." in await w.said(session)
    said = await w.said(session)
    assert said.count("Ours ends.") == 2  # the prompt's script, and the answer
    async with w.claude(resume=claude) as client:
        await w.ours(session, "[[script report]]", client)
    known = str(w.model.requests()[-1]["messages"])
    assert ("Theirs." in known) != ("Ours ends." in known)  # Claude knows one branch only
    assert found.digest is not None
    assert ("Theirs." in found.digest) == ("Theirs." not in known)
    assert ("Ours ends." in found.digest) == ("Ours ends." not in known)
    assert (found.lacks is Side.HERE) == ("Ours ends." not in known)
    assert found.undecided is False
    await written(w, claude, "This request held")
    assert (await w.look(session, claude)).digest is None


@pytest.mark.long
async def test_branch_of_cli_exiting_last_goes_on(w: World) -> None:
    """A CLI notes its own last entry when it exits, also if another one has written since."""
    session = await w.session()
    async with w.claude(session_id=session) as client:
        claude = await w.ours(session, text("start"), client)
        await written(w, claude, "start")
        await w.look(session, claude)
        until = "until [ -e go ]; do sleep 0.05; done"
        slow = f"[[script\ntext Theirs begins.\nbash {until}\ntext Theirs ends.\n]]"
        theirs = asyncio.create_task(w.terminal(slow, resume=claude))
        await eventually(lambda: "Theirs begins." in w.transcript(claude).read_text())
        await w.ours(session, text("Ours."), client)
        await written(w, claude, "Ours.")
        (w.work / "go").touch()
        await theirs
        found = await w.look(session, claude, noted=False)
        assert found.standing is RowStanding.MOVED_ON
    found = await w.look(session, claude)
    assert found.standing is RowStanding.SAME
    async with w.claude(resume=claude) as client:
        await w.ours(session, "[[script report]]", client)
    known = str(w.model.requests()[-1]["messages"])
    assert "Ours." in known
    assert "Theirs ends." not in known
    assert found.digest is not None
    assert "Theirs ends." in found.digest
    assert "Answered: Ours." not in found.digest


@pytest.mark.long
async def test_terminals_command_ends_after_our_cli_resumed(w: World) -> None:
    """Our CLI finds no result of it, and writes one; that of the command corrects it."""
    session = await w.session()
    async with w.claude(session_id=session) as client:
        claude = await w.ours(session, text("start"), client)
    await written(w, claude, "start")
    await w.look(session, claude)
    slow = "[[script\nbash until [ -e go ]; do sleep 0.05; done; echo MADE\ntext Theirs ends.\n]]"
    theirs = asyncio.create_task(w.terminal(slow, resume=claude))
    await eventually(lambda: '"tool_use"' in w.transcript(claude).read_text())
    async with w.claude(resume=claude) as client:
        await w.ours(session, text("Ours."), client)
        await written(w, claude, "Ours.")
        await w.look(session, claude)
        (w.work / "go").touch()
        await theirs
        await written(w, claude, "Theirs ends.")
        await w.look(session, claude)
    first, last = (one for one in await w.log(session) if isinstance(one, ToolEnded))
    assert (first.status, last.status) == ("failed", "completed")
    assert "Tool call interrupted" not in repr(first)
    assert "MADE" in repr(last.content)


async def test_cleared_session_is_followed_without_its_past(w: World) -> None:
    session = await w.session()
    async with w.claude(session_id=session) as client:
        claude = await w.ours(session, text("past"), client)
        await written(w, claude, "past")
        await w.look(session, claude)
        fresh = await w.ours(session, "/clear", client)
        assert fresh != claude
        await w.ours(session, text("present"), client)
    await written(w, fresh, "present")
    found = await w.look(session, fresh)
    assert (found.standing, found.digest, found.logged) == (RowStanding.SAME, None, [])
    assert found.followed == fresh


@pytest.mark.long
async def test_claudes_own_turn_is_not_imported(w: World) -> None:
    session = await w.session()
    async with w.claude(session_id=session) as client:
        claude = await w.ours(
            session, "[[script background sleep 0.5; echo x ;; text started]]", client
        )
        await w.look(session, claude)
        await w.rest(prompt(session, "background"), client, background=True)
        await client.set_model("sonnet")
        await w.ours(session, text("with another model"), client)
    await written(w, claude, "with another model")
    assert "<command-name>/model" in w.transcript(claude).read_text()
    before = await w.said(session)
    found = await w.look(session, claude)
    assert (found.standing, found.logged) == (RowStanding.SAME, [])
    assert await w.said(session) == before
    ended = [one for one in await w.log(session) if isinstance(one, ToolEnded)]
    assert [one.status for one in ended] == ["completed"]


@pytest.mark.long
async def test_background_turn_of_others_is_imported(w: World) -> None:
    session = await w.session()
    first = str(uuid.uuid4())
    other = await w.session()
    async with w.claude(session_id=first) as client:
        await w.ours(other, "[[script background sleep 0.5; echo x ;; text started]]", client)
        await w.rest(prompt(other, "background"), client, background=True)
    await written(w, first, "task-notification")
    await eventually(lambda: "no more steps" in w.transcript(first).read_text())
    await w.look(session, first)
    log = await w.log(session)
    assert "no more steps" in told(log)
    assert "task-notification" not in told(log)
    assert [one.status for one in log if isinstance(one, ToolEnded)] == ["completed"]


@pytest.mark.long
async def test_subagents_own_messages_are_not_imported(w: World) -> None:
    session = await w.session()
    script = (
        '[[script\ntool Agent {"description": "Look", "prompt": "Say something.", "subagent_type":'
        ' "general-purpose", "run_in_background": false}\ntext agent is done\n]]'
    )
    claude = await w.terminal(script)
    await w.look(session, claude)
    log = await w.log(session)
    started = [one for one in log if isinstance(one, ToolStarted)]
    assert [one.title for one in started] == ["Agent: Look (general-purpose)"]
    assert [one.status for one in log if isinstance(one, ToolEnded)] == ["completed"]
    assert "agent is done" in told(log)


@pytest.mark.long
async def test_scheduled_prompt_names_the_scheduler(w: World) -> None:
    session = await w.session(conversation="acp-12345678")
    await w.schedule("acp-12345678", text("job"))
    other = await w.session()
    async with w.claude(session_id=other) as client:
        claude = await w.ours(other, text("job"), client)
        await w.ours(other, text("chat"), client)
    await written(w, claude, "chat")
    await w.look(session, claude)
    said = f"[scheduler: {text('job')}] job [pykoclaw: {text('chat')}] chat"
    assert await w.said(session) == said


async def test_transcript_that_is_gone_is_missing(w: World) -> None:
    session = await w.session()
    assert (await w.look(session, None)).standing is RowStanding.SAME
    claude = await w.terminal(text("one"))
    await w.look(session, claude)
    path = w.transcript(claude)
    moved = path.parent.parent / "other-project" / path.name
    moved.parent.mkdir()
    path.rename(moved)
    assert (await w.look(session, claude)).standing is RowStanding.MOVED_ON
    moved.unlink()
    assert (await w.look(session, claude)).standing is RowStanding.MISSING
    assert (await w.look(session, str(uuid.uuid4()))).standing is RowStanding.MISSING
    assert (await w.look(session, "../../etc/passwd")).standing is RowStanding.MISSING
    blank = await w.look(session, await w.terminal(text("two")))
    assert (blank.standing, blank.followed, blank.resumable) == (RowStanding.SIDE, claude, False)


@pytest.mark.long
async def test_attached_session_hears_of_the_terminal(w: World) -> None:
    session = await w.session()
    claude = await w.terminal(text("one"))
    await w.look(session, claude)
    calls: list[str] = []
    end = w.transcripts.watch(session, lambda: calls.append("changed"))
    await w.terminal(text("two"), resume=claude)
    await eventually(lambda: bool(calls))
    assert "two" in told(one.event for one in (await w.look(session, claude)).logged)
    end()
