"""Daemons that take their time to end."""

from __future__ import annotations

import os
import subprocess

import pytest

from pykoclaw_acp.commands import stopping
from pykoclaw_acp.error_kinds import ErrorKind
from pykoclaw_acp.errors import CommandFailed
from pykoclaw_acp.link import places

DEAF = "trap '' TERM; echo; cat"  # until its standard input is closed


@pytest.mark.parametrize("serves", [False, True])
def test_kill_is_advised_only_for_daemon_that_serves(
    monkeypatch: pytest.MonkeyPatch, serves: bool
) -> None:
    """What one that migrates its database has done would be lost."""
    pipe = subprocess.PIPE
    with subprocess.Popen(["sh", "-c", DEAF], stdin=pipe, stdout=pipe) as process:
        assert process.stdout is not None
        process.stdout.readline()
        monkeypatch.setattr(places, "lock_holder", lambda _: (process.pid, "/s"))
        monkeypatch.setattr(places, "serves", lambda _: serves)
        monkeypatch.setattr(stopping, "END_WAIT", 0.1)
        with pytest.raises(CommandFailed) as told:
            stopping.end(process.pid)
        assert ("kill -9" in str(told.value)) == serves
        assert ("migrates its database" in str(told.value)) != serves


@pytest.mark.parametrize("kind", [ErrorKind.NESTED_CALLER, ErrorKind.INTERNAL])
def test_refusal_inside_a_session_names_no_way_round(
    monkeypatch: pytest.MonkeyPatch, kind: ErrorKind
) -> None:
    def ask(*_: object, **__: object) -> None:
        error = CommandFailed("Refused.")
        error.kind = kind
        raise error

    monkeypatch.setattr(stopping, "ask", ask)
    pid = os.getpid()  # one that has not ended
    monkeypatch.setattr(places, "lock_holder", lambda _: (pid, "/s"))
    monkeypatch.setattr(stopping, "GONE_WAIT", 0.0)
    with pytest.raises(CommandFailed) as told:
        stopping.stop()
    assert (f"kill {pid}" in str(told.value)) == (kind != ErrorKind.NESTED_CALLER)
