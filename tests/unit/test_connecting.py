"""A CLI that ends while it starts, whatever the SDK notices of that first."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from claude_agent_sdk import CLIConnectionError, ProcessError

from pykoclaw_acp.worker import connecting
from pykoclaw_acp.worker.connecting import CliEnded, connect


class Refusing:
    """A client whose request the CLI does not take; it has ended with `status` by then."""

    def __init__(self, status: int | None) -> None:
        self.process = SimpleNamespace(returncode=None)
        self._transport = SimpleNamespace(_process=self.process)  # as the SDK's client
        self._status = status

    async def connect(self) -> None:
        self.process.returncode = self._status
        raise CLIConnectionError("Failed to write to process stdin")


async def test_cli_ending_before_taking_request_has_ended() -> None:
    client: Any = Refusing(0)
    with pytest.raises(CliEnded) as caught:
        await connect(client)
    assert caught.value.status == 0


async def test_crash_before_taking_request_keeps_its_status() -> None:
    client: Any = Refusing(-6)
    with pytest.raises(ProcessError) as caught:
        await connect(client)
    assert caught.value.exit_code == -6


async def test_other_failures_stay_what_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connecting, "NOTICE_WAIT", 0.01)
    client: Any = Refusing(None)
    with pytest.raises(CLIConnectionError):
        await connect(client)
