"""`pykoclaw-acp deploy`: the daemon under systemd."""

from __future__ import annotations

import click

from pykoclaw_acp.cli.options import given

SYSTEM = click.option(
    "--system",
    is_flag=True,
    help="System-wide, as the user pykoclaw (needs root), instead of for your user only.",
)


@click.group(short_help="Install or remove the systemd units of the daemon.")
def deploy() -> None:
    """Install or remove the systemd units of the daemon. Conversations, keys and settings are kept."""


@deploy.command(name="install", short_help="Install and start the systemd units.")
@SYSTEM
@click.option("--program", metavar="PATH", callback=given, help="The pykoclaw-acp to run.")
@click.option(
    "--profile",
    type=click.Choice(["editor", "pykoclaw"]),
    help="Defaults of sessions: `editor` asks before Claude acts, `pykoclaw` asks nobody.",
)
def install(system: bool, program: str | None, profile: str | None) -> None:
    """Install and start the systemd units, for your user or system-wide.

    May be repeated. A daemon that a client has started hands over to the service; its turns go on.
    """
    from pykoclaw_acp.commands import deploy as command

    command.install(system, program, profile)


@deploy.command(name="remove", short_help="Stop the service and remove the units.")
@SYSTEM
def remove(system: bool) -> None:
    """Stop the service and remove the systemd units."""
    from pykoclaw_acp.commands import deploy as command

    command.remove(system)
