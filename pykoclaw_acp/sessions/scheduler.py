"""The scheduler: runs tasks whose time has come, unless pykoclaw's own scheduler does."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final

import structlog

from pykoclaw_acp.errors import Conflict, StoreUnavailable
from pykoclaw_acp.model.scheduled import Task
from pykoclaw_acp.sessions.ports.tasks import TaskStore
from pykoclaw_acp.sessions.rounds import AFTER_FAILURE, until_closed
from pykoclaw_acp.sessions.task_runs import TaskRuns

LONGEST_PAUSE: Final = 60.0  # s between two looks
SHORTEST_PAUSE: Final = 0.05  # s
STANDING_BY: Final = 10.0  # s between two looks for the other scheduler, while tasks are due

log: Final = structlog.get_logger()


class Scheduler:
    """Claims due tasks and runs them; looks again when a task may have changed.

    `find_other` returns the pid of pykoclaw's scheduler, if that runs: it claims nothing, so this
    one stands by.
    """

    def __init__(
        self, store: TaskStore, runs: TaskRuns, find_other: Callable[[], int | None]
    ) -> None:
        self.other: int | None = None  # pid for which it stands by
        self._store = store
        self._runs = runs
        self._find_other = find_other

    async def run(self) -> None:
        """Run until cancelled, or until the store is closed."""
        await until_closed(
            self._store,
            self._runs.changed,
            self._round,
            damaged="Tasks cannot be read or run",
            failed="Tasks could not be looked at",
            action="scheduler_failed",
        )

    async def _round(self) -> float:
        """Claim what is due; returns for how long (s) nothing is."""
        if not (room := self._runs.room):
            return LONGEST_PAUSE
        due = await self._store.due(room)
        if due and await self._look_for_other():
            return STANDING_BY
        claimed: list[bool] = []
        damage: StoreUnavailable | None = None
        for task in due:
            try:
                claimed.append(await self._claim(task))
            except StoreUnavailable as error:
                if error.retryable:
                    raise
                damage = error
                log.info(
                    "A task was not claimed", action="task_left", task=task.id, reason=error.reason
                )
                await self._store.writable()  # the others may not need what is damaged
        if damage is not None:
            raise damage
        if due and not any(claimed):
            return AFTER_FAILURE  # the same ones are due again
        return _until(await self._store.next_due()) if len(due) < room else 0

    async def _claim(self, task: Task) -> bool:
        """False if that has changed nothing."""
        try:
            try:
                following = await asyncio.to_thread(task.after)
            except ValueError as error:
                reason = f"The schedule cannot be read: {error}"
                log.error("A task is paused", action="task_paused", task=task.id, reason=reason)
                await self._store.refuse(task, reason)
                return True
            await self._runs.begin(task, following)
        except Conflict as error:
            log.info("A task was not claimed", action="task_left", task=task.id, reason=str(error))
            return False
        return True

    async def _look_for_other(self) -> bool:
        """Look for pykoclaw's scheduler; returns whether it runs. The log says when that changes."""
        before, self.other = self.other, await asyncio.to_thread(self._find_other)
        if self.other is not None and before is None:
            log.warning(
                "pykoclaw's scheduler runs: this one stands by",
                action="scheduler_stands_by",
                pid=self.other,
            )
        elif self.other is None and before is not None:
            log.warning("This scheduler runs the tasks from now on", action="scheduler_takes_over")
        return self.other is not None


def _until(due: str | None) -> float:
    """Seconds until a time that is compared as a text: its digits count as UTC."""
    try:
        at = datetime.fromisoformat(due or "").replace(tzinfo=UTC)
    except ValueError:
        return LONGEST_PAUSE
    pause = (at - datetime.now(UTC)).total_seconds()
    return min(max(pause, SHORTEST_PAUSE), LONGEST_PAUSE)
