"""Each rule accepts an agent that keeps it, and finds a fault that breaks it."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.conformance.examining import apply
from tests.conformance.fake.wire import Fault, MemoryAgent
from tests.conformance.planted import PLANTED, NoLogins
from tests.conformance.registry import RULES, Rule, Violation, in_order

PATIENT = 30.0  # seconds
IMPATIENT = 1.0  # seconds; a fault that leaves the client waiting lasts so long


class NoLogin(Fault):
    logins = False


@contextlib.asynccontextmanager
async def closing(root: Path, patience: float, fault: Fault) -> AsyncIterator[MemoryAgent]:
    agent = MemoryAgent(root, patience, fault)
    try:
        yield agent
    finally:
        await agent.close()


def test_each_rule_has_a_fault() -> None:
    assert set(PLANTED) == set(RULES)


@pytest.mark.parametrize("rule", in_order(), ids=lambda rule: rule.name)
async def test_an_agent_that_keeps_the_rule_passes(rule: Rule, tmp_path: Path) -> None:
    planted = PLANTED[rule.name]
    fault = NoLogin() if isinstance(planted, NoLogins) else Fault()
    async with closing(tmp_path, PATIENT, fault) as agent:
        await apply(rule, agent)


@pytest.mark.parametrize("rule", in_order(), ids=lambda rule: rule.name)
async def test_a_violation_is_found(rule: Rule, tmp_path: Path) -> None:
    with pytest.raises(Violation):
        async with closing(tmp_path, IMPATIENT, PLANTED[rule.name]) as agent:
            await apply(rule, agent)
