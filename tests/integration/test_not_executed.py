"""A Python that cannot be executed any more: the user and the log are told."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import structlog

from pykoclaw_acp.channel.files import WorkerFiles
from pykoclaw_acp.channel.processes import ForkRequest
from pykoclaw_acp.errors import LaunchFailed
from pykoclaw_acp.link.places import Places
from pykoclaw_acp.pool.local_forkserver import ForkServer
from tests import workers
from tests.integration.front_harness import FAKE_START, WAIT, Client


@pytest.fixture(params=["Permission denied", "No such file or directory"])
def python(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, str]:
    """A path that cannot be executed, and why."""
    path = tmp_path / "bin" / "python"
    path.parent.mkdir()
    if request.param == "Permission denied":
        path.write_text("#!/bin/sh\n")
    return str(path), f"{path} cannot be executed ({request.param})."


def test_front_and_log_name_the_daemons_python(python: tuple[str, str], tmp_path: Path) -> None:
    path, words = python
    places = Places(
        str(tmp_path / "data"), str(tmp_path / "state"), str(tmp_path / "run" / "acp.sock")
    )
    with Client(places, str(FAKE_START), "serve", FAKE_PYTHON=path) as client:
        client.request("session/new")
        error = client.message()["error"]
        assert client.process.wait(WAIT) == 1
        assert words in error["message"]
        assert "install pykoclaw-acp again" in error["message"]
        assert error["data"] == {"errorKind": "daemon_not_started"}
        assert words in client.said()[-1]
    assert words in Path(places.log).read_text()


async def test_turn_and_log_name_the_workers_python(
    python: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, words = python
    monkeypatch.setattr(sys, "executable", path)
    server = ForkServer(tmp_path / "workers.log", resident=True)
    spec = workers.spec(tmp_path)
    with structlog.testing.capture_logs() as said, pytest.raises(LaunchFailed) as failed:
        await server.fork(ForkRequest(spec, WorkerFiles.of(tmp_path, spec)))
    assert words in failed.value.message
    assert [words in one["error"] for one in said] == [True]
