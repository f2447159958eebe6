"""What the next worker of a session goes on with."""

from __future__ import annotations

from pykoclaw_acp.channel.frames import PROTOCOL, Ready
from pykoclaw_acp.pool.continuity import Continuity
from tests.workers import OPTIONS


def ready(epoch: int, claude: str, *, fresh: bool) -> Ready:
    return Ready(epoch=epoch, pid=1, protocol=PROTOCOL, claude_session_id=claude, fresh=fresh)


def resumed(continuity: Continuity) -> object:
    return continuity.of("s", OPTIONS)["resume_session_id"]


def test_later_prompt_keeps_session_of_ended_turn() -> None:
    """A worker says when it is ready that its Claude session is new, which a turn's end outdates."""
    continuity = Continuity()
    first = ready(1, "begun", fresh=True)
    continuity.note_ready("s", first)
    assert resumed(continuity) is None
    continuity.set_resume("s", "begun", None)
    continuity.note_ready("s", first)
    assert resumed(continuity) == "begun"
    continuity.note_ready("s", ready(2, "other", fresh=False))
    assert resumed(continuity) == "other"
