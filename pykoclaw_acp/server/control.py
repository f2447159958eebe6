"""The daemon's own methods, `_pykoclaw.dev/…`, which the commands call: the groups of handlers, in
one dispatch table.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from typing import Any

from pykoclaw_acp.config.settings import Settings
from pykoclaw_acp.link.places import Places
from pykoclaw_acp.pool.launcher import Launcher
from pykoclaw_acp.protocol.control.tasks import SchedulerInfo
from pykoclaw_acp.server.call import Call
from pykoclaw_acp.server.dispatch import Method
from pykoclaw_acp.server.import_control import ImportControl
from pykoclaw_acp.server.lag import LoopLag
from pykoclaw_acp.server.mcp_control import McpControl
from pykoclaw_acp.server.permission_control import PermissionControl
from pykoclaw_acp.server.rule_control import RuleControl
from pykoclaw_acp.server.session_control import SessionControl
from pykoclaw_acp.server.session_finder import SessionFinder
from pykoclaw_acp.server.status import DaemonStatus
from pykoclaw_acp.server.trusting import Trusting
from pykoclaw_acp.server.turn_control import TurnControl
from pykoclaw_acp.server.worker_control import WorkerControl
from pykoclaw_acp.sessions.registry import Sessions
from pykoclaw_acp.sessions.restoring import Restorer
from pykoclaw_acp.store.conversion import Conversion
from pykoclaw_acp.store.database import Database
from pykoclaw_acp.store.journal.restoring import SqlRestoreStore


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
        launcher: Launcher,
        scheduler: Callable[[], Awaitable[SchedulerInfo]] | None = None,
        hidden: Collection[str] = (),
        others: Callable[[], list[tuple[str, list[str]]]] = list,
        settings: Settings | None = None,
    ) -> None:
        """`hidden`: channels whose conversations are in no list. `others`: clients whose environment
        has other settings than the daemon, and which. `settings`: those of the daemon.
        """
        self.finder = SessionFinder(sessions, database)
        workers = WorkerControl(sessions, database, self.finder, launcher.whereabouts)
        permissions = PermissionControl(sessions, database)
        status = DaemonStatus(
            sessions,
            database,
            places,
            lag,
            conversion,
            launcher=launcher,
            workers=workers,
            permissions=permissions,
            scheduler=scheduler,
            others=others,
            settings=settings,
        )
        self._groups = (
            status,
            SessionControl(sessions, database, self.finder, workers, hidden),
            permissions,
            workers,
            Trusting(sessions, database),
            RuleControl(sessions, database, self.finder),
            TurnControl(sessions, database, self.finder),
            McpControl(sessions),
            ImportControl(
                sessions,
                Restorer(SqlRestoreStore(database), sessions.names, sessions.find),
                str(places.state),
            ),
        )

    @property
    def methods(self) -> dict[str, Method[Call, Any]]:
        """The dispatch table of these methods; a client may call them before `initialize`."""
        return {name: method for group in self._groups for name, method in group.methods.items()}
