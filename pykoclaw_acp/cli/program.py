"""The `pykoclaw-acp` command. Each command imports what it needs when it runs, so that every start
is fast.
"""

from __future__ import annotations

import gc
import os
import sys
from typing import TYPE_CHECKING, Any

import click

from pykoclaw_acp import __version__
from pykoclaw_acp.cli.accounts import login, logout
from pykoclaw_acp.cli.deploy import deploy
from pykoclaw_acp.cli.inspection import completion, doctor, logs, show_config, status
from pykoclaw_acp.cli.mcp import mcp
from pykoclaw_acp.cli.prompt import prompt
from pykoclaw_acp.cli.rules import rules
from pykoclaw_acp.cli.scripted import scripted_model
from pykoclaw_acp.cli.sessions import approve, attach, import_session, rewind, sessions
from pykoclaw_acp.cli.tasks import tasks
from pykoclaw_acp.cli.trust import trust
from pykoclaw_acp.cli.workers import workers
from pykoclaw_acp.errors import (
    CommandFailed,
    ConfigurationError,
    Exhausted,
    OutputLost,
    StartupError,
)
from pykoclaw_acp.system.machine import check_platform

if TYPE_CHECKING:
    from pykoclaw_acp.pool.forkserver_process import StartingForkServer

SHUT_OUT = (
    "Another program's SQLite library was loaded into this Python before ours, and one process must not use two. "
    "Nothing was opened. Look for a .pth file, a sitecustomize module or a PYTHONPATH that imports sqlite3."
)

NOWHERE = "The working directory was deleted. Change to another one, and run the command again."


class _Program(click.Group):
    """Turns a StartupError into its message and exit status, as pykoclaw's `acp` command too."""

    def make_context(
        self,
        info_name: str | None,
        args: list[str],
        parent: click.Context | None = None,
        **extra: Any,
    ) -> click.Context:
        if sys.stdin is None:  # closed by the caller
            sys.stdin = open(os.devnull, encoding="utf-8")  # noqa: SIM115  as long as the process
        if parent is not None and not extra.get("resilient_parsing"):  # below pykoclaw
            from pykoclaw_acp.cli import fresh

            fresh.renew(args)
        try:
            return super().make_context(info_name, args, parent, **extra)
        except OSError as error:  # of --help and --version
            raise click.exceptions.Exit(_complain(_output_lost(error))) from None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError:
            below = [
                f"'{name} {args[0]}'"
                for name, command in sorted(self.commands.items())
                if isinstance(command, click.Group) and args[0] in command.commands
            ]
            if not below:
                raise
            ctx.fail(f"No such command '{args[0]}'. Did you mean {' or '.join(below)}?")

    def invoke(self, ctx: click.Context) -> Any:
        try:
            check_platform()
            return super().invoke(ctx)
        except StartupError as error:
            ctx.exit(_complain(error))
        except Exception as error:
            from pykoclaw_acp.system import shortage

            if (found := shortage.of(error)) is not None:
                ctx.exit(_complain(Exhausted(*found)))
            if isinstance(error, FileNotFoundError) and _is_nowhere():
                ctx.exit(_complain(StartupError(NOWHERE)))
            if isinstance(error, OSError):
                ctx.exit(_complain(_output_lost(error)))
            if not isinstance(error, RuntimeError) or not _is_engine_shut_out():
                raise
            ctx.exit(_complain(StartupError(SHUT_OUT)))


def _output_lost(error: OSError) -> OutputLost:
    """What became of click's own output, as that of --help; raises the error if it is another or
    nobody reads any more.
    """
    from pykoclaw_acp import terminal

    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None or trace.tb_frame.f_globals.get("__name__") != "click.utils":
        raise error
    try:
        with terminal.output():
            raise error
    except OutputLost as lost:
        return lost


def _is_nowhere() -> bool:
    try:
        os.getcwd()
    except FileNotFoundError:
        return True
    return False


def _is_engine_shut_out() -> bool:
    from pykoclaw_acp.store import engine

    return engine.is_shut_out()


def _complain(error: StartupError) -> int:
    from pykoclaw_acp import terminal

    # One line for each bad setting; in what others say a line end is no line end.
    lines = str(error).split("\n") if isinstance(error, ConfigurationError) else [str(error)]
    terminal.complain(f"pykoclaw-acp: {lines[0]}", *lines[1:])
    return error.exit_code


@click.group(
    cls=_Program,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Run `pykoclaw-acp demo` to see it work without an account.",
)
@click.version_option(__version__, prog_name="pykoclaw-acp")
@click.option(
    "--healthcheck",
    is_flag=True,
    help="Start the agent as a client does, ask `initialize`, and exit with 0 or 1.",
)
@click.option(
    "--log-level",
    type=click.Choice(["DEBUG", "INFO", "WARNING", "ERROR"], case_sensitive=False),
    help="Log level of a daemon that this command starts.",
)
@click.pass_context
def cli(ctx: click.Context, healthcheck: bool, log_level: str | None) -> None:
    """An ACP agent that runs Claude and never loses a conversation.

    Without a command, speaks ACP on standard input and output; this is what ACP clients start.
    Starts the daemon if none is running.
    """
    if log_level is not None:
        os.environ["PYKOCLAW_ACP_LOG_LEVEL"] = log_level
    if healthcheck:
        if ctx.invoked_subcommand is not None:
            raise click.UsageError("--healthcheck cannot be combined with a command.")
        from pykoclaw_acp.commands import healthcheck as check

        ctx.exit(check.main())
    if ctx.invoked_subcommand is None:  # as `pykoclaw acp`
        from pykoclaw_acp.front.process import run

        ctx.exit(run())
    if ctx.invoked_subcommand != "trust":  # which decides about the file
        from pykoclaw_acp.config import dotenv

        dotenv.use()


