"""The handlers of `_pykoclaw.dev/sessions/…`, `conversations/resolve` and `follow`: sessions, for
those who look after the daemon.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import Collection, Generator
from functools import partial
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from pykoclaw_acp.errors import InvalidRequest, SessionNotFound
from pykoclaw_acp.model import conversations
from pykoclaw_acp.protocol.control.following import FollowParams, FollowResult
from pykoclaw_acp.protocol.control.sessions import (
    ArchiveResult,
    Deleted,
    ListParams,
    NamedSessionParams,
    RenameParams,
    Resolved,
    ResolveParams,
    RunningCall,
    SessionDetails,
    SessionSummary,
    TurnInfo,
    UnarchiveResult,
)
from pykoclaw_acp.protocol.messages import Empty
from pykoclaw_acp.server import fitting
from pykoclaw_acp.server.call import Call
from pykoclaw_acp.server.command_client import CommandClient
from pykoclaw_acp.server.dispatch import Later, Method
from pykoclaw_acp.server.session_finder import SessionFinder
from pykoclaw_acp.server.worker_control import WorkerControl
from pykoclaw_acp.sessions import closing
from pykoclaw_acp.sessions.registry import Sessions
from pykoclaw_acp.sessions.session import Session
from pykoclaw_acp.sessions.subscription import Subscription
from pykoclaw_acp.sessions.turns import titles
from pykoclaw_acp.store import overview, summaries
from pykoclaw_acp.store.database import Database
from pykoclaw_acp.tasks import in_pieces

LOOK_WAIT: Final = (
    5.0  # s, less than commands wait, for what other programs did; the look goes on afterwards
)

LISTED: Final = 4096  # characters of a text in an answer: MAX_PATH, as a path is the longest
MOST_CALLS: Final = 100  # running tool calls in an answer


class SessionControl:
    """Sessions, whether a client has them open or not."""

    def __init__(
        self,
        sessions: Sessions,
        database: Database,
        finder: SessionFinder,
        workers: WorkerControl,
        hidden: Collection[str],
    ) -> None:
        """`hidden`: channels whose conversations are in no list."""
        self._sessions = sessions
        self._database = database
        self._finder = finder
        self._workers = workers
        self._hidden = hidden

    @property
    def methods(self) -> dict[str, Method[Call, Any]]:
        """The dispatch table of these methods."""
        return {
            "_pykoclaw.dev/sessions/list": Method(
                ListParams, self.list_all, before_initialize=True, heavy=True
            ),
            "_pykoclaw.dev/conversations/resolve": Method(
                ResolveParams, self.resolve, before_initialize=True, slow=True
            ),
            "_pykoclaw.dev/sessions/show": Method(
                NamedSessionParams, self.show, before_initialize=True, heavy=True
            ),
            "_pykoclaw.dev/sessions/rename": Method(
                RenameParams, self.rename, before_initialize=True, changes=True
            ),
            "_pykoclaw.dev/sessions/archive": Method(
                NamedSessionParams, self.archive, before_initialize=True, changes=True
            ),
            "_pykoclaw.dev/sessions/unarchive": Method(
                NamedSessionParams, self.unarchive, before_initialize=True, changes=True
            ),
            "_pykoclaw.dev/sessions/delete": Method(
                NamedSessionParams, self.delete, before_initialize=True, changes=True
            ),
            "_pykoclaw.dev/follow": Method(FollowParams, self.follow, before_initialize=True),
        }

    async def list_all(self, call: Call, params: ListParams) -> msgspec.Raw:  # noqa: ARG002
        """`sessions`, newest first, and whether there are `more`; encoded one by one, since they may
        be megabytes.
        """
        terminals = await self._sessions.catalogue.look_for_transcripts()
        line, more = bytearray(b'{"sessions":['), False
        count = 0
        async for summary in await summaries.listing(
            self._database,
            every=params.all,
            limit=params.limit + 1,
            hidden=self._hidden,
            terminals=terminals,
        ):
            one = msgspec.json.encode(self._completed(summary))
            more = more or count == params.limit or len(line) + len(one) > fitting.ROOM
            if not more:
                line += b"," * (count > 0) + one
                count += 1
        line += b'],"more":true}' if more else b'],"more":false}'
        return msgspec.Raw(line)

    async def resolve(self, call: Call, params: ResolveParams) -> Resolved:  # noqa: ARG002
        """Which session a conversation of any program has; it gets one if it has none."""
        session = await self._finder.find(params.conversation, create=params.create)
        record = session.record
        found = Resolved(
            session=session.id,
            conversation=record.conversation_name,
            channel=conversations.channel(record.conversation_name),
            cwd=record.cwd,
        )
        return fitting.shortened(found, LISTED)

    async def show(self, call: Call, params: NamedSessionParams) -> SessionDetails:  # noqa: ARG002
        """One session with its newest turns."""
        session = await self._finder.find(params.session)
        await _take_in(session)
        session_id = session.id
        summary = await summaries.summary(self._database, session_id)
        if summary is None:
            raise SessionNotFound(session_id)
        details = await overview.details(self._database, session_id)
        found = SessionDetails(
            summary=self._completed(summary),
            account=session.environment.account,
            additional_directories=details.additional_directories,
            mode=session.options.permission_mode,
            model=details.model,
            away_policy=details.away_policy,
            claude_session=details.claude_session,
            events=details.events,
            turn_count=details.turn_count,
            other_turns=details.other_turns,
            turns=await in_pieces(_with_prompts(details)),
            running=[
                RunningCall(id=one, title=title[:LISTED])
                for one, title in list(session.log.open_tools.titles.items())[-MOST_CALLS:]
            ],
            worker=next(iter(await self._workers.live(session_id)), None),
        )
        return fitting.shortened(found, LISTED)

    def _completed(self, summary: SessionSummary) -> SessionSummary:
        """With what is known of a session in memory, and not too long for an answer."""
        live = self._sessions.live.get(summary.id)
        works = live is not None and not summary.busy and bool(live.log.open_tools.titles)
        return replace(fitting.shortened(summary, LISTED), background=works)

    async def rename(self, call: Call, params: RenameParams) -> Empty:  # noqa: ARG002
        """Give the session a title; its clients are told."""
        session_id = await self._finder.id_of(params.session)
        await self._sessions.catalogue.set_title(session_id, params.title)
        return Empty()

    async def archive(self, call: Call, params: NamedSessionParams) -> ArchiveResult:  # noqa: ARG002
        """Close the session, and leave it out of lists; says how many turns that ended."""
        session = await self._finder.find(params.session)
        changed = not await self._is_archived(session.id)
        unfinished = sum(not one.ended.done() for one in session.turns) + session.background
        await self._sessions.catalogue.archive(session.id, archived=True)
        return ArchiveResult(cancelled=unfinished, changed=changed)

    async def unarchive(self, call: Call, params: NamedSessionParams) -> UnarchiveResult:  # noqa: ARG002
        """Show the session in lists again; says whether it was archived."""
        session_id = await self._finder.id_of(params.session)
        changed = await self._is_archived(session_id)
        await self._sessions.catalogue.archive(session_id, archived=False)
        return UnarchiveResult(changed=changed)

    async def _is_archived(self, session_id: str) -> bool:
        summary = await summaries.summary(self._database, session_id)
        return summary is not None and summary.archived_at is not None

    async def delete(self, call: Call, params: NamedSessionParams) -> Deleted:  # noqa: ARG002
        """End its turns, and delete what was said in it."""
        session = await self._finder.find(params.session)
        removed = await self._sessions.catalogue.delete(session.id)
        if removed is None:
            return Deleted(transcript_deleted=False)
        nothing = not (removed.some or removed.left)
        return Deleted(
            transcript_deleted=None if nothing else not removed.left, undeleted=removed.left
        )

    async def follow(self, call: Call, params: FollowParams) -> FollowResult | Later:
        """The session's log as notifications; a live one ends with the connection, or when the
        session is closed.
        """
        session = await self._finder.find(params.session)
        await _take_in(session)
        window = await session.log.last_turns(params.turns) if params.turns else None
        end = session.last_seq
        subscription = session.subscribe(
            CommandClient(
                call.client.peer,
                present=params.present,
                thoughts=self._sessions.showing.thoughts or not (params.live or params.as_shown),
                times=partial(overview.came, self._database) if params.events else None,
            ),
            min(params.after, end),
        )
        subscription.window = window
        following = _followed(subscription, sys.maxsize if params.live else end)
        return Later(following) if params.live else await following


async def _followed(subscription: Subscription, end: int) -> FollowResult:
    try:
        await subscription.reached(end, patient=end == sys.maxsize)
        if subscription.cursor < end and subscription.trouble is not None:
            raise subscription.trouble
        if subscription.cursor < end < sys.maxsize:
            raise InvalidRequest(closing.CUT_SHORT)
    finally:
        subscription.close()
    return FollowResult(seq=subscription.cursor)


def _with_prompts(details: overview.MoreOfSession) -> Generator[None, None, list[TurnInfo]]:
    """The newest turns of a session, each with how its prompt begins."""
    turns = []
    for turn, prompt in zip(details.turns, details.prompts, strict=True):
        turns.append(replace(turn, prompt=titles.title(prompt) or titles.of_content(prompt)))
        yield
    return turns


async def _take_in(session: Session) -> None:
    """What other programs did, as before a load; a turn that runs looks itself when it has ended."""
    if not session.busy:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LOOK_WAIT):
                await session.others.look_if_possible()
