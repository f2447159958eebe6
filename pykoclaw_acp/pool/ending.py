"""What goes with the end of a worker: whether hooks may run; then its session is told, what it left
is removed, and its row goes.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from typing import Final

import structlog

from pykoclaw_acp.channel.spec import WorkerIdentity
from pykoclaw_acp.error_kinds import ErrorKind
from pykoclaw_acp.errors import Conflict, RowRefused
from pykoclaw_acp.model.failures import TurnFailure
from pykoclaw_acp.pool.launcher import Launcher
from pykoclaw_acp.pool.listener import WorkerListener
from pykoclaw_acp.pool.ports import WorkerStore
from pykoclaw_acp.retries import until_done
from pykoclaw_acp.system import shortage

HOPELESS: Final = (Conflict, RowRefused)  # the next try would meet them as well
LAST_TRY: Final = 2.0  # s
NOT_RECORDED: Final = "The answer could not be recorded; the log of pykoclaw-acp says why."

CleanUp = Callable[[], Awaitable[None]]

log: Final = structlog.get_logger()


def not_recorded(error: Exception) -> TurnFailure:
    """Why a worker is gone whose frames could not be taken."""
    if (found := shortage.of(error)) is not None:
        return TurnFailure(found[0], f"Claude's worker could not go on: {found[1]}")
    return TurnFailure(ErrorKind.INTERNAL, NOT_RECORDED)


async def hooks_may_run(asked: Awaitable[bool], wait: float) -> bool:
    """What the session answers whether hooks may run as Claude ends; no if that takes longer than
    `wait` (s), or fails.
    """
    try:
        async with asyncio.timeout(wait):
            return await asked
    except Exception as error:  # noqa: BLE001  nothing keeps a worker from being ended
        log.info("The directories could not be looked at", action="end_unseen", error=str(error))
        return False


async def tell(worker: WorkerIdentity, failure: TurnFailure, listener: WorkerListener) -> None:
    """Tell the session, until it has recorded it."""
    message = "A worker's end could not be told"
    with _logged(message, action="lost_failed"):
        await until_done(
            lambda: listener.lost(worker.session_id, worker.epoch, failure.kind, failure.message),
            message,
            final=HOPELESS,
        )


async def clean_up(
    worker: WorkerIdentity, launcher: Launcher, grace: float, *, keep_spool: bool
) -> CleanUp | None:
    """Remove what the worker has left, which gets `grace` (s) to end; returns what is to be tried
    again.
    """
    clean = partial(launcher.clean, worker, grace, keep_spool=keep_spool)
    try:
        await clean()
    except Exception as error:  # noqa: BLE001  it is logged there
        _log("A dead worker could not be cleaned up", action="clean_up_failed", error=error)
        return clean
    return None


async def clean_up_later(clean: CleanUp) -> None:
    """Try a clean-up until it is done; once more, for LAST_TRY, if the daemon ends before."""
    try:
        await until_done(clean, "A dead worker still cannot be cleaned up")
    except asyncio.CancelledError:
        with contextlib.suppress(Exception):
            async with asyncio.timeout(LAST_TRY):
                await clean()
        raise


async def record(worker: WorkerIdentity, store: WorkerStore) -> None:
    """Delete the worker's row: from now on its session can have another one."""
    message = "A worker's end could not be recorded"
    with _logged(message, action="worker_end_lost"):
        await until_done(
            lambda: store.worker_gone(worker.session_id, worker.epoch), message, final=HOPELESS
        )


@contextlib.contextmanager
def _logged(message: str, action: str) -> Iterator[None]:
    """A failure is logged, and keeps nothing that follows from happening."""
    try:
        yield
    except Exception as error:  # noqa: BLE001  it is logged there
        _log(message, action=action, error=error)


def _log(message: str, *, action: str, error: Exception) -> None:
    if (found := shortage.of(error)) is not None:
        log.warning(message, action=action, reason=found[1])
    else:
        log.error(message, action=action, exc_info=error)
