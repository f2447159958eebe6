"""`pykoclaw-acp tasks`: scheduled tasks."""

from __future__ import annotations

import click

from pykoclaw_acp.cli.options import JSON, given

TASK = click.argument("task", callback=given)


@click.group(short_help="List, show, pause, resume, cancel and run scheduled tasks.")
def tasks() -> None:
    """List, show, pause, resume, cancel and run scheduled tasks.

    TASK is an id or a unique prefix of one. These commands start the daemon if none is running. Exit
    status: 1 if there is no such task.
    """


@tasks.command(name="list", short_help="List scheduled tasks.")
@click.option(
    "--limit",
    type=click.IntRange(1, 10_000),
    default=100,
    show_default=True,
    help="Maximum number of tasks.",
)
@JSON
def list_tasks(limit: int, as_json: bool) -> None:
    """List scheduled tasks, newest first, and say who runs them."""
    from pykoclaw_acp.commands import tasks as command

    command.list_all(limit, as_json)


@tasks.command(name="show", short_help="Show a scheduled task and its latest runs.")
@TASK
@JSON
def show_task(task: str, as_json: bool) -> None:
    """Show a scheduled task and its latest runs, by whatever program."""
    from pykoclaw_acp.commands import tasks as command

    command.show_one(task, as_json)


@tasks.command(name="pause", short_help="Pause a scheduled task.")
@TASK
def pause_task(task: str) -> None:
    """Pause a scheduled task. A run that has begun continues, and one that waits to begin behind
    another turn takes place; the command says so.
    """
    from pykoclaw_acp.commands import tasks as command

    command.pause(task)


@tasks.command(name="resume", short_help="Resume a paused task.")
@TASK
def resume_task(task: str) -> None:
    """Resume a task by its schedule, counted from now. If the time of a `once` task has passed, it is
    due, unless it has run.
    """
    from pykoclaw_acp.commands import tasks as command

    command.resume(task)


@tasks.command(name="cancel", short_help="Cancel and delete a scheduled task.")
@TASK
def cancel_task(task: str) -> None:
    """Cancel a scheduled task, and delete it and what is kept of its runs.

    A run that waits to begin, as behind another turn, does not take place. One that has begun continues.
    The command says which, and how to stop it.
    """
    from pykoclaw_acp.commands import tasks as command

    command.cancel(task)


@tasks.command(name="run", short_help="Run a scheduled task now.")
@TASK
def run_task(task: str) -> None:
    """Run a scheduled task now, also if it is paused or the daemon's scheduler is off.

    The command does not wait for the result, which is delivered as always. The schedule does not change.
    """
    from pykoclaw_acp.commands import tasks as command

    command.run(task)
