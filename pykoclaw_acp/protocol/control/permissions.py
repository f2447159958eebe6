"""`_pykoclaw.dev/questions/…`: pending permission requests, and their answers."""

from __future__ import annotations

from typing import Any

from pykoclaw_acp.protocol.content import ToolContent
from pykoclaw_acp.protocol.control.answers import FullAnswer
from pykoclaw_acp.protocol.control.decisions import OperatorDecision
from pykoclaw_acp.protocol.limits import Id, Name, Words
from pykoclaw_acp.protocol.wire import Params, Wire


class QuestionsParams(Params, frozen=True, kw_only=True):
    """`question`: only requests whose id has this prefix; `whole`: with all details."""

    question: Name = ""
    whole: bool = False


class AnswerParams(Params, frozen=True, kw_only=True):
    """`question`: the id of a pending request, or a unique prefix of one. `reason`: of a denial, for
    Claude. `answers`: to the questions that the request asks, in their order. `environment`:
    variables of the caller, for a worker that is started to tell Claude; they are not kept.
    """

    question: Id
    decision: OperatorDecision
    reason: Words = ""
    answers: tuple[Words, ...] = ()
    environment: dict[Name, str] | None = None


class AskedOption(Wire, frozen=True, kw_only=True):
    """A choice of a question."""

    label: str
    description: str = ""


class AskedQuestion(Wire, frozen=True, kw_only=True):
    """A question of a request that asks some; `multiple`: several choices may be made."""

    question: str
    header: str = ""
    options: tuple[AskedOption, ...] = ()
    multiple: bool = False


class QuestionInfo(FullAnswer, frozen=True, kw_only=True):
    """A pending permission request. `always`: it may be allowed for the rest of the session.

    The other fields are set only if the whole request was asked for: directory and title of its
    session, tool, input, content as shown to clients, what "always" would also allow, labels of the
    decisions, the questions that it asks, and the text of a form, which has none of these.
    """

    id: str
    session: str
    title: str
    always: bool
    asked_at: int
    deadline: int | None
    parked: bool
    cwd: str | None = None
    session_title: str | None = None
    tool: str | None = None
    input: dict[str, Any] | None = None
    content: list[ToolContent] | None = None
    always_allows: str | None = None
    choices: dict[str, str] | None = None
    form: str | None = None
    questions: list[AskedQuestion] | None = None


class Answered(FullAnswer, frozen=True, kw_only=True):
    """`done`: the effect of a decision, in words; null if it is what the decision says."""

    done: str | None
