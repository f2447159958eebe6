"""The pool's listener: passes events of workers to their sessions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from pykoclaw_acp.channel.frames import Numbered, Ready
from pykoclaw_acp.channel.options import WorkerOptions
from pykoclaw_acp.channel.requests import WorkerReply
from pykoclaw_acp.channel.spec import LaunchSpec
from pykoclaw_acp.error_kinds import ErrorKind
from pykoclaw_acp.model.choices import Offer
from pykoclaw_acp.sessions.session import Session


class WorkerEvents:
    """Passes a worker's frames and its end to the session in memory; `retire` ends the worker of a
    deleted session.
    """

    def __init__(self, live: Mapping[str, Session], retire: Callable[[str], None]) -> None:
        self._live = live
        self._retire = retire

    async def completed(self, session_id: str, options: WorkerOptions) -> WorkerOptions:
        """The options with what the database has for a worker that is launched."""
        live = self._live.get(session_id)
        return options if live is None else await live.runner.completed(options)

    def ready(self, session_id: str, offer: Offer, launched: LaunchSpec | None) -> None:
        """Keep what a worker that is ready runs with, whoever still waits for it, and offers."""
        if (live := self._live.get(session_id)) is not None:
            if launched is not None:
                live.choosing.note_launched(launched.epoch, launched.options)
            live.requests.worker_ready()
            live.reports.keep_offer(offer, starts=True)
            live.next_worker.worker_ready()

    def offered(self, session_id: str, offer: Offer) -> None:
        """Keep what Claude offers now."""
        if (live := self._live.get(session_id)) is not None:
            live.reports.keep_offer(offer, starts=False)

    async def adopted(self, session_id: str, ready: Ready, *, foreign: bool) -> None:
        """Give an adopted worker, which has answered, what it missed."""
        if (live := self._live.get(session_id)) is not None:
            await live.reports.catch_up(ready, foreign=foreign)
            live.parking.caught_up(ready.asks)

    async def frames(self, session_id: str, epoch: int, frames: Sequence[Numbered]) -> None:
        """Commit and publish a worker's frames."""
        live = self._live.get(session_id)
        if live is None:  # it was deleted
            self._retire(session_id)
        else:
            await live.take_frames(epoch, frames)

    def heard(self, session_id: str, *, hangs: bool) -> None:
        """Note whether Claude's process hangs in its turn."""
        if (live := self._live.get(session_id)) is not None:
            live.reports.hangs = hangs

    def replied(self, session_id: str, reply: WorkerReply) -> None:
        """Pass on a worker's answer to a request."""
        if (live := self._live.get(session_id)) is not None:
            live.requests.take(reply)

    async def lost(self, session_id: str, epoch: int, kind: ErrorKind, message: str) -> None:
        """End what the worker was doing: it is gone."""
        if (live := self._live.get(session_id)) is not None:
            live.requests.lost(message)
            await live.reports.lost(epoch, kind, message)

    async def hooks_may_run(self, session_id: str, workspace: str | None) -> bool:
        """Whether what acts in the session's directories is what its worker has, and may have."""
        live = self._live.get(session_id)
        return live is not None and await live.gate.counts_for(workspace)

    def make_room(self, session_id: str) -> None:
        """Park the oldest request that can be, one at a time: this session waits for a worker, and
        none is free.
        """
        if (waiting := self._live.get(session_id)) is not None:
            waiting.pause_current()
        if any(session.parking.gives_up_worker for session in self._live.values()):
            return
        away = {
            session: since
            for session in self._live.values()
            if (since := session.permissions.away.unattended_since)
        }
        if away:
            min(away, key=lambda session: away[session]).permissions.away.park_oldest()
