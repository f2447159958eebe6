"""The rules of ACP, one test each, against an agent that a command line starts."""

from __future__ import annotations

import pytest

from tests.conformance import rules
from tests.conformance.agents import Agent
from tests.conformance.conftest import kinds
from tests.conformance.registry import RULES, Rule, Unsupported, in_order

assert rules
pytestmark = pytest.mark.asyncio(loop_scope="session")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """The tests of an agent form a group, for `--dist loadgroup`: they share its process."""
    if "rule" not in metafunc.fixturenames:
        return
    cases = [
        pytest.param(
            kind,
            rule,
            id=f"{kind}-{rule.name}",
            marks=(getattr(pytest.mark, rule.level), pytest.mark.xdist_group(kind)),
        )
        for kind in kinds(metafunc.config)
        for rule in in_order()
    ]
    metafunc.parametrize(("agent", "rule"), cases, indirect=["agent"], scope="session")


async def test_rule(agent: Agent, rule: Rule) -> None:
    try:
        if rule.acts is not None:
            await rule.acts(agent)
            return
        await agent.toured()
    except Unsupported as reason:
        pytest.skip(str(reason))
    assert rule.looks is not None
    for recording in agent.recordings:
        rule.looks(recording)


def test_rules_say_what_they_demand() -> None:
    for rule in RULES.values():
        assert rule.text[0].isupper() or rule.text.startswith("`"), rule.name
