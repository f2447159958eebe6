"""The `pykoclaw-acp` command. Each command imports what it needs when it runs, so that every start is fast."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Literal

import click

from pykoclaw_acp import __version__
from pykoclaw_acp.errors import ConfigurationError, Exhausted, StartupError
from pykoclaw_acp.system.machine import check_platform

if TYPE_CHECKING:
    from pykoclaw_acp.commands.approve import Decision


class _Program(click.Group):
    """Turns a StartupError into its message and exit status, as pykoclaw's `acp` command too."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            check_platform()
            return super().invoke(ctx)
        except StartupError as error:
            ctx.exit(_complain(error))
        except Exception as error:
            from pykoclaw_acp.system import shortage

            if (found := shortage.of(error)) is None:
                raise
            ctx.exit(_complain(Exhausted(*found)))


def _complain(error: StartupError) -> int:
    from pykoclaw_acp import terminal

    # One line for each bad setting; in what others say a line end is no line end.
    lines = str(error).split("\n") if isinstance(error, ConfigurationError) else [str(error)]
    terminal.complain(f"pykoclaw-acp: {lines[0]}", *lines[1:])
    return error.exit_code


_JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
_SESSION = click.argument("session")


@click.group(
    cls=_Program,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Run `pykoclaw-acp demo` to see it work without an account.",
)
@click.version_option(__version__, prog_name="pykoclaw-acp")
@click.pass_context
def cli(ctx: click.Context) -> None:
    """An ACP agent that runs Claude and never loses a conversation.

    Without a command, speaks ACP on standard input and output; this is what ACP clients start. Starts the daemon if
    none is running.
    """
    if ctx.invoked_subcommand is None:  # as `pykoclaw acp`
        from pykoclaw_acp.front.process import run

        ctx.exit(run())


@cli.command(short_help="Run the daemon in the foreground.")
@click.option("--stdio", is_flag=True, help="Serve a single client on standard input and output, without a daemon.")
@click.pass_context
def serve(ctx: click.Context, stdio: bool) -> None:
    """Run the daemon in the foreground until SIGTERM. It logs to standard error.

    The daemon serves any number of clients on a unix socket. Its workers outlive it and are adopted by the next daemon.
    With --stdio, serves a single client on standard input and output instead, and exits when the client closes it.

    Exit status: 75 if another server owns the data directory or the daemon needs a restart, 78 if a setting, a
    directory or the database cannot be used.
    """
    from pykoclaw_acp import config

    config.require_own_data()
    if stdio:
        from pykoclaw_acp.server import stdio as server

        ctx.exit(server.main(config.load()))
    from pykoclaw_acp.server import daemon

    ctx.exit(daemon.main(config.load))


