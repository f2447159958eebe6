"""`pykoclaw-acp rules`: what is allowed in directories for later sessions, too."""

from __future__ import annotations

import click

from pykoclaw_acp.cli.options import JSON


@click.group(short_help="List and remove lasting permission rules.")
def rules() -> None:
    """List and remove lasting permission rules.

    A rule is made by the choice “Always allow … in this directory, in later sessions too”, or by `approve --lasting`.
    It allows Claude what it names in sessions of the directory, unless these run without trust. These commands start
    the daemon if none is running.
    """


@rules.command(name="list")
@JSON
def list_rules(as_json: bool) -> None:
    """List lasting permission rules."""
    from pykoclaw_acp.commands import rules as command

    command.list_all(as_json)


@rules.command(name="remove", short_help="Remove lasting permission rules of a directory.")
@click.argument("directory", type=click.Path())
@click.argument("rule", default="")
def remove_rule(directory: str, rule: str) -> None:
    """Remove RULE of DIRECTORY, or all of its rules.

    A worker that runs keeps its rules until its turn has ended.
    """
    from pykoclaw_acp.commands import rules as command

    command.remove(directory, rule)
