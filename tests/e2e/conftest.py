"""The stack of an end-to-end test: the real CLI and the scripted model, in a home of its own."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from pykoclaw_acp.scripted_model.process import ScriptedModel
from tests.e2e.harness import Stack
from tests.e2e.harness.shared import Guest, Resident
from tests.e2e.mitto import Mitto


@pytest.fixture(scope="session")
def model() -> Iterator[ScriptedModel]:
    """One for all tests of this process."""
    with ScriptedModel() as running:
        yield running


@pytest.fixture
async def stack(tmp_path: Path, model: ScriptedModel) -> AsyncIterator[Stack]:
    made = Stack(tmp_path, model)
    try:
        yield made
    except BaseException:
        await made.kill_everything()
        raise
    await made.close()


@pytest.fixture(scope="session")
def resident(tmp_path_factory: pytest.TempPathFactory, model: ScriptedModel) -> Iterator[Resident]:
    """One for all tests of this process that share a daemon."""
    made = Resident(tmp_path_factory.mktemp("resident"), model)
    try:
        yield made
    except BaseException:
        made.discard()
        raise
    made.end()


@pytest.fixture
async def shared(tmp_path: Path, model: ScriptedModel, resident: Resident) -> AsyncIterator[Stack]:
    """A stack whose daemon runs already, and has been and will be that of other tests."""
    resident.serve()
    made = Guest(tmp_path, model, resident)
    yield made
    await made.close()


@pytest.fixture
def web(stack: Stack) -> Mitto:
    """`mitto web` on a stack of its own; not started yet."""
    return Mitto(stack)
