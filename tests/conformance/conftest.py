"""Which agent is tested: ours over the front and over `serve --stdio`, or any other by `--agent`."""

from __future__ import annotations

import os
import shlex
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio

from pykoclaw_acp.link import logins
from pykoclaw_acp.scripted_model.process import ScriptedModel
from tests.conformance import rules
from tests.conformance.agents import Agent, CommandAgent
from tests.conformance.ours import OurAgent
from tests.conformance.registry import Rule, in_order
from tests.conformance.rules import initializing, prompting, transport
from tests.e2e.harness.stack import PROGRAM, Stack

OURS = {"front": PROGRAM, "stdio": (*PROGRAM, "serve", "--stdio")}
GIVEN = "given"
# Rules about what is different without front and socket: lines, the first call, turns, the end.
OF_STDIO = {module.__name__ for module in (initializing, prompting, transport)}
assert rules
PATIENCE = 60.0  # seconds


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("conformance", "the agent that tests/conformance examines")
    group.addoption("--agent", metavar="COMMAND", help="an ACP agent on stdio; default: ours")
    group.addoption(
        "--agent-env", metavar="NAME=VALUE", action="append", default=[],
        help="a variable of its environment; {url} is the scripted model's address, {home} an empty home",
    )  # fmt: skip
    group.addoption(
        "--agent-login", metavar="ID", help="an authentication method that needs no person"
    )
    group.addoption(
        "--agent-own-model", action="store_true",
        help="it does not use the scripted model: rules that need it are left out",
    )  # fmt: skip
    group.addoption(
        "--agent-patience", metavar="SECONDS", type=float, default=PATIENCE,
        help="how long an answer may take; default: 60",
    )  # fmt: skip


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "must: a rule that agents MUST keep")
    config.addinivalue_line("markers", "should: a rule that agents SHOULD keep")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Only the agent that was given is examined, if one was."""
    given = config.getoption("--agent", None) is not None
    if collection_path.name == "test_given.py":
        return not given
    if given and collection_path.name.startswith("test_"):
        return True
    return None


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A file for each agent: the tests of a file run in one process, and share the agent's."""
    kind = getattr(metafunc.module, "KIND", None)
    if kind is not None:
        cases = [pytest.param(rule, id=rule.name, marks=_marks(rule, kind)) for rule in in_order()]
        metafunc.parametrize("rule", cases)
        metafunc.parametrize("agent", [kind], indirect=True, ids=[""])


def _marks(rule: Rule, kind: str) -> list[pytest.MarkDecorator]:
    """Its level; and `long` where `serve --stdio` answers from what the front examines as well."""
    marks: list[pytest.MarkDecorator] = [getattr(pytest.mark, rule.level)]
    if kind == "stdio" and rule.acts is not None and rule.acts.__module__ not in OF_STDIO:
        marks.append(pytest.mark.long)
    return marks


@pytest.fixture(scope="session")
def model() -> Iterator[ScriptedModel]:
    with ScriptedModel() as running:
        yield running


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def agent(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, model: ScriptedModel
) -> AsyncIterator[Agent]:
    """The agent, and what was exchanged with it so far."""
    stack = Stack(tmp_path_factory.mktemp(request.param), model)
    made = _agent(request.config, request.param, stack)
    try:
        if request.param == "front":
            await stack.daemon()  # one that a front has started ends soon after it
        yield made
        await made.close()
    except BaseException:
        await stack.kill_everything()
        raise
    if request.param == GIVEN:
        await stack.kill_everything()
    else:
        await stack.close()


def _agent(config: pytest.Config, kind: str, stack: Stack) -> Agent:
    patience = config.getoption("--agent-patience", PATIENCE)
    if kind != GIVEN:
        ours = OurAgent(OURS[kind], stack.environment, stack.root, patience)
        ours.login, ours.home = logins.KEY, stack.home
        return ours
    given = dict(one.split("=", 1) for one in config.getoption("--agent-env"))
    places = {"url": stack.model.url, "home": os.fspath(stack.home)}
    environment = stack.environment | {
        name: value.format(**places) for name, value in given.items()
    }
    command = shlex.split(config.getoption("--agent"))
    if os.sep in command[0]:  # the agent is started elsewhere
        command[0] = os.path.abspath(command[0])
    made = CommandAgent(command, environment, stack.root, patience)
    made.login = config.getoption("--agent-login")
    made.scripted = not config.getoption("--agent-own-model")
    return made
