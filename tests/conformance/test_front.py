"""The rules of ACP, one test each: our agent over the front and a resident daemon."""

from __future__ import annotations

import pytest

from tests.conformance.agents import Agent
from tests.conformance.examining import examine
from tests.conformance.registry import Rule

KIND = "front"
pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_agent_keeps_rule_over_front(rule: Rule, agent: Agent) -> None:
    await examine(rule, agent)
