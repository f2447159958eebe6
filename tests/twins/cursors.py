"""The twin of `sessions.ports.CursorStore`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pykoclaw_acp.model.cursors import Cursor, CursorChange
from tests.twins.base import MemoryStore


class MemoryCursorStore(MemoryStore):
    async def change_cursors(self, changes: Sequence[CursorChange]) -> None:
        def change() -> None:
            for one in changes:
                self._apply(one)

        await self.database.write(change, patient=True)

    def _apply(self, one: CursorChange) -> None:
        key = (one.session_id, one.client, one.client_process, one.front)
        known = self.database.cursors.get(key)
        if one.cursor is None:
            self.database.cursors.pop(key, None)
            self.database.ended_cursors.pop(key, None)
        elif known is None or one.whole or one.cursor.seq > known.seq:
            self.database.cursors[key] = one.cursor
            if one.cursor.spare is None:
                self.database.ended_cursors.pop(key, None)

    async def cursors(self, session_id: str, client: str) -> list[Cursor]:
        return [
            one
            for key, one in self.database.read().cursors.items()
            if key[:2] == (session_id, client)
        ]

    async def client_processes(self) -> list[str]:
        return list(dict.fromkeys(key[2] for key in self.database.read().cursors))

    async def age_cursors(self, ended: Sequence[str], living: Sequence[str], before: int) -> None:
        def age() -> None:
            cursors, since = self.database.cursors, self.database.ended_cursors
            for key, one in list(cursors.items()):
                if key[2] in ended:
                    since.setdefault(key, self.clock.now())
                if key[2] in living:
                    since.pop(key, None)
                    cursors[key] = replace(one, spare=None)
            for key, one in list(cursors.items()):
                times = [since.get(key), one.spare]
                if any(at is not None and at <= before for at in times):
                    del cursors[key]
                    since.pop(key, None)

        await self.database.write(age)
