"""How a run of a scheduled task ends, from what its turn has led to."""

from __future__ import annotations

from typing import Final

from pykoclaw_acp.model import deliveries
from pykoclaw_acp.model.conversations import OWN, Conversation
from pykoclaw_acp.model.scheduled import CANCELLED, Task, TaskRun
from pykoclaw_acp.model.turns import Outcome, TurnState
from pykoclaw_acp.model.work import Work
from pykoclaw_acp.sessions.session import Session

DELETED: Final = "The conversation was deleted before the run had ended."
_GOES_ON: Final = (
    "Work in the background had not ended an hour after Claude's answer. It goes on in the"
    " conversation; what was said until then is kept."
)
_ASKS: Final = (
    "A permission request of Claude's work in the background waits for an answer, without limit:"
    " `pykoclaw-acp approve` lists and answers it. What Claude does then is shown in its session, and"
    " is no result of this run."
)
_STOPPED: Final = (
    "Work in the background had not ended an hour after Claude's answer, and was stopped. What was"
    " said until then is kept; let the task end what it starts."
)


def reason(run: TaskRun, outcome: Outcome, work: Work, *, goes_on: bool, asks: bool) -> str | None:
    """Why there is no result; None of an answer. `goes_on`: not all that its turn has led to has ended;
    `asks`: a request of that is parked.
    """
    if outcome.state == TurnState.DONE:
        if not work.turns:
            return DELETED
        if asks:
            return _ASKS
        if work.failed is None:
            return work.blocked or ((_STOPPED if run.aside else _GOES_ON) if goes_on else None)
        outcome = work.failed
    return CANCELLED if outcome.failure is None else outcome.failure.message


def begins(run: TaskRun, session: Session) -> Conversation | None:
    """The run's conversation as it goes on from the run, if nobody had begun it before that."""
    record = session.record
    if not run.aside or run.task.isolated or record.claude_session_id is None:
        return None
    return Conversation(run.task.conversation, record.claude_session_id, record.cwd)


def is_for(session: Session, task: Task) -> bool:
    """Whether the result is delivered to where it was given; other channels have to send it."""
    conversation, channel = deliveries.target(task.conversation, task.target_conversation)
    own = (session.record.conversation_name, f"{OWN}-{session.id}", session.id)
    return channel == OWN and conversation in own
