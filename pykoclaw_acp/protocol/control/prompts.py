"""`_pykoclaw.dev/prompt`: a prompt of a command, and how its turn ended."""

from __future__ import annotations

from typing import Any

from pykoclaw_acp.protocol.control.answers import FullAnswer
from pykoclaw_acp.protocol.control.sessions import NamedSessionParams
from pykoclaw_acp.protocol.limits import Count, Key, Name, Path


class CommandPromptParams(NamedSessionParams, frozen=True, kw_only=True):
    """A prompt of a command; `session` may also be a conversation's name. `new`: in its place the
    directory of a new session. `idempotency_key`: the prompt runs once, however often it comes.

    `whole`: answer when what its turn leaves in the background has ended, too, and Claude has told of it.
    `detach`: answer as soon as it is in the journal. `present`: somebody is there who may answer
    questions. `after`: the last `seq` that the caller has seen, when it comes again. `environment`:
    variables of the caller, for a worker that is started for the prompt; they are not kept.
    """

    session: Name = ""
    new: Path = ""
    text: str
    idempotency_key: Key | None = None
    detach: bool = False
    present: bool = False
    whole: bool = False
    after: Count | None = None
    environment: dict[Name, str] | None = None


class Prompted(FullAnswer, frozen=True, kw_only=True):
    """How a prompt's turn ended, or that it is queued. `error` has `kind` and `message`; `text` is
    what Claude has said, without notes of the daemon; `seq`: where the turn ended in the log.

    `joined`: the prompt had come before. `goes_on`: something runs in the background that it has led to.
    `blocked`: what is said of a hook that has blocked the prompt; null: Claude was given it.
    """

    session: str
    turn_id: str
    state: str
    stop_reason: str | None
    error: dict[str, Any] | None
    text: str
    seq: int
    joined: bool
    goes_on: bool = False
    blocked: str | None = None
