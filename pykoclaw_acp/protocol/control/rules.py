"""`_pykoclaw.dev/rules/…`: what people have allowed in directories, for later sessions too."""

from __future__ import annotations

from pykoclaw_acp.protocol.control.answers import FullAnswer
from pykoclaw_acp.protocol.limits import Path, Words
from pykoclaw_acp.protocol.wire import Params


class RulesParams(Params, frozen=True, kw_only=True):
    """No parameters."""


class RemoveRuleParams(Params, frozen=True, kw_only=True):
    """`path`: the directory; `rule`: as it is listed, or empty for all rules of the directory."""

    path: Path
    rule: Words = ""


class RuleInfo(FullAnswer, frozen=True, kw_only=True):
    """A rule that lasts. `by`: a client's name, or `cli`; `at`: ms since 1970."""

    path: str
    rule: str
    by: str
    at: int
