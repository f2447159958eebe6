"""Account and environment of a session's workers: what its client gives, or what is kept of that."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import Final

from msgspec.structs import replace

from pykoclaw_acp.channel.options import WorkerOptions
from pykoclaw_acp.error_kinds import ErrorKind
from pykoclaw_acp.errors import InvalidRequest
from pykoclaw_acp.model import session_environment as rules
from pykoclaw_acp.model.session_environment import ClientEnvironment, DaemonEnvironment
from pykoclaw_acp.model.turns import Turn
from pykoclaw_acp.sessions.ports import Workers
from pykoclaw_acp.sessions.state import SessionState
from pykoclaw_acp.system.clock import Clock

RETURN: Final = 30.0  # s in which clients come back to a new daemon
LOOK: Final = 0.1  # s between two looks for them


async def clients_return(lacks: Callable[[], bool], clock: Clock, *, recovered: bool) -> None:
    """Wait for clients that come back to a new daemon, as long as something lacks that they give.
    `recovered`: for what an earlier daemon has begun, which may run later.
    """
    patience = RETURN if recovered else RETURN - clock.age(clock.started)
    deadline = time.monotonic() + patience
    while lacks() and time.monotonic() < deadline:  # noqa: ASYNC110  neither clients nor tasks tell of it
        await asyncio.sleep(LOOK)


class SessionEnvironment:
    """Environment of one session. What clients give is held by their subscriptions, so as long as
    they have the session open.
    """

    def __init__(
        self,
        state: SessionState,
        workers: Workers,
        daemon_environment: DaemonEnvironment,
        clock: Clock,
    ) -> None:
        self._state = state
        self._workers = workers
        self._daemon_environment = daemon_environment
        self._clock = clock
        self._launched: Mapping[str, str] | None = None  # of the newest worker, if it is ours

    @property
    def account(self) -> str:
        """The session's account, which never changes; empty for Claude's own configuration."""
        return self._state.record.environment.account

    def open(self, given: ClientEnvironment | None) -> None:
        """Note that a client opens the session, in the record, which the caller stores."""
        record = self._state.record
        record.environment = rules.opened(self._daemon_environment, record.environment, given)

    def options(self, given: ClientEnvironment | None = None) -> WorkerOptions:
        """The options of a worker; `given`: by who asks for one, if no client has the session open."""
        found = self._environment(given)
        record, there = self._state.record, self.given or given
        used = rules.opened(self._daemon_environment, record.environment, there)
        return replace(
            self._state.options,
            account=self.account,
            accounts=self._daemon_environment.accounts,
            environment=dict(found.variables),
            own_credential=found.own_credential,
            service=used.service,
            withheld=found.withheld,
        )

    def _environment(self, given: ClientEnvironment | None) -> rules.WorkerEnvironment:
        return rules.environment(
            self._daemon_environment, self._state.record.environment, self.given or given
        )

    def require(self, given: ClientEnvironment | None) -> None:
        """Raises InvalidRequest if no worker could be started now, `given` this by who asks for one."""
        found = self._environment(given)
        if found.withheld and not self._workers.is_live(self._state.id):
            data = {"errorKind": ErrorKind.AUTHENTICATION_WITHHELD}
            raise InvalidRequest(f"{found.withheld} Nothing was changed.", data)

    async def returned(self, turn: Turn) -> None:
        """Wait for a client that gives what a turn needs which an earlier daemon has accepted, or
        nobody has sent: clients come back to a new daemon one by one, and it may run before they do.
        """
        if turn.recovered or turn.unattended:
            await clients_return(
                lambda: bool(self.options(turn.given).withheld),
                self._clock,
                recovered=turn.recovered,
            )

    def retire_other(self, options: WorkerOptions) -> None:
        """End a worker that was started with another environment than that of the client which has
        the session open now, and wants these options.
        """
        other = self._launched is not None and self._launched != options.environment
        if other and not options.withheld and self.given is not None:
            self._workers.retire(self._state.id)

    def note_launched(self, options: WorkerOptions) -> None:
        """Note that a worker is being started with these options."""
        self._launched = options.environment

    @property
    def given(self) -> ClientEnvironment | None:
        """What the client gives that has opened the session last, of those that have it open."""
        subscriptions = reversed(self._state.subscriptions)
        return next((one.given for one in subscriptions if one.alive and one.given), None)
