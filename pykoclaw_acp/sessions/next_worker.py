"""The options with which a session's next worker is launched, as clients change them."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

from pykoclaw_acp.channel.options import WorkerOptions
from pykoclaw_acp.sessions.background import BackgroundTurns
from pykoclaw_acp.sessions.early_start import EarlyStart
from pykoclaw_acp.sessions.ports import SessionStore, Workers
from pykoclaw_acp.sessions.state import SessionState
from pykoclaw_acp.tasks import Tasks, told_elsewhere


class NextWorker:
    """Takes a session's options. A live worker that was launched with others ends as soon as no
    turn runs on it, and one with background work at the next prompt.
    """

    def __init__(
        self,
        state: SessionState,
        store: SessionStore,
        workers: Workers,
        background: BackgroundTurns,
        early: EarlyStart,
    ) -> None:
        self._state = state
        self._store = store
        self._workers = workers
        self._background = background
        self._early = early
        self._opened = False  # in this daemon: the options are a client's, not the database's
        self._adopted_epoch: int | None = None
        self._outdated = False
        self._silent_epoch: int | None = None  # of an adopted worker with other options
        self._spared = True  # its background work
        self._kept = False  # though it is a helper's
        self._tasks = Tasks()

    def note_adopted(self, epoch: int) -> None:
        """Note that another daemon launched the worker of this epoch, as its clients wanted."""
        self._adopted_epoch = epoch

    def note_outdated(self, epoch: int, *, spare: bool) -> None:
        """Note that the adopted worker of this epoch is to be replaced, as another daemon has written
        down: at the next prompt, or, when it has said what runs on it, as `change` does.
        """
        self._silent_epoch, self._spared = epoch, spare
        self._state.superseded = True

    def worker_ready(self) -> None:
        """Note that the worker has said what runs on it."""
        silent, self._silent_epoch = self._silent_epoch, None
        if silent is not None and silent == self._state.epoch:
            self._outdated = True
            self.rest()

    def open(self, options: WorkerOptions) -> None:
        """Take the options with which a client opens the session."""
        self._opened = True
        if options != self._state.options:
            self.change(options)

    def reopen(self, options: WorkerOptions) -> None:
        """Take the options with which a client opened the session under another daemon; an adopted
        worker has them.
        """
        if self._opened:
            return
        self._opened = True
        if (
            options != self._state.options
            and self._state.epoch != self._adopted_epoch
            and self._workers.is_live(self._state.id)
        ):
            self.change(options)
        else:
            self._state.options = options

    def change(self, options: WorkerOptions, *, spare: bool = True) -> None:
        """Launch the next worker with these options. Unless its background work is to be spared,
        the live one does not wait for the next prompt.
        """
        self._state.options = options
        self._outdated = True
        self._spared = self._spared and spare
        if self._workers.is_live(self._state.id):  # it may go on under another daemon
            noting = self._tasks.start(self._store.outdate_worker(self._state.id, spare=spare))
            noting.add_done_callback(told_elsewhere)
        self.rest()

    @contextlib.asynccontextmanager
    async def postponed(self) -> AsyncIterator[None]:
        """End no worker meanwhile, and start none early: the live one is used without a turn, and
        what the next one resumes changes.
        """
        try:
            async with self._early.bar():
                yield
        finally:
            self.rest()

    def keep(self) -> None:
        """Let the worker of a helper session live on, until `let_go`: its background work is awaited."""
        self._kept = True

    def let_go(self) -> None:
        """Nobody waits for its background work any more."""
        self._kept = False
        self.rest()

    def rest(self) -> None:
        """End the live worker if it was launched with other options, and no turn runs or waits; and
        that of a helper session, to which nobody comes back.
        """
        helper = self._state.record.auxiliary
        used = self._state.busy or self._background or self._early.barred or self._kept
        if used or not (self._outdated or helper):
            return
        if self._spared and not helper and self._workers.works(self._state.id):
            self._state.superseded = True
        else:
            self._early.end()  # also one that is only about to be launched
        self._outdated, self._spared = False, True
