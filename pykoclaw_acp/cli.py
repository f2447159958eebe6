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


_JSON = click.option("--json", "as_json", is_flag=True, help="Write JSON instead of text.")
_SESSION = click.argument("session")


@click.group(
    cls=_Program,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="To see it work without an account, run `pykoclaw-acp demo`.",
)
@click.version_option(__version__, prog_name="pykoclaw-acp")
@click.pass_context
def cli(ctx: click.Context) -> None:
    """An ACP agent that puts Claude behind your editor and never loses a conversation.

    Without a command it speaks ACP on standard input and output, for a daemon that it starts if none runs.
    """
    if ctx.invoked_subcommand is None:  # as `pykoclaw acp`
        from pykoclaw_acp.front.process import run

        ctx.exit(run())


@cli.command(short_help="Run the daemon.")
@click.option("--stdio", is_flag=True, help="Serve one client at standard input and output.")
@click.pass_context
def serve(ctx: click.Context, stdio: bool) -> None:
    """Run the daemon, which serves any number of clients at its socket until it gets SIGTERM.

    Workers outlive it, and the next one takes them over. With --stdio it serves one client at its standard input and
    output instead, and ends with it. The log goes to standard error. Exits with 75 when another server owns the data
    directory, or when it wants to be restarted, and with 78 when a setting or the database cannot be used.
    """
    from pykoclaw_acp import config

    config.require_own_data()
    if stdio:
        from pykoclaw_acp.server import stdio as server

        ctx.exit(server.main(config.load()))
    from pykoclaw_acp.server import daemon

    ctx.exit(daemon.main(config.load))


@cli.command(name="config")
@click.option("--json", "as_json", is_flag=True, help="Write a JSON array of settings instead of text.")
def show_config(as_json: bool) -> None:
    """Show every setting, its value, and where that came from.

    Settings come from the environment, then ./.env if the directory is trusted, then ~/.local/share/pykoclaw/.env, then
    the defaults. A daemon that runs has those of its own start, and one that a client started has no ./.env.
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


@cli.command()
@_JSON
def status(as_json: bool) -> None:
    """Show the daemon, its workers and its queue. Exits with 3 when no daemon runs; never starts one."""
    from pykoclaw_acp.commands import status as command

    command.main(as_json)


@cli.command(short_help="Restart the daemon; what it runs goes on.")
def restart() -> None:
    """End the daemon, and start the next one, which takes over its workers and clients: no turn is lost.

    For a new version or another setting. The next one has the environment of an open client, or of this shell; where
    systemd runs the daemon, that of its unit. Exits with 3 when no daemon runs.
    """
    from pykoclaw_acp.commands import ending as command

    command.restart()


@cli.command(short_help="End the daemon and all workers.")
def stop() -> None:
    """End all workers, then the daemon; turns end as cancelled. Exits with 3 when no daemon runs."""
    from pykoclaw_acp.commands import ending as command

    command.stop()


@cli.group()
def sessions() -> None:
    """List, show and change the sessions that are kept.

    SESSION is an id, the beginning of one, or a conversation's name. Exits with 1 when there is no such session.
    These commands start the daemon if none runs.
    """


@sessions.command(name="list")
@click.option("-a", "--all", "every", is_flag=True, help="Also those that nobody used, and clients' own helpers.")
@click.option("--limit", type=click.IntRange(1, 10_000), default=100, show_default=True, help="Show at most so many.")
@_JSON
def list_sessions(every: bool, limit: int, as_json: bool) -> None:
    """List sessions, the newest first."""
    from pykoclaw_acp.commands import sessions as command

    command.list_all(every, limit, as_json)


@sessions.command(name="show")
@_SESSION
@_JSON
def show_session(session: str, as_json: bool) -> None:
    """Show what is known about a session, and its newest turns."""
    from pykoclaw_acp.commands import sessions as command

    command.show_one(session, as_json)


@sessions.command(name="tail")
@_SESSION
@click.option("-f", "--follow", is_flag=True, help="Go on with what happens, until Ctrl-C.")
@click.option("-n", "--turns", type=click.IntRange(min=1), help="Begin with the newest so many turns.")
def tail_session(session: str, follow: bool, turns: int | None) -> None:
    """Write a session's history as text."""
    from pykoclaw_acp.commands import sessions as command

    command.tail(session, turns, follow)


