"""Sessions go on by themselves when the usage limit ends that has stopped them.

The prompt that the limit has stopped is never run again: a turn of its own tells Claude to go on,
and is accepted in the transaction that ends the wait.
"""

from __future__ import annotations

import asyncio
import time
from typing import Final
from uuid import NAMESPACE_OID, uuid5

import structlog

from pykoclaw_acp.errors import AcpError, Conflict, StoreClosed, StoreUnavailable
from pykoclaw_acp.model.limit_waits import PROMPT, LimitWait
from pykoclaw_acp.model.turns import PromptKeys, Turn
from pykoclaw_acp.sessions.ports.limit_waits import LimitWaitStore
from pykoclaw_acp.sessions.registry import Sessions
from pykoclaw_acp.sessions.rounds import AFTER_FAILURE, until_closed

LONGEST_PAUSE: Final = 60.0  # s between two looks at the clock, which may be set

log: Final = structlog.get_logger()


class LimitResumer:
    """Lets sessions go on that wait; `changed` is to be set when the database was written."""

    def __init__(self, sessions: Sessions, store: LimitWaitStore) -> None:
        self.changed = asyncio.Event()
        self._sessions = sessions
        self._store = store

    async def run(self) -> None:
        """Run until cancelled, or until the store is closed."""
        await until_closed(
            self._store,
            self.changed,
            self._round,
            damaged="Sessions that wait cannot go on",
            failed="Sessions that wait were not looked at",
            action="limit_waits_failed",
        )

    async def _round(self) -> float:
        """Let those go on that are due; returns for how long (s) none is."""
        pause = LONGEST_PAUSE
        damage: StoreUnavailable | None = None
        if self._sessions.awaits_recovery:
            return pause
        for wait in await self._store.limit_waits():
            left = wait.due - time.time()
            if left > 0:
                pause = min(left, pause)
                break
            try:
                gone_on = await self._go_on(wait)
            except StoreClosed:
                raise
            except StoreUnavailable as error:
                if error.retryable:
                    raise
                damage = error
                log.warning(
                    "A session cannot go on", action="limit_wait_failed", session=wait.session_id
                )
                await self._store.writable()  # the others may not need what is damaged
                continue
            except Exception:  # those that are due later must not wait behind it
                log.exception(
                    "A session cannot go on", action="limit_wait_failed", session=wait.session_id
                )
                gone_on = False
            if not gone_on:
                pause = AFTER_FAILURE
        if damage is not None:
            raise damage
        return pause

    async def _go_on(self, wait: LimitWait) -> bool:
        """False if that is to be tried again."""
        turn = Turn(
            # The same again from a database that was put back: a transcript shows whether Claude has it.
            str(uuid5(NAMESPACE_OID, wait.request_key)),
            wait.session_id,
            [{"type": "text", "text": PROMPT}],
            PromptKeys(request=wait.request_key),
            sent=self._sessions.clock.now(),
            unattended=True,
        )
        try:
            session = await self._sessions.get(wait.session_id)
            await session.others.look(needed=True)  # a person may have prompted it in a terminal
            await session.accept_unattended(turn)
        except Conflict:
            log.info("A session waits no more", action="limit_wait_over", session=wait.session_id)
        except StoreUnavailable:
            raise
        except AcpError as error:  # too much waits there
            log.warning("A session cannot go on", action="limit_wait_failed", reason=str(error))
            return False
        else:
            log.info(
                "The usage limit has ended; the session goes on",
                action="limit_wait_ended",
                session=wait.session_id,
                turn=turn.turn_id,
            )
        return True
