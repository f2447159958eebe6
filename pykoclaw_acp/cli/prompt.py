"""`pykoclaw-acp prompt`: a prompt of no client."""

from __future__ import annotations

import click

from pykoclaw_acp.cli.options import JSON, given, sessions


@click.command(short_help="Send a prompt to a conversation and show the answer.")
@click.argument("session", required=False, callback=given, shell_complete=sessions)
@click.argument("text", required=False)
@click.option(
    "--new", is_flag=True, help="Create a session in the working directory; takes no SESSION."
)
@click.option("--detach", is_flag=True, help="Return as soon as the prompt is stored.")
@click.option(
    "--key",
    metavar="KEY",
    callback=given,
    help="Idempotency key: however often the command is repeated with it, the prompt runs once.",
)
@JSON
@click.pass_context
def prompt(
    ctx: click.Context,
    session: str | None,
    text: str | None,
    *,
    new: bool,
    detach: bool,
    key: str | None,
    as_json: bool,
) -> None:
    """Send TEXT to SESSION, or with --new to a new one, show the answer as it comes, and wait for its end.

    The command also waits, an hour at most, for subagents and commands that the turn leaves in the
    background, and shows what Claude says about them.

    SESSION is an id, a unique prefix of an id, or a conversation name. Without TEXT, or if it is -, the
    prompt is read from standard input. In a terminal, permission requests can be answered as in `attach`;
    elsewhere the command says how to answer them, and waits. Ctrl-C ends the command, not the work;
    so does Ctrl-D where requests can be answered. A prompt has 896 KiB at most: put longer material in
    files.

    Exit status: 0 if Claude has answered, 1 if the turn failed or was refused, 4 if it was cancelled, 5 if
    it is unknown whether the daemon has it, whether Claude had begun or how the turn ended, 6 if a hook has
    blocked the prompt, 130 after Ctrl-C.
    """
    from pykoclaw_acp.commands import prompt as command

    if new and text is not None:
        raise click.UsageError("With --new there is no SESSION: give one TEXT, in quotes.")
    if new:
        session, text = None, session
    elif session is None:
        raise click.UsageError("Give a SESSION, or --new.")
    ctx.exit(command.main(session, text, detach=detach, key=key, as_json=as_json))
