"""`pykoclaw-acp sessions`, `attach` and `approve`: what was said, and what waits for an answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, BinaryIO, Literal, cast

import click

from pykoclaw_acp.cli.options import JSON, SESSION, given

if TYPE_CHECKING:
    from pykoclaw_acp.protocol.control.decisions import OperatorDecision


@click.group(short_help="List, show, export, rename, archive and delete sessions.")
def sessions() -> None:
    """List, show, export, rename, archive and delete sessions.

    SESSION is an id, a unique prefix of an id, or a conversation name. These commands start the
    daemon if none is running. Exit status: 1 if there is no such session.
    """


@sessions.command(name="list")
@click.option(
    "-a",
    "--all",
    "every",
    is_flag=True,
    help="Include unused and archived sessions, and clients' helper sessions.",
)
@click.option(
    "--limit",
    type=click.IntRange(1, 10_000),
    default=100,
    show_default=True,
    help="Maximum number of sessions.",
)
@JSON
def list_sessions(every: bool, limit: int, as_json: bool) -> None:
    """List sessions, those with the newest messages first."""
    from pykoclaw_acp.commands import sessions as command

    command.list_all(every, limit, as_json)


@sessions.command(name="show")
@SESSION
@click.option(
    "--seq",
    metavar="N",
    type=click.IntRange(min=1),
    help="Show only the event with this position (`seq`) in the history.",
)
@JSON
def show_session(session: str, seq: int | None, as_json: bool) -> None:
    """Show the details and the latest turns of a session."""
    from pykoclaw_acp.commands import sessions as command

    if seq is not None:
        command.show_event(session, seq, as_json)
    else:
        command.show_one(session, as_json)


@sessions.command(name="tail")
@SESSION
@click.option("-f", "--follow", is_flag=True, help="Keep following the session until Ctrl-C.")
@click.option(
    "-n", "--turns", metavar="N", type=click.IntRange(min=1), help="Show the last N turns only."
)
def tail_session(session: str, follow: bool, turns: int | None) -> None:
    """Print the history of a session as text."""
    from pykoclaw_acp.commands import sessions as command

    command.tail(session, turns, follow)


@sessions.command(name="rename")
@SESSION
@click.argument("title")
def rename_session(session: str, title: str) -> None:
    """Set the title of a session."""
    from pykoclaw_acp.commands import sessions as command

    command.rename(session, title)


@sessions.command(name="archive", short_help="Leave a session out of lists.")
@SESSION
def archive_session(session: str) -> None:
    """Close a session and leave it out of lists. Nothing of it is deleted; a running turn is
    cancelled.
    """
    from pykoclaw_acp.commands import sessions as command

    command.archive(session)


@sessions.command(
    name="stop-waiting", short_help="Cancel the automatic resume after a usage limit."
)
@SESSION
def stop_waiting(session: str) -> None:
    """Cancel the automatic resume of a session that a usage limit has stopped."""
    from pykoclaw_acp.commands import sessions as command

    command.stop_waiting(session)


@sessions.command(name="unarchive", short_help="Show an archived session in lists again.")
@SESSION
def unarchive_session(session: str) -> None:
    """Show an archived session in lists again."""
    from pykoclaw_acp.commands import sessions as command

    command.unarchive(session)


@sessions.command(name="export", short_help="Print a session with its complete history.")
@SESSION
@click.option(
    "--format",
    "form",
    type=click.Choice(["markdown", "html", "json"]),
    default="markdown",
    show_default=True,
    help="Output format.",
)
def export_session(session: str, form: Literal["markdown", "html", "json"]) -> None:
    """Print a session with its complete history.

    HTML is one page that needs no network and runs no script. JSON can be read by `pykoclaw-acp import`.
    """
    from pykoclaw_acp.commands import exporting as command

    command.export(session, form)


@sessions.command(name="delete", short_help="Delete a session and its history.")
@SESSION
@click.option("-y", "--yes", "sure", is_flag=True, help="Do not ask for confirmation.")
def delete_session(session: str, sure: bool) -> None:
    """Delete a session and its history, after confirmation. A running turn is cancelled.

    The session id is not reused. Claude's own transcript stays, unless
    PYKOCLAW_DELETE_TRANSCRIPTS is on.
    """
    from pykoclaw_acp.commands import sessions as command

    command.delete(session, sure)


@click.command(name="import", short_help="Create a session from a JSON export.")
@click.argument("file", type=click.File("rb"))
@click.option(
    "--directory",
    type=click.Path(exists=True, file_okay=False),
    default=".",
    help="Where the session runs; default: the working directory.",
)
def import_session(file: BinaryIO, directory: str) -> None:
    """Create a session from FILE, made by `sessions export --format json`, possibly on another machine; - reads it
    from standard input.

    The session has the title and the whole history, with images. Claude does not remember it: with the next prompt it
    gets a summary of what was said last. Mode, model and permissions are those of a new session.
    """
    from pykoclaw_acp.commands import importing as command

    command.main(file, directory)


@click.command(short_help="Follow a session live and answer its permission requests.")
@SESSION
def attach(session: str) -> None:
    """Follow SESSION live in the terminal, with the output of commands and the diffs of edits, which
    are cut if they are long. Ctrl-C or Ctrl-D detaches; a running turn continues.

    In a terminal, permission requests can be answered: type y (allow once), a (always allow in the
    session), l (always allow in the directory), f (approve a plan and return to the mode used before
    planning) or n (deny), as far as they are offered, then Enter. What follows n, as in `n because …`,
    is told to Claude. v shows a request that is longer than the screen; it must be viewed before it can
    be allowed. A question that Claude asks is answered by typing the answer, or the numbers of choices;
    separate the answers to several questions with ;. Lines that are pasted are one answer. As long as a
    terminal is attached, the away policy of the session does not apply.
    """
    from pykoclaw_acp.commands import attach as command

    command.main(session)


@click.command(short_help="Put files and Claude's memory back to an earlier message.")
@SESSION
@click.argument("message", required=False, callback=given)
@click.option("--no-files", is_flag=True, help="Leave the files as they are.")
@click.option("--dry-run", is_flag=True, help="Only show what would change.")
@click.option("-y", "--yes", "sure", is_flag=True, help="Do not ask for confirmation.")
def rewind(session: str, message: str | None, no_files: bool, dry_run: bool, sure: bool) -> None:
    """Put the files of SESSION, and what Claude remembers, back to what was before MESSAGE.

    MESSAGE is a turn, as in `sessions show`, or the messageId of a message, as in `sessions export --format json`; its
    turn and all later ones are rewound. Without MESSAGE, the newest prompt that Claude knows is rewound. What
    changes is shown first. The history keeps everything. Files are those that Claude changed with its file tools, not
    with commands. What runs in the background is stopped. Refused while a turn runs.
    """
    from pykoclaw_acp.commands import rewind as command

    command.rewind(session, message, files=not no_files, dry=dry_run, sure=sure)


@click.command(short_help="List or answer pending permission requests.")
@click.argument("question", metavar="[REQUEST]", required=False, callback=given)
@click.option("--allow", is_flag=True, help="Allow once.")
@click.option(
    "--always",
    is_flag=True,
    help="Always allow in the session.",
)
@click.option(
    "--lasting", is_flag=True, help="Always allow in the directory, in later sessions too."
)
@click.option(
    "--former",
    is_flag=True,
    help="Approve a plan and return to the permission mode used before planning.",
)
@click.option("--deny", is_flag=True, help="Deny.")
@click.option("--reason", metavar="TEXT", default="", help="With --deny: why, for Claude.")
@click.option(
    "--answer",
    "answers",
    metavar="TEXT",
    multiple=True,
    help="Answer to a question that Claude asks, or the number of a choice; repeat in the order of the questions.",
)
@JSON
def approve(
    question: str | None,
    *,
    allow: bool,
    always: bool,
    lasting: bool,
    former: bool,
    deny: bool,
    reason: str,
    answers: tuple[str, ...],
    as_json: bool,
) -> None:
    """List pending permission requests with everything that would run, or answer REQUEST.

    REQUEST is an id or a unique prefix of one. Without --allow, --always, --lasting, --former, --deny or --answer, the
    request is shown with the options that it offers and what each does. For a plan, --allow approves it and asks for
    each edit, --always accepts edits, --former returns to the mode used before planning, and --deny keeps planning. For
    a workspace trust request, --allow runs Claude without the active content of the directory and --always trusts the
    directory. Exit status: 1 if the request is unknown or already answered.
    """
    from pykoclaw_acp.commands import approve as command

    given = {
        "allow_once": allow or bool(answers),
        "allow_always": always,
        "allow_lasting": lasting,
        "allow_former": former,
        "deny": deny,
    }
    if sum(given.values()) > 1 or (allow and answers):
        raise click.UsageError(
            "Give only one of --allow, --always, --lasting, --former, --deny and --answer."
        )
    if reason and not deny:
        raise click.UsageError("--reason is for --deny.")
    decision = next(
        (cast("OperatorDecision", name) for name, is_given in given.items() if is_given), None
    )
    if question is None:
        if decision is not None:
            raise click.UsageError(
                "Give the id of a permission request; `pykoclaw-acp approve` lists them."
            )
        command.list_open(as_json)
    elif decision is None:
        command.show_one(question, as_json)
    else:
        command.answer(question, decision, reason, answers)
