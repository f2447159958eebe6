"""A session's title: words at once, Claude's own if that is allowed, and a person's for ever."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from pykoclaw_acp.channel.processes import WorkerProcess
from pykoclaw_acp.channel.requests import MakeTitle, WorkerReply
from pykoclaw_acp.errors import StoreUnavailable
from pykoclaw_acp.model.condition import DatabaseState
from pykoclaw_acp.model.events import BY_CLAUDE, BY_CONTENT, BY_WORDS, TitleChanged
from pykoclaw_acp.model.turns import TurnState
from pykoclaw_acp.sessions.ports import RowStanding
from pykoclaw_acp.sessions.session import Session
from tests.integration.adopting import alive, daemon, killed
from tests.integration.memory_launcher import MemoryChannel
from tests.integration.rig import Rig, rig
from tests.integration.scripted_transcripts import ScriptedTranscripts
from tests.waiting import eventually, running
from tests.workers import OPTIONS

__all__ = ["alive"]


async def changes(r: Rig, session: Session) -> list[tuple[str, str]]:
    log = await r.journal.read(session.id, 0, 1000)
    return [(e.title, e.by) for one in log if isinstance(e := one.event, TitleChanged)]


def asked(worker: MemoryChannel) -> list[str]:
    return [one.words for one in worker.got if isinstance(one, MakeTitle)]


async def asked_times(worker: MemoryChannel, times: int) -> None:
    await eventually(lambda: len(asked(worker)) == times)


def answer(worker: MemoryChannel, title: str | None, error: str | None = None) -> None:
    number = [one.request for one in worker.got if isinstance(one, MakeTitle)][-1]
    worker.say(WorkerReply(epoch=1, request=number, result={"title": title}, error=error))


BY_WORDS_ALONE = msgspec.structs.replace(OPTIONS, titles="words")
ALLOWED = msgspec.structs.replace(OPTIONS, titles="claude")


async def answered(r: Rig, *, allowed: bool = True) -> tuple[Session, MemoryChannel]:
    """A session with an answer, of which Claude is asked for a title if that is allowed."""
    session = await r.session()
    await r.run(session, "say 1")
    worker = r.launcher.launched[-1]
    if allowed:
        await asked_times(worker, 1)
    return session, worker


async def test_title_that_cannot_be_stored_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What Claude makes of the first prompt comes still."""
    async with rig(tmp_path, options=ALLOWED) as r:
        session, worker = await answered(r)

        async def refuse(*_: object, **more: object) -> list[int]:
            raise StoreUnavailable(DatabaseState.LOCKED, "locked")

        with monkeypatch.context() as patch:
            patch.setattr(r.journal, "append", refuse)
            with pytest.raises(StoreUnavailable):
                await r.sessions.catalogue.set_title(session.id, "Mine")
        answer(worker, "Claude's")
        await eventually(lambda: session.record.title == "Claude's")


async def test_claude_is_asked_only_if_setting_allows(tmp_path: Path) -> None:
    async with rig(tmp_path, options=BY_WORDS_ALONE) as r:
        session, worker = await answered(r, allowed=False)
        await r.run(session, "say 2")
        assert asked(worker) == []
        assert await changes(r, session) == [("say 1", BY_WORDS)]


async def test_title_of_claude_replaces_the_words_once(tmp_path: Path) -> None:
    async with rig(tmp_path, options=ALLOWED) as r:
        session, worker = await answered(r)
        assert not session.dormant, "its log would have two writers"
        answer(worker, "  **Counting**\nto one ")
        await eventually(lambda: session.record.title == "Counting to one")
        await r.run(session, "say 2")
        assert asked(worker) == ["say 1"]
        assert await changes(r, session) == [("say 1", BY_WORDS), ("Counting to one", BY_CLAUDE)]
        found = await r.journal.find(session.id)
        assert found is not None
        assert (found.title, found.title_by) == ("Counting to one", BY_CLAUDE)


async def test_users_title_stays_when_claude_comes_late(tmp_path: Path) -> None:
    async with rig(tmp_path, options=ALLOWED) as r:
        session, worker = await answered(r)
        await r.sessions.catalogue.set_title(session.id, "Mine")
        answer(worker, "Counting")
        await r.run(session, "say 2")
        assert asked(worker) == ["say 1"]
        assert await changes(r, session) == [("say 1", BY_WORDS), ("Mine", "")]


