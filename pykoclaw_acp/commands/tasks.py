"""`pykoclaw-acp tasks`: scheduled tasks."""

from __future__ import annotations

from typing import Any, Final

from pykoclaw_acp import terminal
from pykoclaw_acp.commands import show
from pykoclaw_acp.commands.daemon import ask
from pykoclaw_acp.front.call import given_environment
from pykoclaw_acp.model.scheduled import RunStanding, SchedulerState

LONGEST_INTERVAL: Final = 20  # digits; Python makes no number of thousands
_UNITS: Final = {"d": 86_400_000, "h": 3_600_000, "min": 60_000, "s": 1000}  # in ms


def list_all(limit: int, as_json: bool) -> None:
    """List tasks, newest first, and say who runs them."""
    found = ask("tasks/list", limit=limit)
    if as_json:
        terminal.as_json(found["tasks"])
        return
    if not found["tasks"]:
        terminal.line("No scheduled tasks.")
        return
    terminal.table(
        ("id", "conversation", "state", "next run", "schedule", "prompt"),
        [
            (
                one["id"][:8],
                one["conversation"],
                "running" if one["running"] else one["status"],
                _time(one["nextRun"]),
                _schedule(one),
                show.one_line(one["prompt"]),
            )
            for one in found["tasks"]
        ],
    )
    if found["more"]:
        terminal.line(f"There are more; --limit shows more than {limit}.")
    terminal.line(who_runs(found["scheduler"]))


def show_one(task: str, as_json: bool) -> None:
    """Show a task with its newest runs."""
    details = ask("tasks/show", task=task)
    if as_json:
        terminal.as_json(details)
        return
    one = details["task"]
    show.facts(
        [
            ("id", one["id"]),
            ("conversation", one["conversation"]),
            ("delivers to", one["deliversTo"]),
            ("context", one["contextMode"]),
            ("schedule", _schedule(one)),
            ("state", "running" if one["running"] else one["status"]),
            ("next run", _time(one["nextRun"])),
            ("last run", _time(one["lastRun"])),
            ("last result", show.one_line(one["lastResult"], "none")),
            ("prompt", show.one_line(one["prompt"])),
            *(
                (f"cut: {name}", f"{show.size(size)} in all; the database has the rest")
                for name, size in one.get("cut", {}).items()
            ),
        ]
    )
    if details["runs"]:
        terminal.line()
        terminal.table(
            ("run", "took", "state", "result"),
            [
                (
                    _time(run["runAt"]),
                    f"{run['durationMs'] / 1000:.0f} s",
                    run["status"],
                    show.one_line(run["error"] or run["result"]),
                )
                for run in details["runs"]
            ],
            right=("took",),
        )


def pause(task: str) -> None:
    """Pause a task."""
    one = ask("tasks/pause", task=task)
    if one.get("changed", True):  # an older daemon does not say it
        terminal.line(f"Paused {one['id']}.{_run(one)}")
    else:
        terminal.line(f"{one['id']} was paused already.{_run(one)}")


def resume(task: str) -> None:
    """Resume a task."""
    one = ask("tasks/resume", task=task)
    changed = one.get("changed", True)  # an older daemon does not say it
    done = f"Resumed {one['id']}." if changed else f"{one['id']} was active already."
    terminal.line(f"{done} Next run: {_time(one['nextRun'])}.")


def cancel(task: str) -> None:
    """Delete a task."""
    done = ask("tasks/cancel", task=task)
    one = done.get("task", task)  # an older daemon says none
    terminal.line(f"Cancelled and deleted {one}.{_run(done)}")


def _run(done: dict[str, Any]) -> str:
    """What becomes of a run that was claimed before the change, as a sentence; empty without one."""
    if done.get("run") == RunStanding.CANCELLED:
        return " Its run had not begun, and does not take place."
    if done.get("run") == RunStanding.WAITS:
        return (
            " Its run that waits to begin takes place all the same;"
            f" `pykoclaw-acp tasks cancel {done['id']}` prevents it, and deletes the task."
        )
    if done.get("run") == RunStanding.GOES_ON:
        stop = f"`pykoclaw-acp workers stop {done['session']}`"
        return f" Its run had begun, and goes on; {stop} stops it, or its client."
    return ""


def run(task: str) -> None:
    """Run a task now."""
    started = ask("tasks/run", task=task, environment=given_environment())
    terminal.line(f"Started {started['task']}; `pykoclaw-acp tasks show` shows how it ended.")


def who_runs(scheduler: dict[str, Any]) -> str:
    """Which program runs tasks, in words."""
    other = scheduler["other"]
    if scheduler["state"] == SchedulerState.ON:
        return "The daemon runs the tasks that are due."
    if scheduler["state"] == SchedulerState.STANDS_BY:
        return f"The daemon runs none: pykoclaw's scheduler (pid {other}) does."
    if other is not None:
        return f"pykoclaw's scheduler (pid {other}) runs the tasks that are due."
    return "Nothing runs the tasks that are due: set PYKOCLAW_SCHEDULER=on, or start pykoclaw's scheduler."


def _schedule(task: dict[str, Any]) -> str:
    kind, value = task["scheduleType"], show.one_line(task["scheduleValue"])
    return f"{kind} {_interval(value)}" if kind == "interval" else f"{kind} {value}"


def _interval(ms: str) -> str:
    """An interval with its unit; what is no number as it is."""
    if not (ms.isascii() and ms.isdigit()) or len(ms) > LONGEST_INTERVAL:
        return ms
    for unit, length in _UNITS.items():
        if int(ms) % length == 0:
            return f"{int(ms) // length} {unit}"
    return f"{ms} ms"


def _time(text: str | None) -> str:
    """Local time of one of pykoclaw's; what is no time as it is."""
    return "never" if text is None else show.written(text)
