"""`pykoclaw-acp workers`: list and stop workers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from pykoclaw_acp import terminal
from pykoclaw_acp.commands import show
from pykoclaw_acp.commands.daemon import ask, require_operator
from pykoclaw_acp.errors import CommandFailed, DaemonNotRunning
from pykoclaw_acp.link import places
from pykoclaw_acp.pool.unattended import unattended

GRACE: Final = 10.0  # s until workers without a daemon are killed; they give their turn 5
STOP_WAIT: Final = 120.0  # s


def table_of(workers: Sequence[dict[str, Any]]) -> None:
    """Table of workers."""
    terminal.table(
        ("session", "state", "trust", "pid", "epoch", "age", "memory", "title"),
        [
            (
                worker["session"][:8],
                worker["state"],
                show.trust(worker.get("workspace")),
                str(worker["pid"]),
                str(worker["epoch"]),
                show.since(worker["startedAt"]),
                show.size(worker["memory"]),
                show.one_line(worker["title"]),
            )
            for worker in workers
        ],
        right=("pid", "epoch", "age", "memory"),
    )


def list_all(as_json: bool) -> None:
    """List the daemon's workers."""
    workers = ask("workers/list", start=False)
    if as_json:
        terminal.as_json(workers)
    elif workers:
        table_of(workers)
    else:
        terminal.line("No worker runs.")


def stop(session: str | None, now: bool) -> None:
    """Stop all workers, or a session's, through the daemon or without it."""
    where = places.Places.find()
    try:
        stopped = ask(
            "workers/stop",
            start=False,
            timeout=STOP_WAIT,
            session=session,
            all=session is None,
            now=now,
        )["workers"]
    except DaemonNotRunning:
        if places.lock_holder(where.data) is not None:
            raise CommandFailed(
                "A server that cannot be asked uses the data directory: end it first. `pykoclaw-acp doctor` says which"
                " process it is."
            ) from None
        if session is not None:
            raise
        require_operator()
        stopped = unattended(where).end(0 if now else GRACE)
    terminal.line(
        f"Ended {show.count(stopped, 'worker')}." if stopped else "No worker was running."
    )
