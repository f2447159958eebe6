"""Whether what acts in a session's directories counts for its worker: known, or asked of the user.

Nothing acts before somebody has said that it may. While the request waits, its prompt does: it
needs no worker, and is asked again by the next daemon. Only the choice to trust trusts; refusing
ends the prompt, and whatever else becomes of the request lets Claude run without.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import structlog
from msgspec.structs import replace

from pykoclaw_acp.channel.options import TRUSTED, WITHOUT, WorkerOptions, is_restricted
from pykoclaw_acp.error_kinds import ErrorKind
from pykoclaw_acp.errors import StoreUnavailable, WorkerFailed
from pykoclaw_acp.model import trust
from pykoclaw_acp.model.events import Event
from pykoclaw_acp.model.permissions import Decision, PermissionRequest, Workspace
from pykoclaw_acp.model.trust import FIRST_USE, Trusted
from pykoclaw_acp.model.turns import Turn
from pykoclaw_acp.sessions import workspace_words
from pykoclaw_acp.sessions.permissions import decisions
from pykoclaw_acp.sessions.permissions.broker import Broker
from pykoclaw_acp.sessions.permissions.trusted_elsewhere import TrustedElsewhere
from pykoclaw_acp.sessions.ports import TrustStore, Workers, Workspaces
from pykoclaw_acp.sessions.state import SessionState
from pykoclaw_acp.tasks import Tasks
from pykoclaw_acp.trust.content import Content

MAX_RULES: Final = 32 * 1024  # characters; Claude gets them on its command line
LOOKS: Final = 5  # changes of a directory in the middle of one prompt's beginning, at most
CHANGING: Final = "The directory's active content keeps changing, so the prompt was not sent to Claude. Send it again."

log: Final = structlog.get_logger()


class WorkspaceGate:
    """Gate of one session. Without `workspaces` every directory is trusted."""

    def __init__(
        self,
        state: SessionState,
        store: TrustStore,
        workers: Workers,
        broker: Broker,
        workspaces: Workspaces | None,
        *,
        trusted_elsewhere: TrustedElsewhere,
    ) -> None:
        self._state = state
        self._store = store
        self._broker = broker
        self._workers = workers
        self._workspaces = workspaces
        self._trusted_elsewhere = trusted_elsewhere
        self._tasks = Tasks()
        self._seen: tuple[WorkerOptions, Content] | None = None
        self._asked_for = ""  # the last turn with a request

    async def admit(
        self, turn: Turn, options: WorkerOptions, pause: Callable[[Turn], None]
    ) -> tuple[WorkerOptions, list[Event]]:
        """The options with what counts for its worker, and what the log says about it; asks if need
        be.

        `pause` is called with the turn once it waits for the user.
        Raises WorkerFailed if the user refuses, or the directories keep changing.
        """
        asked: tuple[Workspace, ...] | None = None
        for _ in range(LOOKS):
            content = await self._look(options)
            said, workspace = await self._decide(turn, content, pause)
            # The answer may have taken long; what does not act may change all the time.
            if not said or content.acting == asked or await self.unchanged():
                return _in_place(options, content, workspace), said
            asked = content.acting
        raise WorkerFailed(ErrorKind.WORKSPACE_CHANGING, CHANGING)

    async def without_asking(self, options: WorkerOptions) -> WorkerOptions | None:
        """The options as `admit` gives them; None if somebody has to be asked."""
        content = await self._look(options)
        workspace, doubtful, _ = await self._known(content)
        return None if doubtful else _in_place(options, content, workspace)

    async def unchanged(self) -> bool:
        """Whether the directories are as they were when they were looked at."""
        if self._workspaces is None or self._seen is None:
            return True
        return await self._workspaces.unchanged(self._seen[1])

    async def counts_as_before(self) -> bool:
        """Whether the live worker has what acts in the directories as it is now, and may have it:
        trust may have been withdrawn. What does not act may change all the time.
        """
        has = self._workers.workspace(self._state.id)
        if self._workspaces is None or has is None:  # none lives, or it is an earlier version's
            return True
        return await self._counts(has, await self._look(self._options_seen))

    async def counts_for(self, has: str | None) -> bool:
        """Whether a worker that ends, with this `workspace`, has what it may have, or runs nothing
        of the directories. No prompt relies on this look.
        """
        if self._workspaces is None or has is None or is_restricted(has):
            return True
        return await self._counts(has, await self._content(self._options_seen))

    @property
    def _options_seen(self) -> WorkerOptions:
        return self._state.options if self._seen is None else self._seen[0]

    async def _counts(self, has: str, content: Content) -> bool:
        counts, doubtful, _ = await self._known(content)
        without = WITHOUT + content.key
        return has == without if doubtful else has in (counts, TRUSTED + content.key, without)

    async def ends(self, turn: Turn, said: Sequence[Event] = ()) -> list[Event]:
        """What the log says of the turn's requests that `said` has nothing of: the prompt is not
        sent, or does not need their answers any more.
        """
        if turn.turn_id != self._asked_for and not turn.recovered:
            return []
        try:
            asked = await self._store.trust_requests(turn.turn_id)
        except StoreUnavailable:
            log.exception(
                "The end of a trust request could not be told", action="workspace_end_cut"
            )
            return []
        return workspace_words.ends(asked, said)

    def drop_request(self, turn: Turn) -> None:
        """Close the trust request of a turn that does not need it any more, if one is pending."""
        if self._broker.trust_request(turn.turn_id) is not None:
            self._tasks.start(self._broker.drop_trust_request(turn.turn_id))

    async def _look(self, options: WorkerOptions) -> Content:
        content = await self._content(options)
        self._seen = (options, content)
        return content

    async def _content(self, options: WorkerOptions) -> Content:
        """What is there now; as it was found by the last look if nothing has changed since."""
        if self._workspaces is None:
            return Content()
        seen = self._seen
        if seen is not None and seen[0] == options and await self._workspaces.unchanged(seen[1]):
            return seen[1]
        content = await self._workspaces.look(
            options.cwd, options.additional_directories, options.setting_sources
        )
        await self._first_use(options.cwd, content)
        return content

    async def _first_use(self, cwd: str, content: Content) -> None:
        """Directories of conversations from before there were requests are trusted as they are
        now, and no others beside them.
        """
        paths = [cwd, content.resolved.get(cwd, cwd)]
        for one in await self._store.trusted(paths):
            if one.content == FIRST_USE and one.path in paths:
                own = [each for each in content.acting if each.path in paths]
                await self._store.trust_first_use(one.path, own)

    async def _decide(
        self, turn: Turn, content: Content, pause: Callable[[Turn], None]
    ) -> tuple[list[Event], str]:
        workspace, doubtful, known = await self._known(content)
        if not doubtful:
            return [], workspace
        without = WITHOUT + content.key
        if self._workers.workspace(self._state.id) == without:
            return [], without
        if turn.helper:  # nobody reads its answer
            return [], without
        changes = {one.path: trust.changes(one.path, one.files, known) for one in doubtful}
        request, decision = await self._ask(turn, doubtful, changes, pause)
        chosen = decision.option if decisions.is_choice(request, decision) else None
        log.info(
            "Workspace trust request settled",
            action="workspace_settled",
            session=self._state.id,
            choice=chosen,
        )
        if chosen == decisions.REJECT_ONCE:
            raise WorkerFailed(ErrorKind.WORKSPACE_REFUSED, workspace_words.refusal(doubtful))
        if chosen == decisions.ALLOW_ALWAYS:
            await self._trusted_elsewhere.settle()  # the same request of other sessions
        if chosen != decisions.ALLOW_ONCE:
            workspace, still_doubtful, _ = await self._known(content)
            if not still_doubtful:  # it may also be trusted with more than the request offered
                return workspace_words.log_events(request, decisions.ALLOW_ALWAYS), workspace
        # Trust that was given and is gone again counts no more than none.
        chosen = None if chosen == decisions.ALLOW_ALWAYS else chosen
        said = workspace_words.log_events(request, chosen)
        return [*said, *workspace_words.left_out(turn.turn_id, doubtful)], without

    async def _known(self, content: Content) -> tuple[str, list[Workspace], Sequence[Trusted]]:
        """What counts for a worker if nothing is in doubt, what is, and what the user has said."""
        if not content.key:
            return "", [], ()
        known = await self._store.trusted([one.path for one in content.acting])
        doubtful = [one for one in content.acting if trust.grant(one, known) is None]
        if not doubtful:
            await self._note_digests(content.acting, known)
        return TRUSTED + ("" if _whatever(content, known) else content.key), doubtful, known

    async def _note_digests(self, found: Sequence[Workspace], known: Sequence[Trusted]) -> None:
        """An earlier version has trusted without them; the content is the one of then."""
        lacking = {(row.path, row.content) for row in known if row.files is None}
        now = [one for one in found if one.files and (one.path, one.content) in lacking]
        if now:
            await self._store.note_digests(now)

    async def _ask(
        self,
        turn: Turn,
        doubtful: Sequence[Workspace],
        changes: Mapping[str, Sequence[str]],
        pause: Callable[[Turn], None],
    ) -> tuple[PermissionRequest, Decision]:
        """The answer to the request about these: of now, or of a daemon that died before the
        prompt left.
        """
        self._asked_for = turn.turn_id
        for one in await self._store.trust_requests(turn.turn_id):
            if one.option == decisions.ALLOW_ALWAYS:
                continue  # they are in doubt again: trust was withdrawn since
            if one.outcome is not None and _are_same(one.request.workspaces, doubtful):
                return one.request, Decision(one.outcome, one.option, one.answered_by)
        request = self._broker.trust_request(turn.turn_id)
        if request is not None and not _are_same(request.workspaces, doubtful):
            await self._broker.drop_trust_request(turn.turn_id)
            request = None
        if request is None:
            request = workspace_words.request(turn.turn_id, doubtful, changes)
            await self._tasks.finish(self._open(turn, request))
            # Since it was looked up; beside the wait, which an answer may end meanwhile.
            self._tasks.start(self._trusted_elsewhere.settle())
        elif turn.alone:
            self._broker.hasten(request.ask_id)
        pause(turn)  # whatever ends the daemon meanwhile, it is not this prompt
        return request, await self._broker.wait_settled(request.ask_id)

    async def _open(self, turn: Turn, request: PermissionRequest) -> None:
        await self._store.insert_request(self._state.id, request)
        one = self._broker.open(0, request, self._state.last_seq, alone=turn.alone)
        one.settlement = self._tasks.start(self._broker.settle(one), name="settle-request")
        if turn.cancelled.is_set():  # while it was written down
            await self._broker.drop_trust_request(turn.turn_id)


def _in_place(options: WorkerOptions, content: Content, workspace: str) -> WorkerOptions:
    """The options of a worker that starts where was looked, wherever a link leads by then. What
    directories forbid counts without trust, too; raises WorkerFailed if that is too much.
    """
    cwd = options.cwd and content.resolved.get(options.cwd, options.cwd)
    restrictions = content.restrictions if is_restricted(workspace) else {}
    size = sum(len(rule) for rules in restrictions.values() for rule in rules)
    if size > MAX_RULES:
        raise WorkerFailed(ErrorKind.WORKSPACE_REFUSED, workspace_words.too_many_rules(cwd, size))
    return replace(options, cwd=cwd, workspace=workspace, restrictions=restrictions)


def _are_same(asked: Sequence[Workspace], found: Sequence[Workspace]) -> bool:
    """Whether a request is about what was found; one of an older version has no digests."""
    told = [(one.path, one.content, one.found) for one in asked]
    return told == [(one.path, one.content, one.found) for one in found]


def _whatever(content: Content, known: Sequence[Trusted]) -> bool:
    """All of it is trusted whatever it holds: a change needs no other worker."""
    return all(any(trust.covers(row, one) for row in known) for one in content.acting)