@sessions.command(name="rename")
@_SESSION
@click.argument("title")
def rename_session(session: str, title: str) -> None:
    """Give a session another title."""
    from pykoclaw_acp.commands import sessions as command

    command.rename(session, title)


@sessions.command(name="export")
@_SESSION
@click.option("--format", "form", type=click.Choice(["markdown", "json"]), default="markdown", show_default=True)
def export_session(session: str, form: Literal["markdown", "json"]) -> None:
    """Write a session with its whole history to standard output."""
    from pykoclaw_acp.commands import sessions as command

    command.export(session, form)


@sessions.command(name="delete", short_help="Delete a session with its history.")
@_SESSION
@click.option("-y", "--yes", "sure", is_flag=True, help="Do not ask.")
def delete_session(session: str, sure: bool) -> None:
    """Delete a session with its history, after asking; its running turn is cancelled.

    Clients do not find it any more. The transcript that Claude itself keeps is left alone.
    """
    from pykoclaw_acp.commands import sessions as command

    command.delete(session, sure)


@cli.command(short_help="Follow a session live, and answer its questions.")
@_SESSION
def attach(session: str) -> None:
    """Follow SESSION live in the terminal; Ctrl-C detaches, and what runs goes on.

    Permission questions are shown, and in a terminal they can be answered: type y, a (always) or n, and Enter.
    While it is attached like this, somebody counts as present, whatever the session does when its clients are away.
    """
    from pykoclaw_acp.commands import attach as command

    command.main(session)


@cli.command(short_help="Answer a permission question, or list those that wait.")
@click.argument("question", required=False)
@click.option("--allow", "decision", flag_value="allow_once", help="Allow it this once.")
@click.option("--always", "decision", flag_value="allow_always", help="Allow it for the rest of the session.")
@click.option("--deny", "decision", flag_value="deny", help="Refuse it.")
@_JSON
def approve(question: str | None, decision: Decision | None, as_json: bool) -> None:
    """Show the permission questions that wait, with all that would run, or answer a QUESTION.

    QUESTION is an id, or the beginning of one; without --allow, --always or --deny it is shown, with what each of these
    means: where it asks whether a directory is trusted, --allow runs without what it holds, and --always trusts it.
    Exits with 1 when it is unknown, or somebody else has answered it.
    """
    from pykoclaw_acp.commands import approve as command

    if question is None:
        if decision is not None:
            raise click.UsageError("Say which question; `pykoclaw-acp approve` lists those that wait.")
        command.list_open(as_json)
    elif decision is None:
        command.show_one(question, as_json)
    else:
        command.answer(question, decision)


@cli.group()
def trust() -> None:
    """List and change which directories are trusted.

    What a directory holds that acts in Claude (hooks, helper programs, environment variables, MCP servers, plugins,
    permissions of its settings) counts only where it is trusted, with what it held then. DIRECTORY is the working
    directory if none is given. These commands start the daemon if none runs.
    """


_DIRECTORY = click.argument("directory", default=".", type=click.Path(exists=True, file_okay=False))


@trust.command(name="list")
@_JSON
def list_trusted(as_json: bool) -> None:
    """List the directories that are trusted."""
    from pykoclaw_acp.commands import trust as command

    command.list_all(as_json)


@trust.command(name="show")
@_DIRECTORY
@_JSON
def show_trust(directory: str, as_json: bool) -> None:
    """Show what DIRECTORY holds that acts, and whether it is trusted."""
    from pykoclaw_acp.commands import trust as command

    command.look(directory, as_json)


