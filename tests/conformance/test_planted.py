"""Each rule accepts an agent that keeps it, and finds a fault that breaks it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conformance import rules
from tests.conformance.fake.wire import Fault, MemoryAgent
from tests.conformance.planted import PLANTED, NoLogins
from tests.conformance.registry import RULES, Rule, Violation, in_order

assert rules
PATIENT = 30.0  # seconds
IMPATIENT = 1.0  # seconds; a fault that leaves the client waiting lasts so long


class NoLogin(Fault):
    logins = False


async def apply(rule: Rule, agent: MemoryAgent) -> None:
    """The test of a rule; raises Violation or Unsupported."""
    try:
        if rule.acts is not None:
            await rule.acts(agent)
        else:
            await agent.toured()
            assert rule.looks is not None
            for recording in agent.recordings:
                rule.looks(recording)
    finally:
        await agent.close()


def test_each_rule_has_a_fault() -> None:
    assert set(PLANTED) == set(RULES)


@pytest.mark.parametrize("rule", in_order(), ids=lambda rule: rule.name)
async def test_an_agent_that_keeps_the_rule_passes(rule: Rule, tmp_path: Path) -> None:
    planted = PLANTED[rule.name]
    fault = NoLogin() if isinstance(planted, NoLogins) else Fault()
    await apply(rule, MemoryAgent(tmp_path, PATIENT, fault))


@pytest.mark.parametrize("rule", in_order(), ids=lambda rule: rule.name)
async def test_a_violation_is_found(rule: Rule, tmp_path: Path) -> None:
    with pytest.raises(Violation):
        await apply(rule, MemoryAgent(tmp_path, IMPATIENT, PLANTED[rule.name]))
