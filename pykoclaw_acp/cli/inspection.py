"""`pykoclaw-acp config`, `status`, `doctor`, `logs` and `completion`: commands that only show."""

from __future__ import annotations

from dataclasses import asdict

import click

from pykoclaw_acp.cli.options import JSON


@click.command(name="config", short_help="Show all settings and where each value comes from.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def show_config(as_json: bool) -> None:
    """Show all settings, their values and where each value comes from.

    Order of precedence: the environment, ./.env if the directory is trusted,
    ~/.local/share/pykoclaw/.env, the default. The values are those that `serve` would use if
    started here. A running daemon keeps the settings that it was started with; a daemon started by
    a client never reads ./.env.
    """
    from pykoclaw_acp import terminal
    from pykoclaw_acp.config import dotenv, listing, loading

    lines, unread = listing.describe(loading.load()), dotenv.unread()
    if as_json:
        terminal.as_json([asdict(line) for line in lines])
        return
    for line in lines:
        value = ",".join(line.value) if isinstance(line.value, list) else line.value
        shown = "(none)" if value in (None, "") else value
        terminal.write(terminal.shown(line.env, bold=True))
        terminal.line(f"={shown}  [{line.source}]")
        terminal.write(terminal.wrapped(line.description, 4))
    if unread:
        terminal.line(
            f"./.env is not read, as this directory is not trusted: {', '.join(unread)}", err=True
        )


@click.command(short_help="Show the daemon, its workers, turns and database.")
@JSON
def status(as_json: bool) -> None:
    """Show the daemon, its workers, turns, clients, sessions and database.

    Never starts a daemon. Exit status: 3 if none is running.
    """
    from pykoclaw_acp.commands import status as command

    command.main(as_json)


@click.command(short_help="Check the installation and suggest fixes.")
@JSON
@click.pass_context
def doctor(ctx: click.Context, as_json: bool) -> None:
    """Check the installation and suggest a fix for each problem.

    Changes nothing, starts no daemon and shows no secrets. Exit status: 1 if there is a problem.
    """
    from pykoclaw_acp.commands import doctor as command

    ctx.exit(command.main(as_json))


@click.command(short_help="Show the log.")
@click.option("-f", "--follow", is_flag=True, help="Keep following the log until Ctrl-C.")
@click.option(
    "-n",
    "--lines",
    metavar="N",
    type=click.IntRange(min=0),
    default=50,
    show_default=True,
    help="Show the last N lines.",
)
@click.option(
    "--workers", is_flag=True, help="Show the log of the workers instead of that of the daemon."
)
@click.option(
    "--json", "as_json", is_flag=True, help="Print the lines unchanged; most are JSON objects."
)
def logs(follow: bool, lines: int, workers: bool, as_json: bool) -> None:
    """Show the end of the daemon's log.

    Under systemd, this is the journal of its unit, also while that does not run.
    """
    from pykoclaw_acp.commands import logs as command

    command.main(lines, follow, workers, as_json)


@click.command(short_help="Print a script that makes a shell complete command lines.")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print a script that makes a shell complete the command lines of pykoclaw-acp.

    \b
    bash: eval "$(pykoclaw-acp completion bash)"                 in ~/.bashrc
    zsh:  eval "$(pykoclaw-acp completion zsh)"                  in ~/.zshrc, after compinit
    fish: pykoclaw-acp completion fish > ~/.config/fish/completions/pykoclaw-acp.fish
    """
    from pykoclaw_acp.commands import completion as command

    assert ctx.parent is not None
    command.script(ctx.parent.command, shell)
