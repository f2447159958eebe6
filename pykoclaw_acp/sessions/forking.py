"""Forking a session: another one with its history up to the end of a turn, whose Claude session
branches off there at its first prompt.

Neither the source nor its transcript is touched. While a turn of the source runs, the fork has what
was before that turn.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final
from uuid import uuid4

import msgspec
import structlog

from pykoclaw_acp.channel.options import McpServer
from pykoclaw_acp.errors import Conflict, SessionNotFound
from pykoclaw_acp.model.branches import Fork, ForkedAt, ForkPoint
from pykoclaw_acp.model.events import TitleChanged, note_event
from pykoclaw_acp.sessions.given_up import GivenUp
from pykoclaw_acp.sessions.names import ConversationNames
from pykoclaw_acp.sessions.once import OncePerRequest
from pykoclaw_acp.sessions.ports.branches import BranchStore
from pykoclaw_acp.sessions.session import Session
from pykoclaw_acp.sessions.turns import titles

SUFFIX: Final = " (fork)"
GOES_ON: Final = "It goes on in the session that this one was forked from."
SUMMARY: Final = (
    "(Claude does not remember all of what is above. It gets a summary with the first prompt.)"
)
LEFT_OUT: Final = (
    "(This is a fork of a session in which a turn was running. It has what was said before that"
    " turn; the turn goes on there, and is not part of this one.)"
)

log: Final = structlog.get_logger()


class Forks:
    """Makes forks, once for each request."""

    def __init__(
        self,
        store: BranchStore,
        names: ConversationNames,
        find: Callable[[str], Awaitable[Session | None]],
    ) -> None:
        """`find`: the session of an id."""
        self._store = store
        self._names = names
        self._find = find
        self._making = OncePerRequest()
        self._given_up = GivenUp(store)

    async def fork(
        self,
        source: Session,
        cwd: str,
        directories: tuple[str, ...],
        servers: tuple[McpServer, ...],
        *,
        message_id: str | None = None,
        request_key: str | None = None,
        client: str | None = None,
    ) -> tuple[Session, ForkedAt]:
        """The fork, in the database before this returns, and where it was made; a request that comes
        again has the fork that it made, whatever became of the source.

        Raises as `BranchStore.point` and `BranchStore.fork`.
        """

        async def make() -> Session:
            if (made := await self._made(request_key)) is not None:
                return made
            await source.others.look_if_possible()
            point = await self._store.point(source.record, source.last_seq, message_id)
            return await self._make(
                source, point, cwd, directories, request_key=request_key, client=client
            )

        made = await self._making.make(request_key or str(uuid4()), make)
        options = {"cwd": cwd, "additional_directories": directories, "mcp_servers": servers}
        made.next_worker.open(msgspec.structs.replace(made.options, **options))
        at = await self._store.forked_at(made.id)
        return made, at or ForkedAt(source.last_seq)  # one of a version that did not note it

    async def _made(self, request_key: str | None) -> Session | None:
        made = None if request_key is None else await self._store.find_created(request_key)
        return None if made is None else await self._find(made)

    async def _make(
        self,
        source: Session,
        point: ForkPoint,
        cwd: str,
        directories: tuple[str, ...],
        *,
        request_key: str | None,
        client: str | None,
    ) -> Session:
        session_id = str(uuid4())
        tools = await self._store.open_tools(source.id, point.upto)
        context = source.others.context
        said = [*tools.failed(GOES_ON), *await context.without_tasks(point.upto)]
        if source.record.title is not None:
            said.append(TitleChanged(titles.shorten(source.record.title, SUFFIX) or SUFFIX))
        note = await context.note_at(point.upto, point.memory, f"fork-{session_id}")
        if note is not None:
            said.append(note_event(f"fork-summary-{session_id}", SUMMARY))
        if not point.complete:
            said.append(note_event(f"fork-{session_id}", LEFT_OUT))
        async with self._names.reserve(session_id) as name:
            fork = Fork(
                session_id, name, source.id, cwd, directories, point, said,
                at_end=not point.complete or point.upto >= source.last_seq, note=note,
                request_key=request_key, client=client,
            )  # fmt: skip
            try:
                await self._store.fork(fork)
            except BaseException as error:
                self._given_up.add(session_id)
                if isinstance(error, Conflict):  # it was deleted meanwhile
                    raise SessionNotFound(source.id) from None
                raise
        log.info(
            "Session forked",
            action="session_forked",
            session=source.id,
            fork=session_id,
            upto=point.upto,
        )
        made = await self._find(session_id)
        if made is None:
            raise Conflict("the fork was deleted at once")
        return made