@cli.command(name="config", short_help="Show all settings and where each value comes from.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def show_config(as_json: bool) -> None:
    """Show all settings, their values and where each value comes from.

    Order of precedence: the environment, ./.env if the directory is trusted, ~/.local/share/pykoclaw/.env, the default.
    The values are those that `serve` would use if started here. A running daemon keeps the settings that it was started
    with; a daemon started by a client never reads ./.env.
    """
    from pykoclaw_acp import config, terminal

    lines, unread = config.describe(config.load()), config.unread()
    if as_json:
        terminal.as_json([asdict(line) for line in lines])
        return
    for line in lines:
        value = ",".join(line.value) if isinstance(line.value, list) else line.value
        shown = "(none)" if value in (None, "") else value
        terminal.write(terminal.shown(line.env, bold=True))
        terminal.line(f"={shown}  [{line.source}]")
        terminal.line(f"    {line.description}")
    if unread:
        terminal.line(f"./.env is not read, as this directory is not trusted: {', '.join(unread)}", err=True)


@cli.command(short_help="Show the daemon, its workers, turns and database.")
@_JSON
def status(as_json: bool) -> None:
    """Show the daemon, its workers, turns, clients, sessions and database.

    Never starts a daemon. Exit status: 3 if none is running.
    """
    from pykoclaw_acp.commands import status as command

    command.main(as_json)


@cli.command(short_help="Restart the daemon without interrupting running turns.")
def restart() -> None:
    """Restart the daemon without interrupting running turns, for instance after an upgrade or a change of settings.

    The new daemon adopts the workers, and connected clients reconnect. It has the environment of a connected client or
    of this shell; under systemd, that of the unit. Exit status: 3 if no daemon is running.
    """
    from pykoclaw_acp.commands import ending as command

    command.restart()


@cli.command(short_help="Stop the daemon and all workers.")
def stop() -> None:
    """Stop all workers, then the daemon. Running and queued turns are cancelled.

    Exit status: 3 if no daemon is running.
    """
    from pykoclaw_acp.commands import ending as command

    command.stop()


@cli.group(short_help="List, show, export, rename and delete sessions.")
def sessions() -> None:
    """List, show, export, rename and delete sessions.

    SESSION is an id, a unique prefix of an id, or a conversation name. These commands start the daemon if none is
    running. Exit status: 1 if there is no such session.
    """


@sessions.command(name="list")
@click.option("-a", "--all", "every", is_flag=True, help="Include unused sessions and clients' helper sessions.")
@click.option(
    "--limit", type=click.IntRange(1, 10_000), default=100, show_default=True, help="Maximum number of sessions."
)
@_JSON
def list_sessions(every: bool, limit: int, as_json: bool) -> None:
    """List sessions, most recently used first."""
    from pykoclaw_acp.commands import sessions as command

    command.list_all(every, limit, as_json)


@sessions.command(name="show")
@_SESSION
@_JSON
def show_session(session: str, as_json: bool) -> None:
    """Show the details and the latest turns of a session."""
    from pykoclaw_acp.commands import sessions as command

    command.show_one(session, as_json)


@sessions.command(name="tail")
@_SESSION
@click.option("-f", "--follow", is_flag=True, help="Keep following the session until Ctrl-C.")
@click.option("-n", "--turns", metavar="N", type=click.IntRange(min=1), help="Show the last N turns only.")
def tail_session(session: str, follow: bool, turns: int | None) -> None:
    """Print the history of a session as text."""
    from pykoclaw_acp.commands import sessions as command

    command.tail(session, turns, follow)


@sessions.command(name="rename")
@_SESSION
@click.argument("title")
def rename_session(session: str, title: str) -> None:
    """Set the title of a session."""
    from pykoclaw_acp.commands import sessions as command

    command.rename(session, title)


@sessions.command(name="export")
@_SESSION
@click.option(
    "--format",
    "form",
    type=click.Choice(["markdown", "json"]),
    default="markdown",
    show_default=True,
    help="Output format.",
)
def export_session(session: str, form: Literal["markdown", "json"]) -> None:
    """Print a session with its complete history."""
    from pykoclaw_acp.commands import sessions as command

    command.export(session, form)


@sessions.command(name="delete", short_help="Delete a session and its history.")
@_SESSION
@click.option("-y", "--yes", "sure", is_flag=True, help="Do not ask for confirmation.")
def delete_session(session: str, sure: bool) -> None:
    """Delete a session and its history, after confirmation. A running turn is cancelled.

    The session id is not reused. Claude's own transcript in ~/.claude/projects is not deleted.
    """
    from pykoclaw_acp.commands import sessions as command

    command.delete(session, sure)


@cli.command(short_help="Follow a session live and answer its permission requests.")
@_SESSION
def attach(session: str) -> None:
    """Follow SESSION live in the terminal. Ctrl-C detaches; a running turn continues.

    In a terminal, permission requests can be answered: type y (allow once), a (always allow) or n (deny), then Enter.
    As long as a terminal is attached, the away policy of the session does not apply.
    """
    from pykoclaw_acp.commands import attach as command

    command.main(session)


@cli.command(short_help="List or answer pending permission requests.")
@click.argument("question", metavar="[REQUEST]", required=False)
@click.option("--allow", "decision", flag_value="allow_once", help="Allow once.")
@click.option(
    "--always", "decision", flag_value="allow_always", help="Always allow, as long as the worker of the session runs."
)
@click.option("--deny", "decision", flag_value="deny", help="Deny.")
@_JSON
def approve(question: str | None, decision: Decision | None, as_json: bool) -> None:
    """List pending permission requests with everything that would run, or answer REQUEST.

    REQUEST is an id or a unique prefix of one. Without --allow, --always or --deny, the request is shown with the
    meaning of each. For a workspace trust request, --allow runs Claude without the active content of the directory and
    --always trusts the directory. Exit status: 1 if the request is unknown or already answered.
    """
    from pykoclaw_acp.commands import approve as command

    if question is None:
        if decision is not None:
            raise click.UsageError("Give the id of a permission request; `pykoclaw-acp approve` lists them.")
        command.list_open(as_json)
    elif decision is None:
        command.show_one(question, as_json)
    else:
        command.answer(question, decision)


@cli.group(short_help="List and change trusted directories.")
def trust() -> None:
    """List and change trusted directories.

    Active content of a directory (hooks, helper programs, environment variables, MCP servers, plugins and permissions
    in its Claude settings) takes effect only if the directory is trusted with exactly that content. DIRECTORY defaults
    to the working directory. These commands start the daemon if none is running.
    """


_DIRECTORY = click.argument("directory", default=".", type=click.Path(exists=True, file_okay=False))


@trust.command(name="list")
@_JSON
def list_trusted(as_json: bool) -> None:
    """List trusted directories."""
    from pykoclaw_acp.commands import trust as command

    command.list_all(as_json)


@trust.command(name="show", short_help="Show the active content of a directory and whether it is trusted.")
@_DIRECTORY
@_JSON
def show_trust(directory: str, as_json: bool) -> None:
    """Show the active content of DIRECTORY and whether it is trusted."""
    from pykoclaw_acp.commands import trust as command

    command.look(directory, as_json)


@trust.command(name="add", short_help="Trust a directory with its current content.")
@_DIRECTORY
@click.option("--tree", is_flag=True, help="Trust all directories below as well, whatever their content is or becomes.")
def add_trust(directory: str, tree: bool) -> None:
    """Trust DIRECTORY with its current content, including its .env file.

    After a change of the content, trust is requested again.
    """
    from pykoclaw_acp.commands import trust as command

    command.add(directory, tree)


@trust.command(name="remove", short_help="Stop trusting a directory.")
@click.argument("directory", default=".", type=click.Path())
def remove_trust(directory: str) -> None:
    """Stop trusting DIRECTORY, from the next prompt on."""
    from pykoclaw_acp.commands import trust as command

    command.remove(directory)


@cli.command(name="hand-over", hidden=True)
@click.option("--but", type=int, default=0, help="Pid of a daemon to keep.")
def hand_over(but: int) -> None:
    """Stop the daemon and prevent a new one until end of input; for deploy/install.sh."""
    from pykoclaw_acp.commands import hand_over as command

    command.main(but)


@cli.group(invoke_without_command=True, short_help="List or stop the processes that run Claude.")
@click.pass_context
def workers(ctx: click.Context) -> None:
    """List or stop the processes that run Claude. Without a command, list them."""
    if ctx.invoked_subcommand is None:
        ctx.invoke(list_workers, as_json=False)


@workers.command(name="list", short_help="List workers.")
@_JSON
def list_workers(as_json: bool) -> None:
    """List workers. Exit status: 3 if no daemon is running."""
    from pykoclaw_acp.commands import workers as command

    command.list_all(as_json)


@workers.command(name="stop", short_help="Stop all workers, or the worker of a session.")
@click.argument("session", required=False)
@click.option("--now", is_flag=True, help="Kill immediately instead of stopping gracefully.")
def stop_workers(session: str | None, now: bool) -> None:
    """Stop all workers, or the worker of SESSION. Their turns are cancelled. Works without a daemon too.

    The next prompt starts a new worker, and Claude remembers the conversation.
    """
    from pykoclaw_acp.commands import workers as command

    command.stop(session, now)


@cli.command(short_help="Check the installation and suggest fixes.")
@_JSON
@click.pass_context
def doctor(ctx: click.Context, as_json: bool) -> None:
    """Check the installation and suggest a fix for each problem.

    Changes nothing, starts no daemon and shows no secrets. Exit status: 1 if there is a problem.
    """
    from pykoclaw_acp.commands import doctor as command

    ctx.exit(command.main(as_json))


@cli.command(short_help="Add the tables of pykoclaw-acp to another program's database.")
def adopt() -> None:
    """Add the tables of pykoclaw-acp to the database in PYKOCLAW_DATA, which belongs to another program.

    Existing tables are not changed. Without this command such a database is refused, as it may be there by mistake. Not
    needed for a database of pykoclaw.
    """
    from pykoclaw_acp.commands import adopt as command

    command.main()


@cli.command(short_help="Show the log.")
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
@click.option("--workers", is_flag=True, help="Show the log of the workers instead of that of the daemon.")
@click.option("--json", "as_json", is_flag=True, help="Print the lines unchanged; most are JSON objects.")
def logs(follow: bool, lines: int, workers: bool, as_json: bool) -> None:
    """Show the end of the daemon's log. Under systemd, this is the journal of its unit."""
    from pykoclaw_acp.commands import logs as command

    command.main(lines, follow, workers, as_json)


@cli.command(short_help="Show crash recovery offline, on the real Claude CLI.")
@click.pass_context
def demo(ctx: click.Context) -> None:
    """Hold a conversation, kill every process in the middle of it, and continue.

    Runs the real Claude CLI on a scripted model in a temporary home directory: needs no account and no network, and
    touches none of your files. Exit status: 1 if a step failed.
    """
    from importlib.util import find_spec

    if any(find_spec(name) is None for name in ("acp", "starlette", "uvicorn")):
        raise StartupError(
            "The demo needs an ACP client library and an HTTP server. Install them with: "
            "pip install 'pykoclaw-acp[demo]'"
        )
    from pykoclaw_acp.demo import story

    ctx.exit(story.main())


@cli.command(
    name="scripted-model",
    short_help="Run a local Messages API that plays scripts.",
    add_help_option=False,
    context_settings={"ignore_unknown_options": True, "allow_extra_args": True},
)
@click.pass_context
def scripted_model(ctx: click.Context) -> None:
    """Run a local Messages API that plays scripts, for use offline."""
    from importlib.util import find_spec

    if any(find_spec(name) is None for name in ("starlette", "uvicorn")):
        raise StartupError(
            "The scripted model needs an HTTP server. Install it with: pip install 'pykoclaw-acp[scripted-model]'"
        )
    from pykoclaw_acp.scripted_model import __main__ as program

    ctx.exit(program.main(ctx.args))


def main() -> None:
    """The console script."""
    cli(prog_name="pykoclaw-acp")
