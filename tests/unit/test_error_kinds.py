from __future__ import annotations

import msgspec

from pykoclaw_acp.error_kinds import ErrorKind
from pykoclaw_acp.model.failures import TurnFailure


def test_kind_of_another_version_survives_frames_and_rows() -> None:
    written = msgspec.json.encode({"kind": "of_tomorrow", "message": "m"})
    failure = msgspec.json.decode(written, type=TurnFailure)
    assert failure.kind == "of_tomorrow"
    assert not failure.retryable
    assert msgspec.json.encode(failure) == written
    assert "of_tomorrow" not in set(ErrorKind)


def test_known_kind_is_the_member() -> None:
    failure = msgspec.json.decode(b'{"kind":"rate_limit","message":"m"}', type=TurnFailure)
    assert failure.kind is ErrorKind.RATE_LIMIT
    assert failure.retryable
