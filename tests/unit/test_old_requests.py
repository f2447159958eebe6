"""Launch requests of daemons from before `worker/forkserver.py`, which start the fork server of today."""

from __future__ import annotations

from pathlib import Path

import msgspec

from pykoclaw_acp.channel.spec import LaunchSpec
from pykoclaw_acp.pool.forkserver import nested
from tests import workers


def test_a_flat_request_is_that_of_today(tmp_path: Path) -> None:
    today = workers.spec(tmp_path, orphan_grace=7.0)
    fields = msgspec.to_builtins(today)
    options = fields.pop("options")
    assert msgspec.json.decode(nested(msgspec.json.encode(fields | options)), type=LaunchSpec) == today
