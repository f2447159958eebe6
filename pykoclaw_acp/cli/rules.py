"""`pykoclaw-acp rules`: what is allowed in sessions and directories."""

from __future__ import annotations

import click

from pykoclaw_acp.cli.options import JSON, given, sessions


@click.group(short_help="List and remove lasting permission rules.")
def rules() -> None:
    """List and remove lasting permission rules.

    A rule is made by the choice “Always allow … in this session” or by `approve --always`, and by “Always allow …,
    in later sessions in this directory too” or `approve --lasting`. It allows Claude what it names in the session, or
    in all sessions of the directory, unless these run without trust. These commands start the daemon if none is
    running.
    """


@rules.command(name="list")
@JSON
def list_rules(as_json: bool) -> None:
    """List lasting permission rules."""
    from pykoclaw_acp.commands import rules as command

    command.list_all(as_json)


@rules.command(name="remove", short_help="Remove lasting permission rules.")
@click.argument("directory", type=click.Path(), required=False, callback=given)
@click.argument("rule", callback=given, required=False)
@click.option(
    "--session",
    metavar="ID",
    callback=given,
    shell_complete=sessions,
    help="Remove rules of this session only.",
)
def remove_rule(directory: str | None, rule: str | None, session: str | None) -> None:
    """Remove RULE of DIRECTORY and of the sessions there, or all of their rules.

    DIRECTORY is required (. is the working directory), unless there is --session: then the first argument is the
    rule. A worker that runs keeps its rules until its turn has ended.
    """
    from pykoclaw_acp.commands import rules as command

    if session is not None:
        if rule is not None:
            raise click.UsageError("Give --session or a directory, not both.")
        command.remove("", directory or "", session)
    elif directory is None:
        raise click.UsageError("Give a directory (. is the working directory), or --session.")
    else:
        command.remove(directory, rule or "", "")
