"""The options with which a session's next worker is launched, as clients change them."""

from __future__ import annotations

from collections.abc import Callable

from pykoclaw_acp.channel.options import WorkerOptions
from pykoclaw_acp.sessions.ports import Workers
from pykoclaw_acp.sessions.state import SessionState


class NextWorker:
    """Takes a session's options. A live worker that was launched with others ends as soon as nothing
    runs on it.

    `busy` says whether a turn runs or waits; `end` ends the worker, also if it is only about to be
    launched, before any prompt.
    """

    end: Callable[[], None]

    def __init__(self, state: SessionState, workers: Workers, busy: Callable[[], bool]) -> None:
        self._state = state
        self._workers = workers
        self._busy = busy
        self._opened = False  # in this daemon: the options are a client's, not the database's
        self._adopted_epoch: int | None = None
        self._outdated = False

    def note_adopted(self, epoch: int) -> None:
        """Note that another daemon launched the worker of this epoch, as its clients wanted."""
        self._adopted_epoch = epoch

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

    def change(self, options: WorkerOptions) -> None:
        """Launch the next worker with these options; the live one ends as soon as nothing runs on
        it.
        """
        self._state.options = options
        if self._busy():
            self._outdated = True
        else:
            self.end()

    def rest(self) -> None:
        """End the live worker if it was launched with other options, now that no turn runs or
        waits; and that of a client's own helper session, to which nobody comes back.
        """
        if self._outdated or self._state.record.auxiliary:
            self._outdated = False
            self._workers.retire(self._state.id)