@cli.command(
    short_help="Run the daemon in the foreground.",
    context_settings={"ignore_unknown_options": True},
)
@click.option(
    "--stdio",
    is_flag=True,
    help="Serve a single client on standard input and output, without a daemon.",
)
@click.argument("appended", nargs=-1, metavar="")
@click.pass_context
def serve(ctx: click.Context, stdio: bool, appended: tuple[str, ...]) -> None:
    """Run the daemon in the foreground until SIGTERM. It logs to standard error.

    The daemon serves any number of clients on a unix socket. Its workers outlive it and are adopted
    by the next daemon. With --stdio, serves a single client on standard input and output instead,
    and exits when the client closes it.

    Exit status: 75 if another server owns the data directory or the daemon needs a restart, 78 if a
    setting, a directory or the database cannot be used.
    """
    if appended[:1] == (login.name,):  # clients append a login's arguments to the agent's own (ACP)
        ctx.exit(login.main(list(appended[1:]), standalone_mode=False, parent=ctx))
    if appended and appended[0].startswith("-"):
        raise click.NoSuchOption(appended[0], ctx=ctx)
    if appended:
        raise click.UsageError(f"Got unexpected extra argument ({appended[0]})")
    _require_outside()
    from pykoclaw_acp.pool import forkserver_process
    from pykoclaw_acp.system import machine

    machine.prepare()
    # First of all: the import of the SDK there takes longer than all that this process does.
    begun = forkserver_process.begin_early(resident=not stdio)
    gc.disable()  # until the server runs: a tenth of its start would find nothing
    try:
        ctx.exit(_serve(begun, stdio=stdio))
    except StartupError:
        if begun is not None:
            begun.end()
        raise
    finally:
        gc.enable()


def _require_outside() -> None:
    """Raises CommandFailed inside of a session of the data directory: as its server, a tool would
    have all sessions while no daemon runs.
    """
    from pykoclaw_acp.front import inside
    from pykoclaw_acp.link.places import Places

    if (words := inside.refusal(Places.find())) is not None:
        raise CommandFailed(words)


def _serve(begun: StartingForkServer | None, *, stdio: bool) -> int:
    from pykoclaw_acp.config import dotenv, loading
    from pykoclaw_acp.logging.without_rich import import_structlog

    dotenv.require_own_data()
    import_structlog()
    if stdio:
        from pykoclaw_acp.server import stdio as server

        return server.main(loading.load(), begun)
    from pykoclaw_acp.server import daemon

    return daemon.main(loading.load, begun)


@cli.command(short_help="Restart the daemon without interrupting running turns.")
def restart() -> None:
    """Restart the daemon without interrupting running turns, for instance after an upgrade or a
    change of settings.

    The new daemon adopts the workers, and connected clients reconnect. It has the environment of a
    connected client or of this shell; under systemd, that of the unit. The running daemon is left
    alone if a setting of this shell or of ~/.local/share/pykoclaw/.env cannot be used; the
    environment of a unit is not examined. Exit status: 3 if no daemon is running, 78 if a setting
    cannot be used.
    """
    from pykoclaw_acp.commands import stopping as command
    from pykoclaw_acp.config import loading

    os.chdir("/")  # as the next daemon, which reads no `./.env` of this directory
    loading.load()
    command.restart()


@cli.command(short_help="Stop the daemon and all workers.")
def stop() -> None:
    """Stop all workers, then the daemon. Running and queued turns are cancelled.

    While the database cannot be written, workers are left running: the ends of their turns could
    not be kept.

    Exit status: 3 if no daemon is running.
    """
    from pykoclaw_acp.commands import stopping as command

    command.stop()


@cli.command(name="hand-over", hidden=True)
@click.option("--but", type=int, default=0, help="Pid of a daemon to keep.")
def hand_over(but: int) -> None:
    """Stop the daemon and prevent a new one until end of input; for deploy/install.sh."""
    from pykoclaw_acp.commands import hand_over as command

    command.main(but)


@cli.command(short_help="Add the tables of pykoclaw-acp to another program's database.")
def adopt() -> None:
    """Add the tables of pykoclaw-acp to the database in PYKOCLAW_DATA, which belongs to another
    program.

    Existing tables are not changed. Without this command such a database is refused, as it may be
    there by mistake. Not needed for a database of pykoclaw.
    """
    from pykoclaw_acp.commands import adopt as command

    _require_outside()
    command.main()


@cli.command(short_help="Show crash recovery offline, on the real Claude CLI.")
@click.pass_context
def demo(ctx: click.Context) -> None:
    """Hold a conversation, kill every process in the middle of it, and continue.

    Runs the real Claude CLI on a scripted model in a temporary home directory: needs no account and
    no network, and touches none of your files. Exit status: 1 if a step failed.
    """
    from importlib.util import find_spec

    if any(find_spec(name) is None for name in ("acp", "starlette", "uvicorn")):
        raise StartupError(
            "The demo needs an ACP client library and an HTTP server. Install pykoclaw-acp again, in the"
            " same way as before, with its extra `demo`: '.[demo]' in the place of '.'."
        )
    from pykoclaw_acp.demo import story

    ctx.exit(story.main())


for command in (
    approve, attach, completion, deploy, doctor, import_session, login, logout, logs, mcp, prompt, rewind, rules,
    scripted_model, sessions, show_config, status, tasks, trust, workers,
):  # fmt: skip
    cli.add_command(command)


def main() -> None:
    """The console script."""
    cli(prog_name="pykoclaw-acp")
