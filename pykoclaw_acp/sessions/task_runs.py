"""Runs of scheduled tasks: each is a turn like any other, from its claim to its result."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Final
from uuid import uuid4

import structlog

from pykoclaw_acp import crash_points
from pykoclaw_acp.error_kinds import ErrorKind
from pykoclaw_acp.errors import (
    AcpError,
    Conflict,
    Overloaded,
    SessionNotFound,
    StoreClosed,
    StoreError,
    StoreUnavailable,
)
from pykoclaw_acp.model.scheduled import CANCELLED, Task, TaskResult, TaskRun
from pykoclaw_acp.model.session_environment import ClientEnvironment
from pykoclaw_acp.model.turns import Outcome, PromptKeys, Turn, TurnState
from pykoclaw_acp.model.work import Work
from pykoclaw_acp.retries import until_done
from pykoclaw_acp.sessions import folders, run_endings
from pykoclaw_acp.sessions.going_run import GoingRun
from pykoclaw_acp.sessions.left_runs import LeftRuns
from pykoclaw_acp.sessions.ports.tasks import TaskStore
from pykoclaw_acp.sessions.registry import Sessions
from pykoclaw_acp.sessions.session import Session
from pykoclaw_acp.sessions.session_environment import clients_return
from pykoclaw_acp.sessions.turns.queue import require_possible
from pykoclaw_acp.sessions.work import over
from pykoclaw_acp.tasks import Tasks

MOST_RUNS: Final = 4  # at once, so that tasks that come due together leave workers for people
MAX_REASON: Final = 300  # characters
MOST_TRIES: Final = (
    8  # of a run that cannot begin, for a reason that is not foreseen; half a minute
)

log: Final = structlog.get_logger()


class TaskRuns:
    """Runs claimed tasks. `data` is the data directory, and `workers` how many may live; `changed` is
    set when a run has ended, and `written` by others, when a task may have been deleted.
    """

    def __init__(self, sessions: Sessions, store: TaskStore, data: Path, workers: int) -> None:
        self.changed = asyncio.Event()
        self.written = asyncio.Event()
        self.left = LeftRuns(sessions, store)
        self._sessions = sessions
        self._store = store
        self._data = data
        self._most_aside = max(workers // 2, 1)  # runs that keep their workers
        self._tasks = Tasks()
        self._going: dict[str, GoingRun] = {}  # by task, the newest of each

    @property
    def room(self) -> int:
        """How many runs may begin now; those that wait do not count, but for runs aside with work in
        the background.
        """
        busy = [one for one in self._going.values() if not self._waits(one)]
        ended = [one for one in self._going.values() if one.has_ended]
        aside = sum(one.run.aside or one.run.task.isolated for one in busy + ended)
        return max(min(MOST_RUNS - len(busy), self._most_aside - aside), 0)

    def _waits(self, one: GoingRun) -> bool:
        """Whether its turn waits for a person's answer, or behind another one, or has ended."""
        if one.has_ended or one.parked:
            return True
        run = one.run
        session = self._sessions.live.get(run.session_id or "")
        if session is None:
            return False
        behind = [turn.turn_id for turn in session.turns[1:] if turn.state == TurnState.QUEUED]
        asks = session.permissions.asks_for(run.turn_id)
        return asks or run.turn_id in behind or session.others.waits

    @property
    def running(self) -> list[TaskRun]:
        """Runs that have no result yet."""
        return [one.run for one in self._going.values()]

    async def recover(self) -> None:
        """Go on with the runs of an earlier daemon: what was not accepted runs, what was has its
        result written.
        """
        for run in await self._store.unfinished():
            if run.task.id not in self._going:
                log.info("A run goes on", action="task_recovered", task=run.task.id)
                self._start(GoingRun(run, recovered=True))

    async def begin(
        self,
        task: Task,
        claimed: str | None,
        *,
        manual: bool = False,
        asked: str | None = None,
        given: ClientEnvironment | None = None,
    ) -> TaskRun:
        """Claim a task and run it; `asked` as in TaskRun, `given` by who asks. Raises Conflict if it is
        not as it was read, or runs.
        """
        now = time.time_ns() // 1_000_000
        run = TaskRun(str(uuid4()), task, claimed, manual, now, asked=asked)
        await self._store.claim(run)
        crash_points.reached("task_claimed")
        log.info("Task claimed", action="task_claimed", task=task.id, turn=run.turn_id)
        self._start(GoingRun(run, given=given))
        return run

    def give_up(self, task_id: str) -> None:
        """Drop the run of a task that was deleted, unless it has begun: one that is no turn yet has
        been ended by the store, a turn that waits ends as cancelled.
        """
        if (one := self._going.get(task_id)) is None:
            return
        if one.turn is not None:
            self._call_off(one)
        elif one.act is not None and not one.recovered:  # that may be a turn
            one.act.cancel()

    def _call_off(self, one: GoingRun) -> None:
        if (turn := one.turn) is None or not one.is_queued or turn.cancelled.is_set():
            return
        log.info("A run is called off", action="task_called_off", task=one.run.task.id)
        session = self._sessions.live.get(one.run.session_id or "")
        if session is not None:
            session.cancel(turn)
        turn.cancelled.set()  # also of one that is just being accepted

    async def watch(self) -> None:
        """Call off waiting runs of tasks that whatever program deletes, until cancelled."""
        while True:
            await self.written.wait()
            self.written.clear()
            try:
                await self._call_off_deleted()
            except StoreClosed:
                return
            except Exception:
                log.exception("Deleted tasks could not be looked for", action="scheduler_failed")

    async def _call_off_deleted(self) -> None:
        waiting = {task: one for task, one in self._going.items() if one.is_queued}
        deleted = await self._store.without_task(waiting) if waiting else ()
        for task_id in deleted:
            self._call_off(waiting[task_id])

    def stop(self) -> None:
        """Leave the runs to the next daemon."""
        self._tasks.cancel()

    def _start(self, one: GoingRun) -> None:
        """Begin the run in a task of its own."""
        self._going[one.run.task.id] = one
        one.act = self._tasks.start(self._run(one), name="scheduled task")

    async def _run(self, one: GoingRun) -> None:
        run, tries = one.run, count(1)

        async def act() -> None:
            try:
                await self._to_its_end(one)
            except (AcpError, StoreError):
                raise
            except Exception as error:
                if next(tries) < MOST_TRIES or one.turn is not None:
                    raise
                log.exception("A run is given up", action="task_given_up", task=run.task.id)
                await self._finish(run, f"The run could not begin: {error!r}"[:MAX_REASON])

        try:
            await until_done(act, "A scheduled task's run could not go on", final=(Conflict,))
        except StoreClosed:
            return
        except Conflict:
            log.warning("The run has ended already", action="task_ended", task=run.task.id)
        finally:
            if self._going.get(run.task.id) is one:
                del self._going[run.task.id]
            self.changed.set()

    async def _to_its_end(self, one: GoingRun) -> None:
        run = one.run
        session: Session | None = None
        outcome: Outcome | None = None
        text = ""
        try:
            session, outcome = await self._turn_of(one)
            work, goes_on = await self._work(run, session, outcome)
            while one.turn is not None:  # a subagent that it left may have asked
                before = run.turn_id
                outcome = await one.outcome(session, one.turn, self.changed)
                if run.turn_id == before:
                    break
                work, goes_on = await self._work(run, session, outcome)
        except (StoreUnavailable, Overloaded):
            raise
        except Conflict:  # or the run was given up, and is refused a result
            deleted = await self._store.without_task([run.task.id])
            reason: str | None = CANCELLED if deleted else run_endings.DELETED
        except AcpError as error:  # for good: no session, no place for one, a prompt too long
            reason = str(error)
        else:
            text = work.text
            asks = session.permissions.has_parked(work.turns)
            reason = run_endings.reason(run, outcome, work, goes_on=goes_on, asks=asks)
        await self._finish(run, reason, session, text)

    async def _work(self, run: TaskRun, session: Session, outcome: Outcome) -> tuple[Work, bool]:
        """What the run's turn has led to; a run is not over while its background work goes on."""
        if outcome.state != TurnState.DONE:
            return await session.led_to(run.turn_id), False
        self.changed.set()  # there is room for another
        until_now = await session.led_to(run.turn_id)
        work, goes_on = await over(session, until_now, lambda: session.led_to(run.turn_id))
        return (work if work.turns else replace(work, text=until_now.text)), goes_on

    async def _finish(
        self, run: TaskRun, reason: str | None, session: Session | None = None, text: str = ""
    ) -> None:
        if session is not None:
            session.next_worker.let_go()
        result = TaskResult(
            text,
            reason,
            await asyncio.to_thread(run.following),
            max(time.time_ns() // 1_000_000 - run.started_at, 0),
            shown=session is not None and not run.aside and run_endings.is_for(session, run.task),
            begins=None if session is None else run_endings.begins(run, session),
        )
        await self._store.finish(run, result)
        crash_points.reached("task_run_ended")
        log.info(
            "Task ended", action="task_ended", task=run.task.id, turn=run.turn_id, error=reason
        )
        self._sessions.deliveries_wanted.set()
        await self.left.tidy_before(run)

    async def _turn_of(self, one: GoingRun) -> tuple[Session, Outcome]:
        """The run's turn, to its end. One that ended before it began is given another id, unless it was
        to tell Claude an answer: then the run's prompt was sent before.
        """
        run = one.run
        while True:
            session = await self._session(run)
            if run.aside:
                session.next_worker.keep()
            await folders.ensure(session, self._data)
            given = await self._given(one, session)
            made = one.turn = self._turn(run, given)
            turn = one.turn = await session.accept_unattended(made)
            turn.given = turn.given or given
            if one.recovered:
                self.written.set()  # the task may have been deleted meanwhile
            if made.cancelled.is_set():
                self._call_off(one)
            outcome = await one.outcome(session, turn, self.changed)
            failure = outcome.failure
            if failure is None or failure.kind != ErrorKind.NOT_STARTED or one.turn.tells_answer:
                return session, outcome
            again = str(uuid4())
            await self._store.place(replace(run, turn_id=again), run.turn_id)
            run.turn_id = again

    async def _given(self, one: GoingRun, session: Session) -> ClientEnvironment | None:
        """What a client gives that has the task's conversation open, or who asked for the run. It
        waits for a client to come back to a new daemon, if it needs that.
        """
        known = await self._store.session_of(one.run.task.conversation)

        def given() -> ClientEnvironment | None:
            live = None if known is None else self._sessions.live.get(known)
            return (None if live is None else live.environment.given) or one.given

        await clients_return(
            lambda: given() is None and bool(session.environment.options().withheld),
            self._sessions.clock,
            recovered=one.recovered,
        )
        return given()

    def _turn(self, run: TaskRun, given: ClientEnvironment | None) -> Turn:
        return Turn(
            run.turn_id,
            run.session_id or "",
            [{"type": "text", "text": run.task.prompt}],
            PromptKeys(request=run.request_key),
            sent=self._sessions.clock.now(),
            unattended=True,
            task_id=run.task.id,
            aside=run.aside,
            given=given,
        )

    async def _session(self, run: TaskRun) -> Session:
        """Where the run takes place; noted before anything is sent there. Raises SessionNotFound, and
        InvalidParams for a prompt that no session takes: it gets none.
        """
        if run.session_id is not None:
            return await self._sessions.get(run.session_id)
        require_possible(self._turn(run, None))
        session, aside = await self._conversation(run.task), False
        if session is None or run.task.isolated:
            record, aside = None if session is None else session.record, True
            cwd = None if record is None else record.cwd
            cwd = cwd or await folders.of_conversation(self._data, run.task.conversation)
            begun = self._sessions.beginnings.beside(run.task.conversation, record)
            session = await self._sessions.create(cwd, (), (), begun=begun)
        await self._store.place(replace(run, session_id=session.id, aside=aside), run.turn_id)
        run.session_id, run.aside = session.id, aside
        return session

    async def _conversation(self, task: Task) -> Session | None:
        """The session of the task's conversation, made now for one that another program began.

        Raises SessionNotFound if the task needs one that was deleted.
        """
        known = await self._store.session_of(task.conversation)
        if known is None:
            return await self._sessions.of_name(task.conversation)
        session = await self._sessions.find(known)
        if session is None and not task.isolated:
            raise SessionNotFound(known)
        return session
