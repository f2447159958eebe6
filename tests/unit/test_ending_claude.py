"""End of the CLI, on a stand-in for the client; the real one is under tests/e2e."""

from __future__ import annotations

from typing import cast

import pytest
from claude_agent_sdk import ClaudeSDKClient
from claude_agent_sdk._internal.query import logger as reader

from pykoclaw_acp.worker import ending


class Client:
    """Its reader finds the CLI ended before the SDK has stopped it, as on a busy machine."""

    async def disconnect(self) -> None:
        reader.error("Fatal error in message reader: Command failed with exit code -15")


async def test_asked_end_is_logged_as_no_error(caplog: pytest.LogCaptureFixture) -> None:
    client = cast("ClaudeSDKClient", Client())
    await ending.end(client, running=False, busy=True, abrupt=False)
    assert caplog.records == []
    reader.error("Fatal error in message reader: it died")
    assert [one.levelname for one in caplog.records] == ["ERROR"]
