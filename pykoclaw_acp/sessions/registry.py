"""Registry of this process's sessions: creates and finds them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Coroutine, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

import msgspec
import structlog

from pykoclaw_acp.channel.options import McpServer, WorkerOptions
from pykoclaw_acp.errors import Conflict, InvalidRequest, RowRefused, SessionNotFound
from pykoclaw_acp.model import conversations
from pykoclaw_acp.model.permissions import RequestPolicy
from pykoclaw_acp.model.session_environment import ClientEnvironment, DaemonEnvironment
from pykoclaw_acp.model.session_options import NOTHING_REQUESTED, RequestedOptions
from pykoclaw_acp.model.turns import PromptKeys, SessionRecord, TurnTimes
from pykoclaw_acp.sessions import adopting, closing, requested_options, worker_options, writes
from pykoclaw_acp.sessions.catalogue import Catalogue, ListSettings
from pykoclaw_acp.sessions.confirmations import Confirmations, unknown
from pykoclaw_acp.sessions.deletions import Deletions
from pykoclaw_acp.sessions.directories import resolve_links
from pykoclaw_acp.sessions.early_starts import EarlyStarts
from pykoclaw_acp.sessions.forking import Forks
from pykoclaw_acp.sessions.fronts import Fronts
from pykoclaw_acp.sessions.live_sessions import LiveSessions
from pykoclaw_acp.sessions.names import ConversationNames
from pykoclaw_acp.sessions.new_session import Beginnings, SessionBeginning
from pykoclaw_acp.sessions.once import OncePerRequest
from pykoclaw_acp.sessions.permissions.all_requests import AllRequests
from pykoclaw_acp.sessions.permissions.trusted_elsewhere import TrustedElsewhere
from pykoclaw_acp.sessions.ports import Client, Journal, Transcripts, TurnLocks, Workers, Workspaces
from pykoclaw_acp.sessions.session import Session
from pykoclaw_acp.sessions.showing import Showing
from pykoclaw_acp.sessions.turns.intake import NOT_OPEN
from pykoclaw_acp.sessions.turns.queue import AllWaiting
from pykoclaw_acp.sessions.worker_events import WorkerEvents
from pykoclaw_acp.tasks import Tasks, told_elsewhere

if TYPE_CHECKING:
    from pykoclaw_acp.model.away import AwayPolicy

WRITE_WAIT: Final = 0.5  # s that a load waits for its commit

log: Final = structlog.get_logger()


class Sessions:
    """Sessions by id; `live` has those in memory."""

    def __init__(
        self,
        journal: Journal,
        template: WorkerOptions,
        times: TurnTimes,
        lists: ListSettings,
        *,
        alive: Callable[[str], bool | None] = unknown,
        workspaces: Workspaces | None = None,
        transcripts: Transcripts | None = None,
        locks: TurnLocks | None = None,
        daemon_environment: DaemonEnvironment | None = None,
    ) -> None:
        """`template`: options of a session without its own. `alive`: as in Confirmations.

        Without `workspaces` every directory is trusted, without `transcripts` none is read.
        """
        self._transcripts = transcripts
        self.locks = locks
        self.daemon_environment = daemon_environment or DaemonEnvironment()
        self.beginnings = Beginnings(self.daemon_environment, template)
        self._workspaces = workspaces
        self.clock = journal.clock
        self._journal = journal
        self._template = template
        self._times = times
        self.live = LiveSessions()
        self.trusted_elsewhere = TrustedElsewhere(self.live, journal)
        self._waiting = AllWaiting()
        self._owners: dict[str, str] = {}  # session by alias
        self._creating = OncePerRequest()
        self.names = ConversationNames(journal)
        self.confirmations = Confirmations(journal, alive)
        self.fronts = Fronts()
        self.requests = AllRequests(self.find, self.live, journal)
        self.catalogue = Catalogue(self, journal, self.names, lists)
        self._deletions = Deletions(journal, self.live)
        self._writing = Tasks()
        self.deliveries_wanted = asyncio.Event()
        """Set when deliveries may have come, or a conversation to which some are addressed."""
        self.awaits_recovery = False
        """What an earlier server left is in the database, and is taken up only when that can be written."""
        self.showing = Showing()
        self.early: EarlyStarts | None = None
        self.workers: Workers
        self.forks: Forks
        self.worker_events = WorkerEvents(self.live, lambda owner: self.workers.retire(owner))  # noqa: PLW0108  set later

    async def create(
        self,
        cwd: str,
        directories: tuple[str, ...],
        servers: tuple[McpServer, ...],
        request_key: str | None = None,
        client: str | None = None,
        *,
        requested: RequestedOptions = NOTHING_REQUESTED,
        begun: SessionBeginning | None = None,
    ) -> Session:
        """Create a session in the database; a re-sent request gets the same one. Raises InvalidParams
        for options that cannot be granted.
        """
        wanted = (begun or SessionBeginning(self._template.model)).record(
            cwd, directories, request_key, client
        )
        if request_key is None:
            return await self._create(wanted, servers, requested)

        async def make() -> Session:
            made = await self._journal.find_created(request_key)
            if made is not None and (found := await self.find(made)) is not None:
                self.take_options(found, directories, servers)
                return found
            return await self._create(wanted, servers, requested)

        return await self._creating.make(request_key, make)

    async def _create(
        self, wanted: SessionRecord, servers: tuple[McpServer, ...], requested: RequestedOptions
    ) -> Session:
        """A session like `wanted`, under an id and a name of its own."""
        session_id = str(uuid4())
        if requested.session_id is not None:
            session_id = await requested_options.require_free(
                self._journal, self._transcripts, requested
            )
        async with self.names.reserve(session_id) as name:
            record = replace(wanted, session_id=session_id, conversation_name=name)
            await resolve_links(record)
            await requested_options.settle(self._journal, self._template, record, requested)
            try:
                await self._journal.create(record)
            except RowRefused:  # another client has chosen the id at the same time
                if requested.session_id is None:
                    raise
                raise requested_options.taken_id(requested) from None
        log.info("Session created", action="session_created", session=session_id, cwd=record.cwd)
        session = self._make(record, servers)
        session.next_worker.open(session.options)
        return session

    @property
    def setting_sources(self) -> tuple[str, ...]:
        """Claude's active setting sources."""
        return self._template.setting_sources

    def know_aliases(self, owners: Mapping[str, str]) -> None:
        """Register aliases: further ids of sessions."""
        self._owners.update(owners)

    def owner(self, session_id: str) -> str:
        """Resolve an alias to its session's id."""
        return self._owners.get(session_id, session_id)

    async def find(self, session_id: str) -> Session | None:
        """The session with this id or alias, from memory or the database; None: there is none."""
        owner = self.owner(session_id)
        if owner in self._deletions:
            return None
        live = self.live.find(owner)
        return await self._load(owner) if live is None else live

    async def get(self, session_id: str) -> Session:
        """Return the session, loaded if need be; raises SessionNotFound."""
        session = await self.find(session_id)
        if session is None:
            raise SessionNotFound(session_id)
        return session

    async def adopt(
        self, session_id: str, cwd: str | None, client: str | None, account: str | None = None
    ) -> Session:
        """The session of a conversation that another program began, under an id that no session
        has; raises what `adopting.adopt` does.
        """
        owner = await adopting.adopt(self._journal, session_id, cwd, client, account)
        if owner != session_id:
            self._owners[session_id] = owner
        return await self.get(session_id)

    async def of_conversation(self, word: str) -> Session | None:
        """The session of a conversation that other programs began, made now if it has none.

        `word` is as in `adopting.only_name_of`; raises InvalidParams as that does.
        """
        name = await adopting.only_name_of(self._journal, word)
        return None if name is None else await self.adopt(conversations.id_of(name), None, None)

    async def of_name(self, name: str, *, create: bool = False) -> Session | None:
        """Return the session of the conversation that has this very name; `create`: begin it if no
        program has. Raises what `adopting.begin` does.
        """
        if await adopting.is_continued(self._journal, name):
            return await self.adopt(conversations.id_of(name), None, None)
        return await self.get(await adopting.begin(self._journal, name)) if create else None

    async def get_open(self, session_id: str) -> Session:
        """Return the session; raises SessionNotFound, or InvalidRequest unless a client has opened
        it.
        """
        session = await self.get(session_id)
        if session.record.closed or session.record.cwd is None:
            raise InvalidRequest(NOT_OPEN)
        return session

    async def _load(self, session_id: str) -> Session | None:
        record = await self._journal.find(session_id)
        if record is None:
            return None
        parked = [
            one
            for one in await self._journal.find_active(record.session_id)
            if one.policy == RequestPolicy.PARKED
        ]
        live = self.live.get(record.session_id)
        if live is not None:
            return live
        live = self._make(record, ())
        live.restore_requests(0, parked)
        return live

    async def reopen(
        self,
        session: Session,
        cwd: str,
        directories: tuple[str, ...],
        servers: tuple[McpServer, ...],
        requested: RequestedOptions = NOTHING_REQUESTED,
        *,
        given: ClientEnvironment | None = None,
    ) -> None:
        """Reopen the session; directories, servers, options and what is `given` apply to its next
        worker. If its directory is gone, `cwd` takes its place.

        Raises InvalidParams for options that cannot be granted, and for another directory.
        """
        await requested_options.grant(session, self._template, requested)
        moved_from = await adopting.moved_from(session.record, cwd)
        session.record.cwd = cwd if moved_from else session.record.cwd or cwd
        await resolve_links(session.record)
        session.record.additional_directories = directories
        session.environment.open(given)
        if session.record.claude_session_id is not None:  # if not here, then by other programs
            session.record.prompted = True
        options = worker_options.opened(session.options, session.record, self._template, servers)
        session.next_worker.open(options)
        await session.choosing.tell_worker()  # the mode used before planning may be forbidden now
        try:
            await self._soon(closing.reopen(session, self._journal, moved_from))
        except Conflict:  # it was deleted meanwhile
            raise SessionNotFound(session.id) from None
        self.deliveries_wanted.set()

    def take_options(
        self, session: Session, directories: tuple[str, ...], servers: tuple[McpServer, ...]
    ) -> None:
        """Take the options from a returning front, unless a client has opened the session under
        this daemon.
        """
        own = {"additional_directories": directories, "mcp_servers": servers}
        session.next_worker.reopen(msgspec.structs.replace(session.options, **own))

    async def current_seq(self, session: Session, session_id: str, seq: int) -> int:
        """Map a position `seq` under this id, which may date from before logs were merged."""
        if not 0 < seq <= session.record.pruned_upto:
            return seq
        return await self._journal.current_seq(session_id, seq)

    async def end_of_earlier(self, session: Session) -> int:
        """Where the log ended for daemons before this one."""
        end = session.last_seq
        inherited = await self._journal.inherited_end(session.id)
        return end if inherited is None else inherited

    async def turns_of_front(self, session_id: str, front: str) -> dict[str, str]:
        """Ids of the session's turns that came through a front, with their request keys."""
        return await self._journal.turns_of_front(session_id, front)

    async def in_journal(self, session: Session, keys: PromptKeys) -> bool:
        """Whether an unfinished turn has one of these keys."""
        return await self._journal.has_unfinished(session.id, keys)

    async def was_taken(self, request_key: str) -> bool:
        """Whether this request has made a session or a turn."""
        return await self._journal.was_taken(request_key)

    async def is_open(self, ask_id: str) -> bool:
        """Whether the permission request is pending."""
        return await self._journal.is_pending(ask_id)

    async def close(self, session: Session, by: Client | None = None) -> None:
        """Close the session under all its ids, as `closing.close`. It can be loaded again."""
        await closing.close(session, self._journal, self.workers, self._times.cancel_grace, by)

    async def delete(self, session: Session, transcripts: Collection[str] = ()) -> None:
        """End turns and worker, delete the log and all ids; note these transcripts as to be removed."""
        self._journal.require_writable()
        await self._deletions.delete(session, self.workers, self.close, transcripts)

    async def set_away_policy(self, session_id: str, policy: AwayPolicy | None) -> None:
        """Set the session's away policy; None: that of the settings. Raises SessionNotFound."""
        session = await self.get(session_id)
        await self._soon(self._journal.set_away_policy(session.id, policy, patient=True))
        session.record.away_policy = policy
        session.permissions.away.restart_clocks()

    async def _soon(self, writing: Coroutine[Any, Any, None]) -> None:
        """Write a change of an opened session; waits only briefly, as the client can read
        meanwhile.
        """
        task = self._writing.start(writing, name="write-opened")
        await writes.wait(self._journal, task, WRITE_WAIT)
        if task.done():
            task.result()
        else:
            task.add_done_callback(told_elsewhere)

    def mark_request_answered(self, session_id: str, request_key: str) -> None:
        """Note that a client which has the session open has the response to this request."""
        if (live := self.live.get(self.owner(session_id))) is not None:
            live.mark_request_answered(request_key)

    def _make(self, record: SessionRecord, servers: tuple[McpServer, ...]) -> Session:
        options = worker_options.of(record, self._template, servers)
        self.workers.set_resume(record.session_id, record.claude_session_id, record.branch)
        session = Session(
            record,
            options,
            self._journal,
            self.workers,
            self._times,
            workspaces=self._workspaces, transcripts=self._transcripts, locks=self.locks,
            daemon_environment=self.daemon_environment, all_waiting=self._waiting,
            trusted_elsewhere=self.trusted_elsewhere,
        )  # fmt: skip
        self.live.add(session)
        return session
