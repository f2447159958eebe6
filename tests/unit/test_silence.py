"""A Claude process that does not answer in a turn: its user is told once, and when it does again."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from pykoclaw_acp.worker import hanging, silence
from pykoclaw_acp.worker.silence import Silence
from tests.waiting import eventually

MANY = 40


class Claude:
    """Answers while `answers`, in the turn that runs."""

    def __init__(self) -> None:
        self.turn: str | None = "turn"
        self.answers = True
        self.asked = self.looks = 0
        self.said: list[str] = []
        self.silence = Silence(self.look, lambda note: self.said.append(note.text.strip()))

    def look(self) -> str | None:
        self.looks += 1
        return self.turn

    async def ask(self) -> None:
        self.asked += 1
        if not self.answers:
            await asyncio.Event().wait()

    async def asked_often(self) -> None:
        often = self.asked + MANY
        await eventually(lambda: self.asked >= often)


@contextmanager
def watched(claude: Claude) -> Iterator[None]:
    task = asyncio.ensure_future(claude.silence.watch(claude.ask))
    try:
        yield
    finally:
        task.cancel()


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(silence, "PAUSE", 1 / 512)
    monkeypatch.setattr(silence, "QUIET", 0.0)
    monkeypatch.setattr(silence, "PATIENCE", 2 / 512)
    monkeypatch.setattr(hanging, "ANSWER_WAIT", 1 / 512)


async def test_silence_is_told_once_with_its_end() -> None:
    claude = Claude()
    claude.answers = False
    with watched(claude):
        await eventually(lambda: claude.silence.lasts)
        await claude.asked_often()
        assert [
            one.startswith("**Claude's process has not answered for") for one in claude.said
        ] == [True]
        claude.answers = True
        await eventually(lambda: not claude.silence.lasts)
        await claude.asked_often()
    assert claude.said[1:] == ["Claude's process answers again."]


async def test_message_ends_the_silence_at_once() -> None:
    claude = Claude()
    claude.answers = False
    with watched(claude):
        await eventually(lambda: claude.silence.lasts)
        claude.silence.heard()
        assert not claude.silence.lasts
    assert len(claude.said) == 2


async def test_quiet_turn_is_asked_and_nothing_said() -> None:
    claude = Claude()
    with watched(claude):
        await claude.asked_often()
    assert not claude.said
    assert not claude.silence.lasts


async def test_one_missing_answer_is_no_silence() -> None:
    class Now(Claude):
        async def ask(self) -> None:
            self.answers = self.asked % 2 == 0
            await super().ask()

    claude = Now()
    with watched(claude):
        await claude.asked_often()
    assert not claude.said


@pytest.mark.parametrize("how", ["no turn runs", "messages come"])
async def test_nothing_is_asked_without_need(monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    claude = Claude()
    if how == "no turn runs":
        claude.turn = None
    else:
        monkeypatch.setattr(silence, "QUIET", 60.0)
    with watched(claude):
        await eventually(lambda: claude.looks > MANY)
    assert not claude.asked
