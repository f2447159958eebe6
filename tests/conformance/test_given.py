"""The rules of ACP, one test each: the agent that `--agent` gives."""

from __future__ import annotations

import pytest

from tests.conformance.agents import Agent
from tests.conformance.examining import examine
from tests.conformance.registry import Rule

KIND = "given"
pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_given_agent_keeps_rule(rule: Rule, agent: Agent) -> None:
    await examine(rule, agent)
