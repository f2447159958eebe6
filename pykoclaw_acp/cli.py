"""The `pykoclaw-acp` command. Each command imports what it needs when it runs, so that every start is fast."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import asdict
from typing import Any

import click

from pykoclaw_acp import __version__
from pykoclaw_acp.errors import StartupError

_MACHINES = ("x86_64", "aarch64")


def _check_platform() -> None:
    machine = os.uname().machine if hasattr(os, "uname") else "unknown"
    if sys.platform != "linux" or machine not in _MACHINES:
        raise StartupError(
            f"pykoclaw-acp runs on Linux on {' and '.join(_MACHINES)}; this is {sys.platform} on {machine}."
        )


class _Program(click.Group):
    """Turns a StartupError into its message and exit status, as pykoclaw's `acp` command too."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            _check_platform()
            return super().invoke(ctx)
        except StartupError as error:
            click.echo(f"pykoclaw-acp: {error}", err=True)
            ctx.exit(error.exit_code)


@click.group(
    cls=_Program,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Editors start `pykoclaw-acp serve --stdio`. To see it work without an account, run `pykoclaw-acp demo`.",
)
@click.version_option(__version__, prog_name="pykoclaw-acp")
@click.pass_context
def cli(ctx: click.Context) -> None:
    """An ACP agent that puts Claude behind your editor and never loses a conversation."""
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


@cli.command()
@click.option("--stdio", is_flag=True, help="Speak ACP on standard input and output.")
@click.pass_context
def serve(ctx: click.Context, stdio: bool) -> None:
    """Serve ACP clients until standard input ends.

    Nothing but ACP is written to standard output; the log goes to standard error. Exits with 75 when another
    server owns the data directory, and with 78 when a setting or the database cannot be used.
    """
    if not stdio:
        raise click.UsageError("serve needs --stdio: ACP on standard input and output is the only way it serves.")
    from pykoclaw_acp import config
    from pykoclaw_acp.server import stdio as server

    ctx.exit(server.main(config.load()))


@cli.command(name="config")
@click.option("--json", "as_json", is_flag=True, help="Write a JSON array of settings instead of text.")
def show_config(as_json: bool) -> None:
    """Show every setting, its value, and where that came from.

    Settings come from the environment, then ./.env, then ~/.local/share/pykoclaw/.env, then the defaults.
    """
    from pykoclaw_acp import config

    lines = config.describe(config.load())
    if as_json:
        click.echo(json.dumps([asdict(line) for line in lines], indent=2))
        return
    for line in lines:
        value = ",".join(line.value) if isinstance(line.value, list) else line.value
        shown = "(none)" if value in (None, "") else value
        click.echo(f"{click.style(line.env, bold=True)}={shown}  [{line.source}]\n    {line.description}")


@cli.command(short_help="Play the whole story offline, on the real Claude CLI.")
@click.pass_context
def demo(ctx: click.Context) -> None:
    """Play the whole story offline: a conversation, a crash of everything, and the conversation again.

    It uses the real Claude CLI on a scripted model, in a temporary home: no account, no network, and nothing of
    yours is touched. Exits with 1 when any step went wrong.
    """
    from importlib.util import find_spec

    if find_spec("acp") is None:
        raise StartupError("The demo needs an ACP client library. Install it with: pip install 'pykoclaw-acp[demo]'")
    from pykoclaw_acp.demo import story

    ctx.exit(story.main())


@cli.command(
    name="scripted-model",
    short_help="Run a Messages API on loopback that plays scripts.",
    add_help_option=False,
    context_settings={"ignore_unknown_options": True, "allow_extra_args": True},
)
@click.pass_context
def scripted_model(ctx: click.Context) -> None:
    """Run a Messages API on loopback that plays scripts, to try things offline."""
    from pykoclaw_acp.scripted_model import __main__ as program

    ctx.exit(program.main(ctx.args))


def main() -> None:
    """The console script."""
    cli(prog_name="pykoclaw-acp")
