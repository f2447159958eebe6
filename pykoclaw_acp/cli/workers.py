"""`pykoclaw-acp workers`: the processes that run Claude."""

from __future__ import annotations

import click

from pykoclaw_acp.cli.options import JSON, SESSION, given, sessions


@click.group(invoke_without_command=True, short_help="List or stop the processes that run Claude.")
@JSON
@click.pass_context
def workers(ctx: click.Context, as_json: bool) -> None:
    """List or stop the processes that run Claude. Without a command, list them."""
    if ctx.invoked_subcommand is None:
        ctx.invoke(list_workers, as_json=as_json)
    elif as_json:
        raise click.UsageError("Put --json after the command.")


@workers.command(name="list", short_help="List workers.")
@JSON
def list_workers(as_json: bool) -> None:
    """List workers. Exit status: 3 if no daemon is running."""
    from pykoclaw_acp.commands import workers as command

    command.list_all(as_json)


@workers.command(name="stop", short_help="Stop all workers, or the worker of a session.")
@click.argument("session", required=False, callback=given, shell_complete=sessions)
@click.option("--now", is_flag=True, help="Kill immediately instead of stopping gracefully.")
def stop_workers(session: str | None, now: bool) -> None:
    """Stop all workers, or the worker of SESSION. Their turns are cancelled. If no daemon is running,
    all remaining workers can be stopped, but not the worker of one session (exit status 3).

    The next prompt starts a new worker, and Claude remembers the conversation.
    """
    from pykoclaw_acp.commands import workers as command

    command.stop(session, now)


@workers.command(name="stop-task", short_help="Stop one subagent or background command.")
@SESSION
@click.argument("tool_call", callback=given)
def stop_task(session: str, tool_call: str) -> None:
    """Stop the subagent or the background command of SESSION that the tool call TOOL_CALL began. The
    turn goes on.
    """
    from pykoclaw_acp.commands import rewind as command

    command.stop_task(session, tool_call)
