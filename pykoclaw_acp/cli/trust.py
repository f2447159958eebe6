"""`pykoclaw-acp trust`: which directories are trusted."""

from __future__ import annotations

import click

from pykoclaw_acp.cli.options import JSON, given


@click.group(short_help="List and change trusted directories.")
def trust() -> None:
    """List and change trusted directories.

    Active content of a directory (hooks, helper programs, environment variables, MCP servers,
    plugins and permissions in its Claude settings) takes effect only if the directory is trusted
    with exactly that content. DIRECTORY defaults to the working directory. These commands start the
    daemon if none is running.
    """


DIRECTORY = click.argument("directory", default=".", type=click.Path(exists=True, file_okay=False))


@trust.command(name="list")
@JSON
def list_trusted(as_json: bool) -> None:
    """List trusted directories."""
    from pykoclaw_acp.commands import trust as command

    command.list_all(as_json)


@trust.command(
    name="show", short_help="Show the active content of a directory and whether it is trusted."
)
@DIRECTORY
@JSON
def show_trust(directory: str, as_json: bool) -> None:
    """Show the active content of DIRECTORY and whether it is trusted."""
    from pykoclaw_acp.commands import trust as command

    command.look(directory, as_json)


@trust.command(name="add", short_help="Trust a directory with its current content.")
@DIRECTORY
@click.option(
    "--tree",
    is_flag=True,
    help="Trust all directories below as well, whatever their content is or becomes.",
)
def add_trust(directory: str, tree: bool) -> None:
    """Trust DIRECTORY with its current content, including its .env file.

    A prompt that waits for this answer goes on. After a change of the content, trust is requested
    again.
    """
    from pykoclaw_acp.commands import trust as command

    command.add(directory, tree)


@trust.command(name="remove", short_help="Stop trusting a directory.")
@click.argument("directory", default=".", type=click.Path(), callback=given)
def remove_trust(directory: str) -> None:
    """Stop trusting DIRECTORY, from the next prompt on."""
    from pykoclaw_acp.commands import trust as command

    command.remove(directory)
