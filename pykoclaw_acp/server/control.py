"""The handlers of our own methods, `_pykoclaw.dev/…`: what the command line asks the daemon."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable, Collection
from typing import Any, Literal

import msgspec

from pykoclaw_acp import __version__
from pykoclaw_acp.channel.options import is_restricted
from pykoclaw_acp.errors import InvalidParams, SessionNotFound
from pykoclaw_acp.link.places import Places
from pykoclaw_acp.model import conversations
from pykoclaw_acp.model.permissions import PermissionRequest, RequestPolicy
from pykoclaw_acp.pool import leftovers
from pykoclaw_acp.protocol.control.daemon import (
    ConversionInfo,
    DaemonInfo,
    DatabaseInfo,
    Status,
    UnacceptedNotices,
)
from pykoclaw_acp.protocol.control.following import Followed, FollowParams
from pykoclaw_acp.protocol.control.questions import (
    Answered,
    AnswerParams,
    QuestionInfo,
    QuestionsParams,
)
from pykoclaw_acp.protocol.control.sessions import (
    ListParams,
    RenameParams,
    Resolved,
    ResolveParams,
    SessionDetails,
    SessionParams,
)
from pykoclaw_acp.protocol.control.tasks import SchedulerInfo
from pykoclaw_acp.protocol.control.workers import StopParams, Stopped, WorkerInfo
from pykoclaw_acp.protocol.messages import Empty
from pykoclaw_acp.protocol.wire import Params
from pykoclaw_acp.server.call import Call
from pykoclaw_acp.server.dispatch import Method
from pykoclaw_acp.server.follower import Follower, whole
from pykoclaw_acp.server.lag import LoopLag
from pykoclaw_acp.server.trusting import Trusting
from pykoclaw_acp.sessions.permissions.all_requests import OPTIONS
from pykoclaw_acp.sessions.registry import Sessions
from pykoclaw_acp.sessions.session import Session
from pykoclaw_acp.sessions.workspace_words import DONE
from pykoclaw_acp.store import instance, notices, overview
from pykoclaw_acp.store.conversion import Conversion
from pykoclaw_acp.store.database import Database
from pykoclaw_acp.store.sessions import now_ms
from pykoclaw_acp.store.sqlite import ENGINE
from pykoclaw_acp.system import memory, processes


class Control:
    """The daemon, for those who look after it."""

    def __init__(
        self,
        sessions: Sessions,
        database: Database,
        places: Places,
        lag: LoopLag,
        conversion: Conversion | None = None,
        *,
        scheduler: Callable[[], Awaitable[SchedulerInfo]] | None = None,
        hidden: Collection[str] = (),
    ) -> None:
        """`hidden`: channels whose conversations are in no list."""
        self._hidden = hidden
        self._lag = lag
        self._sessions = sessions
        self._database = database
        self._places = places
        self._conversion = conversion
        self._trusting = Trusting(sessions, database)
        self._started_at = now_ms()
        self._scheduler = scheduler

    @property
    def methods(self) -> dict[str, Method[Call, Any]]:
        """The dispatch table of these methods; a client may call them before `initialize`."""
        return {
            "_pykoclaw.dev/status": Method(Params, self.status, before_initialize=True, heavy=True),
            "_pykoclaw.dev/sessions/list": Method(
                ListParams, self.list_sessions, before_initialize=True, heavy=True
            ),
            "_pykoclaw.dev/conversations/resolve": Method(
                ResolveParams, self.resolve, before_initialize=True, slow=True
            ),
            "_pykoclaw.dev/sessions/show": Method(
                SessionParams, self.show, before_initialize=True, heavy=True
            ),
            "_pykoclaw.dev/sessions/rename": Method(
                RenameParams, self.rename, before_initialize=True
            ),
            "_pykoclaw.dev/sessions/delete": Method(
                SessionParams, self.delete, before_initialize=True
            ),
            "_pykoclaw.dev/questions/list": Method(
                QuestionsParams, self.list_questions, before_initialize=True, heavy=True
            ),
            "_pykoclaw.dev/questions/answer": Method(
                AnswerParams, self.answer, before_initialize=True
            ),
            "_pykoclaw.dev/workers/list": Method(
                Params, self.list_workers, before_initialize=True, heavy=True
            ),
            "_pykoclaw.dev/workers/stop": Method(
                StopParams, self.stop_workers, before_initialize=True
            ),
            **self._trusting.methods,
            "_pykoclaw.dev/follow": Method(FollowParams, self.follow, before_initialize=True),
        }

    # --- the whole

    async def status(self, call: Call, params: Params) -> Status:  # noqa: ARG002
        """Everything at a glance."""
        running, waiting = await overview.queue(self._database)
        known = await instance.read(self._database)
        clients = {
            subscription.client
            for session in self._sessions.live
            for subscription in session.subscriptions
            if subscription.client.present
        }
        return Status(
            daemon=DaemonInfo(
                pid=os.getpid(),
                version=__version__,
                started_at=self._started_at,
                socket=self._places.socket,
                data=self._places.data,
                state=self._places.state,
                loop_lag=round(self._lag.worst() * 1000, 1),
                memory=await asyncio.to_thread(
                    _own_memory, {row.pid for row in await overview.workers(self._database)}
                ),
                instance=None if known is None else known.instance,
                copied_from=None if known is None else known.copied_from,
                copied_at=None if known is None else known.copied_at,
            ),
            workers=await self._workers(),
            sessions=await overview.counts(self._database),
            clients=len(clients),
            running=running,
            waiting=waiting,
            questions=[info for info, _ in await self._waiting()],
            database=DatabaseInfo(
                path=str(self._database.path),
                condition=self._database.condition.state,
                reason=self._database.condition.reason or None,
                size=await asyncio.to_thread(overview.size, self._database),
                journal_mode=self._database.journal_mode.mode,
                engine=ENGINE.name,
                engine_version=".".join(map(str, ENGINE.version)),
                at_risk=ENGINE.affected,
            ),
            conversion=self._progress(),
            scheduler=None if self._scheduler is None else await self._scheduler(),
            damaged=[
                str(path) for path in await asyncio.to_thread(leftovers.kept_for, self._places)
            ],
            unaccepted=tuple(
                UnacceptedNotices(target=target, notices=count, reason=reason)
                for target, count, reason in await notices.unaccepted(self._database)
            ),
        )

    # --- sessions

    async def list_sessions(self, call: Call, params: ListParams) -> msgspec.Raw:  # noqa: ARG002
        """Sessions, newest first: a SessionList, encoded one by one, since it may be megabytes."""
        line, count = bytearray(b'{"sessions":['), 0
        async for summary in await overview.listing(
            self._database, every=params.all, limit=params.limit + 1, hidden=self._hidden
        ):
            count += 1
            if count <= params.limit:
                line += b"," * (count > 1) + msgspec.json.encode(summary)
        line += b'],"more":true}' if count > params.limit else b'],"more":false}'
        return msgspec.Raw(line)

    async def resolve(self, call: Call, params: ResolveParams) -> Resolved:  # noqa: ARG002
        """Which session a conversation of any program has; it gets one if it has none."""
        session = await self._session(params.conversation, create=params.create)
        record = session.record
        return Resolved(
            session=session.id,
            conversation=record.conversation_name,
            channel=conversations.channel(record.conversation_name),
            cwd=record.cwd,
        )

    async def show(self, call: Call, params: SessionParams) -> SessionDetails:  # noqa: ARG002
        """One session with its newest turns."""
        session_id = await self._resolve(params.session)
        summary = await overview.summary(self._database, session_id)
        if summary is None:
            raise SessionNotFound(session_id)
        details = await overview.details(self._database, session_id)
        return SessionDetails(
            summary=summary,
            additional_directories=details.additional_directories,
            mode=details.mode,
            model=details.model,
            away_policy=details.away_policy,
            claude_session=details.claude_session,
            events=details.events,
            turn_count=details.turn_count,
            turns=details.turns,
            worker=next(iter(await self._workers(session_id)), None),
        )

    async def rename(self, call: Call, params: RenameParams) -> Empty:  # noqa: ARG002
        """Give the session a title; its clients are told."""
        await self._sessions.rename(await self._resolve(params.session), params.title)
        return Empty()

    async def delete(self, call: Call, params: SessionParams) -> Empty:  # noqa: ARG002
        """End its turns, and delete what was said in it."""
        await self._sessions.delete(await self._session(params.session))
        return Empty()

    async def follow(self, call: Call, params: FollowParams) -> Followed:
        """The session's log as notifications; a live one ends with the connection, or when the
        session is closed.
        """
        session = await self._session(params.session)
        after = params.after
        if params.turns is not None:
            after = max(
                after, await overview.place_of_turn(self._database, session.id, params.turns)
            )
        end = session.last_seq
        subscription = session.subscribe(
            Follower(call.client.peer, present=params.present), min(after, end)
        )
        try:
            await subscription.reached(sys.maxsize if params.live else end)
        finally:
            subscription.close()
        return Followed(seq=subscription.cursor)

    # --- questions

    async def list_questions(
        self,
        call: Call,  # noqa: ARG002
        params: QuestionsParams,
    ) -> list[QuestionInfo]:
        """The questions that wait."""
        waiting = await self._waiting(params.question)
        return [
            msgspec.structs.replace(info, **whole(ask)) if params.whole else info
            for info, ask in waiting
        ]

    async def answer(self, call: Call, params: AnswerParams) -> Answered:  # noqa: ARG002
        """Answer one of them."""
        asked = await self._sessions.requests.decide(params.question, params.decision, by="cli")
        return Answered(done=DONE[OPTIONS[params.decision]] if asked.request.workspaces else None)

    # --- workers

    async def list_workers(self, call: Call, params: Params) -> list[WorkerInfo]:  # noqa: ARG002
        """The workers that live."""
        return await self._workers()

    async def stop_workers(self, call: Call, params: StopParams) -> Stopped:  # noqa: ARG002
        """End a session's worker, or all: turns end as cancelled, also those that wait.

        Raises InvalidParams unless it says which, and StoreUnavailable, unless `now`, while the
        ends of turns cannot be stored.
        """
        if (params.session is None) != params.all:
            raise InvalidParams(
                "`session` or `all`: give a session, or `all: true` to end all workers."
            )
        if not params.now or self._sessions.awaits_recovery:
            self._database.condition.require()
        only = None if params.session is None else await self._session(params.session)
        stopped = {row.session_id for row in await overview.workers(self._database)}
        for session in self._sessions.live if only is None else [only]:
            session.cancel()
            if params.now:
                self._sessions.workers.kill(session.id)
        if only is not None:
            stopped &= {only.id}
        if not self._database.condition.is_writable:  # they are dead; the rest waits
            return Stopped(workers=len(stopped))
        if only is not None:
            await only.idle()
        else:
            await self._sessions.cancel_all()
        await asyncio.gather(*(self._sessions.workers.stop(session_id) for session_id in stopped))
        return Stopped(workers=len(stopped))

    # --- parts

    async def _resolve(self, word: str, *, create: bool = False) -> str:
        found = await overview.matching(self._database, word)
        if not found:
            session = await self._sessions.of_conversation(word, create=create)
            if session is None:
                raise SessionNotFound(word)
            return session.id
        if len(found) > 1:
            raise InvalidParams(f"More than one session's id begins with {word}. Give more of it.")
        return found[0]

    async def _session(self, word: str, *, create: bool = False) -> Session:
        session = await self._sessions.find(await self._resolve(word, create=create))
        if session is None:
            raise SessionNotFound(word)
        return session

    async def find_session(self, word: str) -> Session:
        """The session of this id or name; raises SessionNotFound, InvalidParams."""
        return await self._session(word)

    def _progress(self) -> ConversionInfo | None:
        progress = None if self._conversion is None else self._conversion.progress
        return (
            None if progress is None else ConversionInfo(events=progress.events, left=progress.left)
        )

    async def _waiting(self, prefix: str = "") -> list[tuple[QuestionInfo, PermissionRequest]]:
        return [
            (
                QuestionInfo(
                    id=one.request.ask_id,
                    session=one.session_id,
                    title=one.request.title,
                    always=one.request.always is not None,
                    asked_at=one.asked_at,
                    deadline=one.deadline,
                    parked=one.policy == RequestPolicy.PARKED,
                ),
                one.request,
            )
            for one in await self._sessions.requests.list_pending()
            if one.request.ask_id.startswith(prefix)
        ]

    async def _workers(self, session_id: str | None = None) -> list[WorkerInfo]:
        rows = [
            row
            for row in await overview.workers(self._database)
            if session_id in (None, row.session_id)
        ]
        used = await asyncio.to_thread(lambda: [memory.of_tree(row.pid) for row in rows])
        return [
            WorkerInfo(
                session=row.session_id,
                title=row.title,
                epoch=row.epoch,
                pid=row.pid,
                state=row.state,
                protocol=row.protocol,
                started_at=row.created_at,
                memory=size,
                workspace=_counts(row.workspace),
            )
            for row, size in zip(rows, used, strict=True)
        ]


def _counts(workspace: str | None) -> Literal["trusted", "without"] | None:
    """Whether what acts in a worker's directories counts."""
    if not workspace:
        return None
    return "without" if is_restricted(workspace) else "trusted"


def _own_memory(workers: set[int]) -> int | None:
    """The daemon and its fork server, whose children the workers may be."""
    own = memory.of_process(os.getpid())
    if own is None:
        return None
    helpers = (child for child in processes.children(os.getpid()) if child not in workers)
    return own + sum(memory.of_process(child) or 0 for child in helpers)