async def test_words_that_the_user_confirms_stay_too(tmp_path: Path) -> None:
    async with rig(tmp_path, options=ALLOWED) as r:
        session, worker = await answered(r)
        await r.sessions.catalogue.set_title(session.id, "say 1")
        answer(worker, "Counting")
        await r.run(session, "say 2")
        assert session.record.title == "say 1"


@pytest.mark.parametrize(("title", "error"), [(None, None), (" \n", None), (None, "overloaded")])
async def test_words_stay_if_claude_makes_none(
    tmp_path: Path, title: str | None, error: str | None
) -> None:
    async with rig(tmp_path, options=ALLOWED) as r:
        session, worker = await answered(r)
        for tries in (1, 2, 3):
            await asked_times(worker, tries)
            answer(worker, title, error)
            await eventually(lambda: not running("make-title"))
            assert (await r.run(session, f"say {tries + 1}")).state == TurnState.DONE
        await r.run(session, "say 5")
        assert asked(worker) == ["say 1", "say 2", "say 3"], "then it is left alone"
        assert await changes(r, session) == [("say 1", BY_WORDS)]


async def test_words_replace_title_of_wordless_first_prompt(tmp_path: Path) -> None:
    async with rig(tmp_path, options=BY_WORDS_ALONE) as r:
        session = await r.session()
        for prompt in ("/init", "/context", "say 1", "/init"):
            await r.run(session, prompt)
        assert await changes(r, session) == [("/init", BY_CONTENT), ("say 1", BY_WORDS)]


@pytest.mark.parametrize("refused", [True, False])
async def test_prompt_claude_never_got_gives_the_title(tmp_path: Path, *, refused: bool) -> None:
    """The first one is stopped while its worker starts, or no worker can be started for it."""
    async with rig(tmp_path, options=BY_WORDS_ALONE) as r:
        session = await r.session()
        r.launcher.refuse, r.launcher.slow = refused, not refused
        turn = await r.prompt(session, "say 1")
        if not refused:
            await eventually(lambda: r.launcher.launched)
            session.cancel()
        await eventually(turn.ended.done)
        assert turn.state == (TurnState.FAILED if refused else TurnState.CANCELLED)
        r.launcher.refuse = r.launcher.slow = False
        for worker in r.launcher.launched:
            worker.ready()
        await r.run(session, "say 2")
        assert await changes(r, session) == [("say 1", BY_WORDS)]
        found = await r.journal.find(session.id)
        assert found is not None
        assert found.title == "say 1"


async def test_prompt_of_dead_server_gives_the_title(tmp_path: Path, alive: WorkerProcess) -> None:
    """One that no server runs any more, of a server that runs as long as its client."""
    async with killed(tmp_path, alive) as r:
        session = await r.session()
        r.launcher.slow = True
        await r.prompt(session, "say 1")
        await eventually(lambda: r.launcher.launched)
    async with daemon(tmp_path, r, resident=False) as second:
        found = await second.journal.find(session.id)
        assert found is not None
        assert (found.title, found.title_by) == ("say 1", BY_WORDS)


async def test_turn_without_an_answer_asks_for_no_title(tmp_path: Path) -> None:
    async with rig(tmp_path, options=ALLOWED) as r:
        session = await r.session()
        assert (await r.run(session, "die")).state != TurnState.DONE
        assert asked(r.launcher.launched[-1]) == []
        await r.run(session, "say 2")
        await eventually(lambda: asked(r.launcher.launched[-1]) == ["say 2"])
        r.launcher.launched[-1].kill()
        await eventually(lambda: not running("make-title"))
        assert session.record.title == "die"


@pytest.mark.parametrize(
    ("mine", "is_new", "title"),
    [(None, False, "Theirs"), ("Mine", False, "Mine"), ("Mine", True, "Theirs")],
)
async def test_rename_in_a_terminal_is_a_persons_too(
    tmp_path: Path, mine: str | None, is_new: bool, title: str
) -> None:
    transcripts = ScriptedTranscripts()
    async with rig(tmp_path, transcripts, options=ALLOWED) as r:
        session, worker = await answered(r)
        if mine is not None:
            await r.sessions.catalogue.set_title(session.id, mine)
        transcripts.find(RowStanding.SAME, title=" Theirs\n", title_is_new=is_new)
        await r.run(session, "say 2")
        assert (session.record.title, session.record.title_by) == (title, "")
        answer(worker, "Counting")
        await r.run(session, "say 3")
        assert asked(worker) == ["say 1"]
        assert session.record.title == title
        assert len(await changes(r, session)) == len({"say 1", mine or "say 1", title})
