"""What a worker tells of plugins, once in a session."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pykoclaw_acp.model.events import Text
from pykoclaw_acp.worker.plugins.loading import Complaint
from pykoclaw_acp.worker.servers import Servers
from tests.workers import spec

ONE = Complaint("one", "could not be loaded", serious=True)
OTHER = Complaint("other", "prints", serious=False)
THIRD = Complaint("third", "did not load", serious=True)


def servers(told: str, *complaints: Complaint) -> Servers:
    calls: Any = None
    plugins = SimpleNamespace(complaints=complaints)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("pykoclaw_acp.worker.servers.Plugins", lambda *_: plugins)
        return Servers(spec(Path("instance"), told=told), calls)


def said(of: Servers) -> str:
    return "".join(event.text for event in of.notice("turn") if isinstance(event, Text))


def test_the_next_worker_tells_only_what_is_new() -> None:
    first = servers("", ONE, OTHER)
    assert "`one`" in said(first)
    assert said(first) == ""
    following = servers(first.told, OTHER, THIRD, ONE)  # in another order
    told = said(following)
    assert "`third`" in told
    assert "`one`" not in told
    assert "`other`" not in told


def test_what_was_wrong_once_is_not_forgotten() -> None:
    healed = servers(servers("", ONE).told)
    assert said(healed) == ""
    assert said(servers(healed.told, ONE)) == ""
