"""What the parts of a session share."""

from __future__ import annotations

import asyncio

from pykoclaw_acp.channel.options import WorkerOptions
from pykoclaw_acp.model import client_traits
from pykoclaw_acp.model.events import ConfigChanged, Event, ModeChanged, TitleChanged
from pykoclaw_acp.model.turns import SessionRecord
from pykoclaw_acp.sessions import worker_options
from pykoclaw_acp.sessions.log import SessionLog
from pykoclaw_acp.sessions.ports.journal import LogAndBlobs
from pykoclaw_acp.sessions.subscription import Subscription


class SessionState:
    """A session's row, its log, the clients that follow it, and what its next worker is launched
    with.

    The parts of a session read it. Besides `apply`, these write: `options`: NextWorker; `epoch`:
    Session, EarlyLauncher, TurnRunner, Choosing, WorkerReports; `running`, `explained` and
    `subscriptions`: Session; `superseded`: NextWorker, OtherPrograms, WorkerReports; `refusals`:
    Broker, WorkerReports; `unsaid`: Directories, OtherPrograms, and TurnRunner and Endings, which
    say it. Whoever commits fields of `record` sets them here as well.
    """

    def __init__(self, record: SessionRecord, options: WorkerOptions, store: LogAndBlobs) -> None:
        self.id = record.session_id
        self.record = record
        self.options = options
        self.epoch = 0  # of the newest worker
        self.explained: set[str] = set()  # turns that end for a reason which the log has
        self.unsaid: list[Event] = []  # said once, with the next prompt that begins, or ends before
        self.refusals: dict[str, str] = {}  # who has refused a call that has not ended, by its id
        self.superseded = False  # its worker has other options than the next one, or no login
        self.running: asyncio.Task[None] | None = None  # runs the turns; None: none runs or waits
        self.subscriptions: list[Subscription] = []
        self.log = SessionLog(record, store, self.apply)

    @property
    def last_seq(self) -> int:
        """The newest event's place in the log."""
        return self.record.last_seq

    @property
    def busy(self) -> bool:
        """Whether a turn runs or waits."""
        return self.running is not None

    @property
    def opens_pages(self) -> bool:
        """Whether a client is there that can open a page for the user."""
        return any(
            one.alive and one.client.present and one.client.pages for one in self.subscriptions
        )

    def acted_in(self, name: str, author: str | None) -> str:
        """Where a client of this name has acted upon a prompt of `author`, for the log; empty if
        nobody else has to be told: no other client is there, and the prompt is its own.
        """
        here = [client.name for client in {one.client for one in self.subscriptions}]
        others = len(here) - (name in here)
        return client_traits.place(name) if others or author not in (None, name) else ""

    def apply(self, event: Event | None) -> None:
        """Make the mode, model, config or title of a logged event the session's own."""
        if isinstance(event, ModeChanged):
            self.record.mode = event.mode
            options = worker_options.followed(self.options, event)
            self.options = worker_options.narrowed(options, self.record.options)
        elif isinstance(event, ConfigChanged):
            self.options = worker_options.followed(self.options, event)
            if self.options.model is not None:
                self.record.model = self.options.model
            if event.selection.config is not None:
                self.record.config = event.selection.config
        elif isinstance(event, TitleChanged):
            self.record.title, self.record.title_by = event.title, event.by
