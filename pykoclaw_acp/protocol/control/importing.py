"""`_pykoclaw.dev/import/…`: an exported session, sent in pieces, becomes a session here."""

from __future__ import annotations

from typing import Annotated

import msgspec

from pykoclaw_acp.protocol.control.answers import FullAnswer
from pykoclaw_acp.protocol.control.exports import MAX_PIECE
from pykoclaw_acp.protocol.limits import Id, Path
from pykoclaw_acp.protocol.wire import Params


class PieceParams(Params, frozen=True, kw_only=True):
    """The next bytes (base64) of the export; without `upload`, the first ones of another."""

    data: Annotated[str, msgspec.Meta(max_length=MAX_PIECE // 3 * 4)]
    upload: Id | None = None


class Uploaded(FullAnswer, frozen=True, kw_only=True):
    """The upload, for the next piece."""

    upload: str


class AbandonParams(Params, frozen=True, kw_only=True):
    """Forget an upload."""

    upload: Id


class ImportParams(Params, frozen=True, kw_only=True):
    """Make a session of what was uploaded, in the directory `cwd`."""

    upload: Id
    cwd: Path


class ImportedSession(FullAnswer, frozen=True, kw_only=True):
    """The new session; `left_out`: entries that could not be taken over; `summary`: Claude gets one
    of what was said last.
    """

    session: str
    title: str | None
    events: int
    left_out: int
    summary: bool = True
