"""What dead workers could not send: their spools go into the log when a server starts."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final

import structlog

from pykoclaw_acp import crash_points
from pykoclaw_acp.channel.frames import FromWorker, Lost, Numbered, TurnEnded, TurnStarted
from pykoclaw_acp.channel.processes import WorkerRecord
from pykoclaw_acp.errors import Conflict, RowRefused
from pykoclaw_acp.model.failures import TurnFailure
from pykoclaw_acp.model.turns import Outcome, SessionRecord
from pykoclaw_acp.pool.launcher import Launcher
from pykoclaw_acp.sessions.turns import limits, outcomes
from pykoclaw_acp.store.session_journal import SessionJournal
from pykoclaw_acp.store.turns import UnfinishedTurn

log: Final = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class DeadWorkersSpools:
    """`given`: turns that workers had been given, by id. `records`: the sessions of all workers.
    `usage_limit`: as in TurnTimes.
    """

    launcher: Launcher
    journal: SessionJournal
    given: Mapping[str, UnfinishedTurn]
    records: Mapping[str, SessionRecord | None]
    usage_limit: str

    async def take(self, row: WorkerRecord, last_words: dict[str, TurnFailure]) -> bool:
        """Record the frames that a dead worker could not send, with the ends of its turns; why it
        has ended, if it says so, goes into `last_words`.

        False if its spool cannot be read now: the next start tries again.
        """
        after = row.acked_frame
        said: set[str] = set()  # of all batches
        begun: set[str] = set()  # by Claude itself

        async def record(batch: list[FromWorker]) -> None:
            nonlocal after
            for frame in batch:
                if isinstance(frame, Lost):
                    last_words[row.session_id] = frame.failure
            numbered = [frame for frame in batch if isinstance(frame, Numbered)]
            if not numbered:
                return
            said.update(outcomes.said_in(numbered))
            starts = [frame for frame in numbered if isinstance(frame, TurnStarted)]
            begun.update(frame.turn_id for frame in starts if frame.background)
            ends = [frame for frame in numbered if isinstance(frame, TurnEnded)]
            told = {
                frame.turn_id: self._outcome(row.session_id, frame, said, begun) for frame in ends
            }
            await self.journal.record(row.session_id, row.epoch, numbered, told, dead=True)
            after = numbered[-1].n
            crash_points.reached("spool_taken")

        taken = True
        try:
            await self.launcher.deliver_spool(row.identity, after, record)
        except (ValueError, Conflict, RowRefused):
            log.exception(
                "A dead worker's spool could not be taken",
                action="spool_failed",
                session=row.session_id,
            )
        except OSError as error:
            kept = {"session": row.session_id, "error": str(error)}
            log.error(
                "A dead worker's spool cannot be read; the next start tries again",
                action="spool_unreadable",
                **kept,
            )
            taken = False
        if after > row.acked_frame:
            log.info(
                "Took a dead worker's spool",
                action="spool_taken",
                session=row.session_id,
                upto=after,
            )
        return taken

    def _outcome(
        self, session_id: str, frame: TurnEnded, said: Collection[str], begun: Collection[str]
    ) -> Outcome:
        """The outcome that a worker has told, with what follows if a usage limit has ended the
        turn; `begun`: turns that began by themselves since the last server.
        """
        left, record = self.given.get(frame.turn_id), self.records[session_id]
        turn = None if left is None or left.background else left.turn
        own = frame.turn_id in begun or (left is not None and left.background)
        return limits.told(
            outcomes.of_turn(frame, turn, said),
            turn if frame.into is None else None,
            self.usage_limit,
            own=session_id if own else "",
            auxiliary=record is not None and record.auxiliary,
        )
