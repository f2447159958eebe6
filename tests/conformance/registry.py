"""The rules of ACP that an agent must keep, as checks by name."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, NoReturn

if TYPE_CHECKING:
    from tests.conformance.agents import Agent
    from tests.conformance.recording import Recording

Level = Literal["must", "should"]
Acts = Callable[["Agent"], Awaitable[None]]
Looks = Callable[["Recording"], None]


class Violation(AssertionError):
    """The agent breaks the rule."""


class Unsupported(Exception):
    """The rule does not apply to this agent; the text says why."""


@dataclass(frozen=True, slots=True)
class Rule:
    """`acts` talks to the agent. `looks` examines a recording: such a rule holds for everything
    that was exchanged with the agent in this run.
    """

    name: str
    level: Level
    text: str
    acts: Acts | None = None
    looks: Looks | None = None


RULES: Final[dict[str, Rule]] = {}
_ALONE: Final[set[str]] = set()


def _add(rule: Rule) -> None:
    assert rule.name not in RULES, rule.name
    assert rule.text, f"{rule.name} does not say what it demands"
    RULES[rule.name] = rule


def must(check: Acts) -> Acts:
    """A rule that agents MUST keep; its docstring is the rule."""
    _add(Rule(check.__name__, "must", check.__doc__ or "", acts=check))
    return check


def should(check: Acts) -> Acts:
    """A rule that agents SHOULD keep, or that clients of today depend on."""
    _add(Rule(check.__name__, "should", check.__doc__ or "", acts=check))
    return check


def alone(check: Acts) -> Acts:
    """The rule needs connections of its own. Below `must` and `should`."""
    _ALONE.add(check.__name__)
    return check


def must_always(check: Looks) -> Looks:
    """A rule about every recording."""
    _add(Rule(check.__name__, "must", check.__doc__ or "", looks=check))
    return check


def should_always(check: Looks) -> Looks:
    """A rule about every recording, that agents SHOULD keep."""
    _add(Rule(check.__name__, "should", check.__doc__ or "", looks=check))
    return check


def check(holds: object, words: str) -> None:
    """Raise Violation with these words unless it holds."""
    if not holds:
        raise Violation(words)


def unsupported(words: str) -> NoReturn:
    """The rule does not apply, for this reason."""
    raise Unsupported(words)


def in_order() -> list[Rule]:
    """All rules: first those with connections of their own, so that the others can share one; those
    that look at recordings come last, when there is most to see.
    """
    return sorted(RULES.values(), key=lambda one: (one.acts is None, one.name not in _ALONE))
