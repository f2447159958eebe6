"""The handlers of `_pykoclaw.dev/rules/…`: lasting rules, as an operator sees and removes them."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from functools import partial
from typing import Any

from pykoclaw_acp.errors import InvalidParams
from pykoclaw_acp.model.rules import LastingRule
from pykoclaw_acp.protocol.control.rules import RemoveRuleParams, RuleInfo, RulesParams
from pykoclaw_acp.server.call import Call
from pykoclaw_acp.server.dispatch import Method
from pykoclaw_acp.server.session_finder import SessionFinder
from pykoclaw_acp.sessions.registry import Sessions
from pykoclaw_acp.sessions.session import Session
from pykoclaw_acp.store import conversations, rules, workers
from pykoclaw_acp.store.database import Database, Unit
from pykoclaw_acp.system import disks


class RuleControl:
    """Rules of all directories and sessions, whether these are in memory or not."""

    def __init__(self, sessions: Sessions, database: Database, finder: SessionFinder) -> None:
        self._sessions = sessions
        self._database = database
        self._finder = finder

    @property
    def methods(self) -> dict[str, Method[Call, Any]]:
        """Their part of the dispatch table."""
        return {
            "_pykoclaw.dev/rules/list": Method(RulesParams, self.list_all, before_initialize=True),
            "_pykoclaw.dev/rules/remove": Method(
                RemoveRuleParams, self.remove, before_initialize=True, changes=True
            ),
        }

    async def list_all(self, call: Call, params: RulesParams) -> list[RuleInfo]:  # noqa: ARG002
        """All rules that last."""
        return _told(await rules.listing(self._database))

    async def remove(self, call: Call, params: RemoveRuleParams) -> list[RuleInfo]:  # noqa: ARG002
        """Remove a rule, or all of a directory or a session; workers that have them end as soon as
        nothing runs on them. Returns what was removed. Raises InvalidParams if there is none, and
        SessionNotFound if there is no such session.
        """
        self._database.condition.require()
        if bool(params.path) == bool(params.session):
            raise InvalidParams("Give `path` or `session`.")
        known = await rules.listing(self._database)
        found = (
            await self._of_session(known, params.session)
            if params.session
            else await self._of_directory(known, params.path)
        )
        gone = [one for one in found if params.rule in ("", one.rule)]
        if not gone:
            raise InvalidParams("There is no such rule: `pykoclaw-acp rules list` shows all.")
        affected = await self._with(gone)
        outdated = (workers.outdate(session.id, spare=False) for session in affected)
        statements = (*(rules.remove(one) for one in gone), *outdated)
        await self._database.commit(Unit(statements=statements, durable=True))
        for session in {*affected, *await self._with(gone)}:
            session.next_worker.change(session.options, spare=False)
        return _told(gone)

    async def _with(self, gone: Sequence[LastingRule]) -> list[Session]:
        """The sessions whose workers may have one of these rules."""
        paths = {one.path for one in gone if one.session is None}
        ids = {one.session for one in gone}
        found: list[Session] = []
        for session in self._sessions.live.values():
            cwd = session.options.cwd
            if session.id in ids or (cwd and await _real(cwd) in paths):
                found.append(session)
        return found

    async def _of_session(self, known: Sequence[LastingRule], word: str) -> list[LastingRule]:
        """The rules of the session that is meant: of those that have rules, or else of all."""
        owners = await conversations.aliases(self._database)
        found = _beginning(known, owners.get(word, word))
        if found:
            return found
        session = await self._finder.id_of(word)
        return [one for one in known if one.session == session]

    async def _of_directory(self, known: Sequence[LastingRule], path: str) -> list[LastingRule]:
        """The rules of a directory, and of the sessions there."""
        paths = {path, await _real(path)}
        return [one for one in known if one.path in paths or await _real(one.path) in paths]


def _beginning(known: Sequence[LastingRule], prefix: str) -> list[LastingRule]:
    """The rules of the session whose id begins so; raises InvalidParams if several do."""
    found = [one for one in known if one.session is not None and one.session.startswith(prefix)]
    if len({one.session for one in found}) > 1:
        raise InvalidParams("Several sessions with rules have ids that begin so. Give more of it.")
    return found


async def _real(path: str) -> str:
    """The path without symbolic links; as it is if the disk does not answer."""
    with contextlib.suppress(TimeoutError):
        return await disks.call(path, partial(os.path.realpath, path))
    return path


def _told(found: Sequence[LastingRule]) -> list[RuleInfo]:
    return [
        RuleInfo(path=one.path, rule=one.rule, by=one.by, at=one.at, session=one.session)
        for one in found
    ]
