"""Whether what acts in a session's directories counts for its worker: known, or asked of the user.

Nothing acts before somebody has said that it may. While the question waits, its prompt does: it needs no worker, and is
asked again by the next daemon. Only the choice to trust trusts; refusing ends the prompt, and whatever else becomes of
the question lets Claude run without.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import structlog
from msgspec.structs import replace

from pykoclaw_acp.channel.options import TRUSTED, WITHOUT, WorkerOptions
from pykoclaw_acp.errors import WorkerFailed
from pykoclaw_acp.model import prompt_text
from pykoclaw_acp.model.events import Event
from pykoclaw_acp.model.permissions import Decision, PermissionRequest, Workspace
from pykoclaw_acp.model.trust import ANY, FIRST_USE, Trusted
from pykoclaw_acp.model.turns import Turn
from pykoclaw_acp.sessions import workspace_words
from pykoclaw_acp.sessions.permissions import decisions
from pykoclaw_acp.sessions.ports import TrustStore, Workers, Workspaces
from pykoclaw_acp.trust.content import Content

if TYPE_CHECKING:
    from pykoclaw_acp.sessions.session import Session

LOOKS: Final = 5  # changes of a directory in the middle of one prompt's beginning, at most
CHANGING: Final = "What acts in the directory keeps changing, so the prompt was not sent to Claude. Send it again."

log: Final = structlog.get_logger()


class WorkspaceGate:
    """Of one session. Without `workspaces` every directory is trusted."""

    def __init__(self, session: Session, journal: TrustStore, workers: Workers, workspaces: Workspaces | None) -> None:
        self._session = session
        self._journal = journal
        self._workers = workers
        self._workspaces = workspaces
        self._seen: tuple[WorkerOptions, Content] | None = None

    async def admit(self, turn: Turn, options: WorkerOptions) -> tuple[WorkerOptions, list[Event]]:
        """The options with what counts for its worker, and what the log says about it; asks if need be.

        Raises WorkerFailed if the user refuses.
        """
        for _ in range(LOOKS):
            content = await self._look(options)
            said, workspace = await self._decide(turn, content)
            if not said or await self.unchanged():  # the answer may have taken long
                return replace(options, workspace=workspace), said
        raise WorkerFailed("workspace_changing", CHANGING)

    async def unchanged(self) -> bool:
        """Whether the directories are as they were when they were looked at."""
        if self._workspaces is None or self._seen is None:
            return True
        return await self._workspaces.unchanged(self._seen[1])

    async def _look(self, options: WorkerOptions) -> Content:
        if self._workspaces is None:
            return Content()
        if self._seen is not None and self._seen[0] == options and await self.unchanged():
            return self._seen[1]
        content = await self._workspaces.look(options.cwd, options.additional_directories, options.setting_sources)
        await self._first_use(options.cwd, content)
        self._seen = (options, content)
        return content

    async def _first_use(self, cwd: str, content: Content) -> None:
        """Directories of conversations from before there was a question are trusted as they are now."""
        paths = [cwd, *(place.path for place in content.acting)]
        for one in await self._journal.trusted(paths):
            if one.content == FIRST_USE and one.path in paths:
                await self._journal.trust_first_use(one.path, content.acting)

    async def _decide(self, turn: Turn, content: Content) -> tuple[list[Event], str]:
        if not content.key:
            return [], ""
        known = await self._journal.trusted([one.path for one in content.acting])
        doubtful = [one for one in content.acting if not is_trusted(one, known)]
        if not doubtful:
            return [], TRUSTED + ("" if _whatever(content, known) else content.key)
        without = WITHOUT + content.key
        if self._workers.workspace(self._session.id) == without:
            return [], without
        if prompt_text.by_client_itself(turn.content, turn.client):  # nobody reads its answer
            return [], without
        request, verdict = await self._ask(turn, doubtful)
        chosen = verdict.option if decisions.is_choice(request, verdict) else None
        log.info("Workspace question settled", action="workspace_settled", session=self._session.id, choice=chosen)
        if chosen == decisions.REJECT_ONCE:
            raise WorkerFailed("workspace_refused", workspace_words.refusal(doubtful))
        said = workspace_words.answered(request)
        if chosen == decisions.ALLOW_ALWAYS:
            return said, TRUSTED + content.key
        return [*said, *workspace_words.left_out(turn.turn_id, doubtful)], without

    async def _ask(self, turn: Turn, doubtful: Sequence[Workspace]) -> tuple[PermissionRequest, Decision]:
        """The answer to the question about these: of now, or of a daemon that died before the prompt left."""
        for one in await self._journal.workspace_answers(turn.turn_id):
            if one.outcome is not None and one.request.workspaces == tuple(doubtful):
                return one.request, Decision(one.outcome, one.option, one.answered_by)
        questions = self._session.permissions
        open_ask = questions.about_trust(turn.turn_id)
        if open_ask is not None and open_ask.workspaces != tuple(doubtful):
            await questions.turn_over(turn.turn_id)
            open_ask = None
        if open_ask is None:
            open_ask = workspace_words.question(turn.turn_id, doubtful)
            await self._journal.ask(self._session.id, open_ask)
            questions.open(0, open_ask, self._session.last_seq)
        self._session.waits_for_worker()  # whatever ends the daemon meanwhile, it is not this prompt
        return open_ask, await questions.settled(open_ask.ask_id)


def is_trusted(one: Workspace, known: Sequence[Trusted]) -> bool:
    """Whether the user has said that what acts there may."""
    return any((row.path == one.path and row.content == one.content != FIRST_USE) or _covers(row, one) for row in known)


def _whatever(content: Content, known: Sequence[Trusted]) -> bool:
    """All of it is trusted whatever it holds: a change needs no other worker."""
    return all(any(_covers(row, one) for row in known) for one in content.acting)


def _covers(row: Trusted, one: Workspace) -> bool:
    return row.content == ANY and (row.path in (one.path, "/") or one.path.startswith(f"{row.path}/"))
