"""`_pykoclaw.dev/rules/…`: what people have allowed in sessions, and in directories for later ones."""

from __future__ import annotations

from pykoclaw_acp.protocol.control.answers import FullAnswer
from pykoclaw_acp.protocol.limits import Name, Path, Words
from pykoclaw_acp.protocol.wire import Params


class RulesParams(Params, frozen=True, kw_only=True):
    """No parameters."""


class RemoveRuleParams(Params, frozen=True, kw_only=True):
    """`path`: the directory, whose sessions' rules are meant as well; `session`: the id of a session, or
    a unique beginning of one, as listed. One of the two. `rule`: as it is listed, or empty for all.
    """

    path: Path = ""
    rule: Words = ""
    session: Name = ""


class RuleInfo(FullAnswer, frozen=True, kw_only=True):
    """A rule that lasts. `by`: a client's name, or `cli`; `at`: ms since 1970. `session`: the only one
    in which it holds, or null.
    """

    path: str
    rule: str
    by: str
    at: int
    session: str | None = None
