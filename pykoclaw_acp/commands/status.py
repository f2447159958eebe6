"""`pykoclaw-acp status`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Final

from pykoclaw_acp import terminal
from pykoclaw_acp.commands import show
from pykoclaw_acp.commands.daemon import ask
from pykoclaw_acp.commands.tasks import who_runs
from pykoclaw_acp.commands.workers import table_of
from pykoclaw_acp.errors import DaemonNotRunning, StartupError
from pykoclaw_acp.link import places
from pykoclaw_acp.model.condition import DatabaseState
from pykoclaw_acp.model.scheduled import SchedulerState


def main(as_json: bool) -> None:
    """Show the daemon's status; never starts one. Raises DaemonNotRunning."""
    try:
        status = ask("status", start=False)
    except DaemonNotRunning:
        if as_json:
            terminal.as_json({"daemon": None})
        where = places.Places.find()
        holder = places.lock_holder(where.data)
        if holder is not None and holder[1] is None:
            pid = holder[0]
            raise DaemonNotRunning(
                f"The daemon does not run: `serve --stdio` (pid {pid}) uses the data directory {where.data}."
            ) from None
        if holder is None and (why := _unusable(where)):
            raise DaemonNotRunning(f"No daemon runs, and none can start. {why}") from None
        raise
    if as_json:
        terminal.as_json(status)
        return
    show.facts(facts(status))
    if status["workers"]:
        terminal.line()
        table_of(status["workers"])
    if status["questions"]:
        terminal.line()
        pending = show.count(len(status["questions"]), "pending permission request")
        terminal.line(f"{pending}: see `pykoclaw-acp approve`.")


def _unusable(where: places.Places) -> str:
    """Why a daemon would not start with the database, as `doctor` says it; empty if it would."""
    from pykoclaw_acp.doctor import checks, database, report

    context = report.Context(places=where, environment=os.environ, home=Path.home())
    (found,) = checks.examine(context, [database.database])
    return found.advice if found.level == "problem" else ""


def loop_lag(daemon: dict[str, Any]) -> str:
    """The lag of the daemon's event loop, in words."""
    milliseconds = daemon.get("loopLag")  # missing in the answer of an older daemon
    return (
        "not measured"
        if milliseconds is None
        else f"at most {milliseconds:.0f} ms in the last minute"
    )


def facts(status: dict[str, Any]) -> list[tuple[str, str]]:
    """What `status` shows above its tables: names and values."""
    daemon, sessions, database = status["daemon"], status["sessions"], status["database"]
    workers = sum(worker["memory"] or 0 for worker in status["workers"])
    return [
        (
            "daemon",
            f"running for {show.since(daemon['startedAt'])}, pid {daemon['pid']}, version {daemon['version']}",
        ),
        ("socket", daemon["socket"] or "none"),
        ("data", daemon["data"]),
        *_copied(daemon),
        ("memory", f"{show.size(daemon['memory'])}, workers {show.size(workers)}"),
        ("loop lag", loop_lag(daemon)),
        *_work(status),
        ("clients", f"{status['clients']} with a session open"),
        ("sessions", "cannot be read now" if sessions is None else _counts(sessions)),
        (
            "database",
            f"{show.size(database['size'])}, {database['journalMode']} journal, "
            f"{database['engine']} with SQLite {database['engineVersion']}"
            + (" (see `pykoclaw-acp doctor`)" if database["atRisk"] else ""),
        ),
        *_accounts(status.get("accounts", [])),
        *_others(status.get("otherSettings", [])),
        *facts_of_scheduler(status.get("scheduler")),
        *_limit_waits(status.get("limitWaits", [])),
        *_trouble(database),
        *_conversion(status.get("conversion")),
        *_damaged(status.get("damaged", [])),
    ]


def _work(status: dict[str, Any]) -> list[tuple[str, str]]:
    if status["sessions"] is None:
        return [("workers", "cannot be read now")]
    return [
        ("workers", str(len(status["workers"]))),
        ("turns", f"{status['running']} running, {status['waiting']} waiting"),
    ]


def _counts(sessions: dict[str, int]) -> str:
    hidden = sessions["helpers"] + sessions["unused"]
    conversations = show.count(sessions["conversations"], "conversation")
    return f"{conversations}; {hidden} that lists do not show"


_FOUND: Final = ("login", "environment")


def _accounts(accounts: list[dict[str, Any]]) -> list[tuple[str, str]]:
    """One line, unless there is nothing to choose and a credential."""
    if len(accounts) < 2 and all(one["credential"] in _FOUND for one in accounts):
        return []
    words = {
        "login": "logged in",
        "environment": "a key of the daemon",
        "unread": "cannot be read now, for want of memory or descriptors",
        None: "not logged in (the key of a client that has this account is used)",
    }
    shown = [
        f"{one['name']}{' (of new sessions)' if one['chosen'] else ''}: {words[one['credential']]}"
        for one in accounts
    ]
    return [("accounts", "; ".join(shown))]


def _others(clients: list[dict[str, Any]]) -> list[tuple[str, str]]:
    return [
        ("settings", f"{one['client']} has others in its environment: {', '.join(one['settings'])}")
        for one in clients
    ]


def _damaged(files: list[str]) -> list[tuple[str, str]]:
    if not files:
        return []
    return [
        (
            "damaged",
            f"{show.count(len(files), 'spool')}, the newest is {files[-1]}: see `pykoclaw-acp doctor`",
        )
    ]


def _trouble(database: dict[str, Any]) -> list[tuple[str, str]]:
    if database.get("condition", DatabaseState.WRITABLE) == DatabaseState.WRITABLE:
        return []
    if database["condition"] == DatabaseState.DAMAGED:
        return [("storing", f"not possible everywhere (damaged): {database['reason']}")]
    return [
        (
            "storing",
            f"not possible ({database['condition']}): {database['reason']} New prompts are refused.",
        )
    ]


def _copied(daemon: dict[str, Any]) -> list[tuple[str, str]]:
    original = daemon.get("copiedFrom")  # missing in the answer of an older daemon
    if original is None:
        return []
    since = show.since(daemon["copiedAt"])
    return [("", f"a copy of {original}, found so {since} ago; what runs there goes on there")]


def facts_of_scheduler(scheduler: dict[str, Any] | None) -> list[tuple[str, str]]:
    """Who runs tasks; nothing if nobody does, and there are none."""
    if scheduler is None:  # an older daemon
        return []
    idle = scheduler["state"] == SchedulerState.OFF and scheduler["other"] is None
    try:
        if idle and not ask("tasks/list", start=False, limit=1)["tasks"]:
            return []
    except StartupError:  # the rest is known
        return [("tasks", "cannot be read now")]
    return [("tasks", f"{who_runs(scheduler)} {scheduler['running']} running.")]


def _conversion(conversion: dict[str, Any] | None) -> list[tuple[str, str]]:
    if conversion is None:
        return []
    done = conversion["events"] - conversion["left"]
    return [
        (
            "old logs",
            f"{done:,} of {conversion['events']:,} events converted; it goes on while nothing runs",
        )
    ]


def _limit_waits(waits: list[dict[str, Any]]) -> list[tuple[str, str]]:
    return [
        (
            "usage limit",
            f"session {one['session']} resumes by itself at {show.when(one['due'])}",
        )
        for one in waits
    ]
