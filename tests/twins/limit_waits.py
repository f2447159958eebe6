"""The twin of `sessions.ports.LimitWaitStore`."""

from __future__ import annotations

from collections.abc import Sequence

from pykoclaw_acp.model.events import Event
from pykoclaw_acp.model.limit_waits import LimitWait
from tests.twins.base import MemoryStore


class MemoryLimitWaitStore(MemoryStore):
    async def limit_waits(self) -> list[LimitWait]:
        return sorted(self.database.read().limit_waits.values(), key=lambda one: one.due)

    async def limit_wait(self, session_id: str) -> LimitWait | None:
        return self.database.read().limit_waits.get(session_id)

    async def give_up_limit_wait(self, wait: LimitWait, said: Sequence[Event]) -> list[int] | None:
        def give_up() -> list[int] | None:
            if self.database.limit_waits.get(wait.session_id) != wait:
                return None
            del self.database.limit_waits[wait.session_id]
            return self.database.log(wait.session_id, None, said)

        return await self.database.write(give_up, patient=True)
