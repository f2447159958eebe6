"""One rule, applied to one agent."""

from __future__ import annotations

import pytest

from tests.conformance import rules
from tests.conformance.agents import Agent
from tests.conformance.registry import Rule, Unsupported

assert rules


async def apply(rule: Rule, agent: Agent) -> None:
    """Raises Violation, or Unsupported where the rule does not apply."""
    if rule.acts is not None:
        await rule.acts(agent)
        return
    await agent.toured()
    assert rule.looks is not None
    for recording in agent.recordings:
        rule.looks(recording)


async def examine(rule: Rule, agent: Agent) -> None:
    """The test of a rule; one that does not apply is skipped with its reason."""
    try:
        await apply(rule, agent)
    except Unsupported as reason:
        pytest.skip(str(reason))
