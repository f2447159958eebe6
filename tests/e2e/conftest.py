"""The stack of an end-to-end test: the real CLI and the scripted model, in a home of its own."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from pykoclaw_acp.scripted_model.process import ScriptedModel
from tests.e2e.harness import Stack


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