@trust.command(name="add")
@_DIRECTORY
@click.option("--tree", is_flag=True, help="Also all directories below, whatever they hold and will hold.")
def add_trust(directory: str, tree: bool) -> None:
    """Trust DIRECTORY with what it holds now, its ./.env included; after a change it is asked about again."""
    from pykoclaw_acp.commands import trust as command

    command.add(directory, tree)


@trust.command(name="remove")
@click.argument("directory", default=".", type=click.Path())
def remove_trust(directory: str) -> None:
    """Trust DIRECTORY no more."""
    from pykoclaw_acp.commands import trust as command

    command.remove(directory)


@cli.command(name="hand-over", hidden=True)
@click.option("--but", type=int, default=0, help="Pid of a daemon that may stay.")
def hand_over(but: int) -> None:
    """End the daemon, and keep clients from starting another until standard input ends; for deploy/install.sh."""
    from pykoclaw_acp.commands import hand_over as command

    command.main(but)


@cli.group(invoke_without_command=True)
@click.pass_context
def workers(ctx: click.Context) -> None:
    """List the processes that run Claude, or stop them."""
    if ctx.invoked_subcommand is None:
        ctx.invoke(list_workers, as_json=False)


@workers.command(name="list")
@_JSON
def list_workers(as_json: bool) -> None:
    """List the workers. Exits with 3 when no daemon runs."""
    from pykoclaw_acp.commands import workers as command

    command.list_all(as_json)


@workers.command(name="stop")
@click.argument("session", required=False)
@click.option("--now", is_flag=True, help="Kill them at once, without time to end in order.")
def stop_workers(session: str | None, now: bool) -> None:
    """End all workers, or the one of SESSION; turns end as cancelled. Works without a daemon too.

    The next prompt of a session starts a worker again, and Claude remembers the conversation.
    """
    from pykoclaw_acp.commands import workers as command

    command.stop(session, now)


@cli.command(short_help="Check the whole set-up, and say what to do.")
@_JSON
@click.pass_context
def doctor(ctx: click.Context, as_json: bool) -> None:
    """Check the whole set-up, and say what to do about what is wrong. Exits with 1 when there is a problem.

    It changes nothing, starts no daemon, and shows no secret.
    """
    from pykoclaw_acp.commands import doctor as command

    ctx.exit(command.main(as_json))


@cli.command(short_help="Put our tables into another program's database.")
def adopt() -> None:
    """Put our tables into the database of PYKOCLAW_DATA, beside those of another program, which are left alone.

    Without this such a database is refused, as it may be there by mistake. Pykoclaw's own needs no such command.
    """
    from pykoclaw_acp.commands import adopt as command

    command.main()


@cli.command(short_help="Show the end of the daemon's log.")
@click.option("-f", "--follow", is_flag=True, help="Go on with what is written, until Ctrl-C.")
@click.option("-n", "--lines", type=click.IntRange(min=0), default=50, show_default=True, help="Begin so many back.")
@click.option("--workers", is_flag=True, help="The workers' log instead of the daemon's.")
@click.option("--json", "as_json", is_flag=True, help="Write the lines as they are, mostly JSON.")
def logs(follow: bool, lines: int, workers: bool, as_json: bool) -> None:
    """Show the end of the daemon's log; where systemd runs the daemon, it is the journal's."""
    from pykoclaw_acp.commands import logs as command

    command.main(lines, follow, workers, as_json)


@cli.command(short_help="Play the whole story offline, on the real Claude CLI.")
@click.pass_context
def demo(ctx: click.Context) -> None:
    """Play the whole story offline: a conversation, a crash of everything, and the conversation again.

    It uses the real Claude CLI on a scripted model, in a temporary home: no account, no network, and nothing of
    yours is touched. Exits with 1 when any step went wrong.
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
    short_help="Run a Messages API on loopback that plays scripts.",
    add_help_option=False,
    context_settings={"ignore_unknown_options": True, "allow_extra_args": True},
)
@click.pass_context
def scripted_model(ctx: click.Context) -> None:
    """Run a Messages API on loopback that plays scripts, to try things offline."""
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
