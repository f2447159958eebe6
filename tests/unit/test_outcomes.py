"""What is said about the ends of turns."""

from __future__ import annotations

import pytest

from pykoclaw_acp.error_kinds import ErrorKind
from pykoclaw_acp.errors import StoreUnavailable, WorkerFailed
from pykoclaw_acp.model.condition import DatabaseState
from pykoclaw_acp.model.scheduled import run_key
from pykoclaw_acp.model.turns import PromptKeys, Turn
from pykoclaw_acp.pool.pool import SPOOL_PENDING
from pykoclaw_acp.sessions.turns import outcomes
from pykoclaw_acp.sessions.turns.outcomes import UNTOLD

LOGIN = "Run `claude login` in a terminal, then send the prompt again."


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (StoreUnavailable(DatabaseState.LOCKED, "It is locked."), "; send a prompt when the"),
        (WorkerFailed(ErrorKind.SPOOL_PENDING, SPOOL_PENDING), ". Send a prompt: that tries"),
        (WorkerFailed(ErrorKind.AUTHENTICATION_FAILED, LOGIN), ", then send a prompt."),
        (MemoryError(), ". Send a prompt."),
    ],
    ids=lambda one: type(one).__name__ if isinstance(one, Exception) else "",
)
async def test_nobody_can_send_an_answer_again(error: Exception, said: str) -> None:
    for key in (run_key("turn"), "front:1"):
        turn = Turn("turn", "session", [], PromptKeys(request=key))
        failure = outcomes.not_started(turn, error).failure
        assert failure is not None
        answer = turn.tells_answer
        assert (said in failure.message, failure.message.endswith(UNTOLD)) == (answer, answer)
        assert (" again" in failure.message.removesuffix(UNTOLD)) is not answer
