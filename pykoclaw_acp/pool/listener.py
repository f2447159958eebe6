"""Interface through which the pool reports to the sessions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from pykoclaw_acp.channel.frames import Numbered, Ready
from pykoclaw_acp.channel.options import WorkerOptions
from pykoclaw_acp.channel.requests import WorkerReply
from pykoclaw_acp.channel.spec import LaunchSpec
from pykoclaw_acp.error_kinds import ErrorKind
from pykoclaw_acp.model.choices import Offer


class WorkerListener(Protocol):
    """Receives workers' frames and state changes, and completes their options."""

    async def completed(self, session_id: str, options: WorkerOptions) -> WorkerOptions:
        """The options with what only sessions know, for a worker that is launched now. Raises
        WorkerFailed.
        """

    def ready(self, session_id: str, offer: Offer, launched: LaunchSpec | None) -> None:
        """The session's worker takes prompts; so much is known of what Claude offers. `launched`: as
        what, if this daemon has launched it.
        """

    def offered(self, session_id: str, offer: Offer) -> None:
        """What Claude offers in the session has changed."""

    async def adopted(self, session_id: str, ready: Ready, *, foreign: bool) -> None:
        """A worker of an earlier daemon has answered; a `foreign` one, of another protocol version,
        gets no prompt.
        """

    async def frames(self, session_id: str, epoch: int, frames: Sequence[Numbered]) -> None:
        """Commit these frames; an exception ends the worker."""

    def heard(self, session_id: str, *, hangs: bool) -> None:
        """The worker lives; `hangs`: in its turn, Claude's process does not answer."""

    def replied(self, session_id: str, reply: WorkerReply) -> None:
        """The worker has answered a request."""

    async def lost(self, session_id: str, epoch: int, kind: ErrorKind, message: str) -> None:
        """The worker is gone; `kind` and `message` as in TurnFailure."""

    async def hooks_may_run(self, session_id: str, workspace: str | None) -> bool:
        """Whether hooks may run as Claude ends: what acts in the session's directories is what its
        worker has, as its options' `workspace` says, and may have it. May raise anything.
        """

    def make_room(self, session_id: str) -> None:
        """This session waits for a worker, and none is idle: another session should give up its
        own.
        """
