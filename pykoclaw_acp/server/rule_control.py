"""The handlers of `_pykoclaw.dev/rules/…`: lasting rules, as an operator sees and removes them."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from typing import Any

from pykoclaw_acp.errors import InvalidParams
from pykoclaw_acp.model.rules import LastingRule
from pykoclaw_acp.protocol.control.rules import RemoveRuleParams, RuleInfo, RulesParams
from pykoclaw_acp.server.call import Call
from pykoclaw_acp.server.dispatch import Method
from pykoclaw_acp.sessions.registry import Sessions
from pykoclaw_acp.store import rules
from pykoclaw_acp.store.database import Database, Unit


class RuleControl:
    """Rules of all directories, whether a session works there or not."""

    def __init__(self, sessions: Sessions, database: Database) -> None:
        self._sessions = sessions
        self._database = database

    @property
    def methods(self) -> dict[str, Method[Call, Any]]:
        """Their part of the dispatch table."""
        return {
            "_pykoclaw.dev/rules/list": Method(RulesParams, self.list_all, before_initialize=True),
            "_pykoclaw.dev/rules/remove": Method(
                RemoveRuleParams, self.remove, before_initialize=True
            ),
        }

    async def list_all(self, call: Call, params: RulesParams) -> list[RuleInfo]:  # noqa: ARG002
        """All rules that last."""
        return _told(await rules.listing(self._database))

    async def remove(self, call: Call, params: RemoveRuleParams) -> list[RuleInfo]:  # noqa: ARG002
        """Remove a rule, or all of a directory; workers there end as soon as nothing runs on them.
        Returns what was removed.
        """
        self._database.condition.require()
        paths = {params.path, await asyncio.to_thread(os.path.realpath, params.path)}
        gone = [
            one
            for one in await rules.listing(self._database)
            if one.path in paths and params.rule in ("", one.rule)
        ]
        if not gone:
            raise InvalidParams("There is no such rule: `pykoclaw-acp rules list` shows all.")
        statements = tuple(rules.remove(one.path, one.rule) for one in gone)
        await self._database.commit(Unit(statements=statements, durable=True))
        for session in self._sessions.live.values():
            cwd = session.options.cwd
            if cwd and await asyncio.to_thread(os.path.realpath, cwd) in paths:
                session.next_worker.change(session.options)
        return _told(gone)


def _told(found: Sequence[LastingRule]) -> list[RuleInfo]:
    return [RuleInfo(path=one.path, rule=one.rule, by=one.by, at=one.at) for one in found]
