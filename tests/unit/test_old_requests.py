"""Launch requests of daemons from before `worker/forkserver.py`, which start the fork server of
today.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from pykoclaw_acp.channel.files import WorkerFiles
from pykoclaw_acp.channel.processes import ForkRequest
from pykoclaw_acp.pool.forkserver import nested
from tests import workers


def test_a_flat_request_is_that_of_today(tmp_path: Path) -> None:
    spec = workers.spec(tmp_path, orphan_grace=7.0)
    today = ForkRequest(spec, WorkerFiles.of(tmp_path, spec))
    fields = msgspec.to_builtins(today.spec)
    flat = fields | fields.pop("options") | msgspec.to_builtins(today.files)
    assert msgspec.json.decode(nested(msgspec.json.encode(flat)), type=ForkRequest) == today
