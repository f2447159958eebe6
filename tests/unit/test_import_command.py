"""`import`, whose daemon dies."""

from __future__ import annotations

import io
from typing import Any

import pytest

from pykoclaw_acp.commands import importing
from pykoclaw_acp.errors import DaemonNotRunning
from pykoclaw_acp.protocol.control.exports import FORMAT

EXPORT = b'{"format": "%s", "version": 1, "session": {}, "events": []}' % FORMAT.encode()


@pytest.mark.parametrize(
    ("stood", "words"),
    [(1.0, "It may be there: look at `pykoclaw-acp sessions list`"), (None, "No.")],
)
def test_import_cut_off_at_end_may_exist(
    monkeypatch: pytest.MonkeyPatch, stood: float | None, words: str
) -> None:
    def ask(method: str, **_: Any) -> Any:
        if method == "import/piece":
            return {"upload": "u"}
        gone = DaemonNotRunning("No.")
        gone.stood = stood
        raise gone

    monkeypatch.setattr(importing, "ask", ask)
    with pytest.raises(DaemonNotRunning, match=words):
        importing.main(io.BytesIO(EXPORT), "/")
