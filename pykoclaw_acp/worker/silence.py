"""A Claude process that does not answer in the middle of a turn, as one that was stopped: its user is
told, and decides. It is not ended, as it may go on, and a turn may be worth much.

The CLI answers questions in whatever it does in a turn: while a model is waited for, a tool, a hook
or an MCP server works, a permission is asked for, or it compacts.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Final, NoReturn
from uuid import uuid4

import structlog

from pykoclaw_acp.model.events import Text, note_event
from pykoclaw_acp.worker import hanging

PAUSE: Final = 10.0  # s between two looks
QUIET: Final = 30.0  # s without a sign of life, after which Claude is asked something
PATIENCE: Final = 60.0  # s without an answer

log: Final = structlog.get_logger()


class Silence:
    """The silence of one Claude process. `lasts`: it does not answer, and the user knows."""

    def __init__(self, turn: Callable[[], str | None], say: Callable[[Text], None]) -> None:
        """`turn` is the one that runs, if its user would see words; `say` shows them in it."""
        self.lasts = False
        self._turn = turn
        self._say = say
        self._heard = time.monotonic()

    def heard(self) -> None:
        """Note a sign of life."""
        self._heard = time.monotonic()
        if self.lasts:
            self.lasts = False
            log.info("Claude answers again", action="claude_answers")
            self._note("Claude's process answers again.")

    async def watch(self, ask: Callable[[], Awaitable[object]]) -> NoReturn:
        """Ask Claude something while a turn runs of which nothing is heard. Several answers must be
        missing: the time of one may have passed while this process was frozen, too.
        """
        unanswered = 0.0
        while True:
            await asyncio.sleep(PAUSE)
            if not self._is_quiet():
                unanswered = 0.0
            elif await hanging.answers(ask):
                unanswered = 0.0
                self.heard()
            else:
                unanswered += hanging.ANSWER_WAIT
                if unanswered >= PATIENCE and self._is_quiet() and not self.lasts:
                    self._tell()

    def _is_quiet(self) -> bool:
        return self._turn() is not None and time.monotonic() - self._heard >= QUIET

    def _tell(self) -> None:
        self.lasts = True
        seconds = time.monotonic() - self._heard
        log.warning("Claude does not answer", action="claude_silent", seconds=round(seconds))
        self._note(
            f"**Claude's process has not answered for {seconds:.0f} s.** It hangs or is suspended. The conversation"
            " is kept, and the turn continues when the process responds again. If you do not want to wait, stop the"
            " turn and send the prompt again: a new process then answers."
        )

    def _note(self, words: str) -> None:
        self._say(note_event(f"silence-{uuid4()}", words))
