"""`_pykoclaw.dev/trust/…`: trusted directories, and what their active content is."""

from __future__ import annotations

from pykoclaw_acp.protocol.control.answers import FullAnswer
from pykoclaw_acp.protocol.limits import Path
from pykoclaw_acp.protocol.wire import Params


class TrustParams(Params, frozen=True, kw_only=True):
    """`path`: absolute path of a directory. `tree`: trust it and everything below, whatever it
    holds.
    """

    path: Path
    tree: bool = False


class TrustShowParams(Params, frozen=True, kw_only=True):
    """`path`: absolute path of a directory. `all_sources`: with what settings files let act that
    the daemon leaves out.
    """

    path: Path
    all_sources: bool = False


class TrustListParams(Params, frozen=True, kw_only=True):
    """`without`: also the directories in which Claude runs without active content."""

    without: bool = False


class TrustedDirectory(FullAnswer, frozen=True, kw_only=True):
    """A trusted directory. `tree`: includes everything below; `pending`: what it holds is trusted
    at the next prompt there.

    `dotenv`: its `.env` is read. `by`: a client's name, `cli`, or `upgrade`; empty if nobody chose.
    `trusted`: false if the last choice was to run without what acts there.
    """

    path: str
    tree: bool
    pending: bool
    dotenv: bool
    by: str
    at: int
    trusted: bool = True


class RunWithout(FullAnswer, frozen=True, kw_only=True):
    """Claude runs without what acts in a directory; `by`: empty if nobody chose."""

    by: str
    at: int


class Looked(FullAnswer, frozen=True, kw_only=True):
    """Active content of a directory, in words; `complete`: nothing was left out. `trusted`: all of
    it is trusted.

    `dotenv`: its `.env` has settings of this program. `changes`: what has changed since it was
    trusted, in lines. `without`: who chose last to run without it, and when.
    """

    path: str
    found: list[str]
    complete: bool
    trusted: bool
    dotenv: list[str]
    changes: list[str]
    without: RunWithout | None = None
