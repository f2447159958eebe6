"""`pykoclaw-acp rewind`, and `workers stop-task`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from pykoclaw_acp import terminal
from pykoclaw_acp.commands import show
from pykoclaw_acp.commands.daemon import ask
from pykoclaw_acp.errors import CommandFailed
from pykoclaw_acp.front.call import given_environment
from pykoclaw_acp.model.branches import files_now
from pykoclaw_acp.model.contexts import entry_uuid

REWIND_WAIT: Final = 120.0  # s; a worker may have to start
MOST_SHOWN: Final = 50  # files
STAYS: Final = (
    "Changes made by commands stay, as do mode, model, environment and lasting permission rules."
)


def rewind(session: str, message: str | None, *, files: bool, dry: bool, sure: bool) -> None:
    """Show what a rewind changes; rewind after confirmation. `message`: also the beginning of the id of
    a turn that `sessions show` shows.
    """
    details = ask("sessions/show", session=session)
    summary = details["summary"]
    if message:
        message = _turn(message, [one["id"] for one in details["turns"]])
    chosen = {
        "session": summary["id"],
        "message": message,
        "files": files,
        "environment": given_environment(),
    }
    plan = ask("rewind", timeout=REWIND_WAIT, dryRun=True, **chosen)
    name = show.one_line(summary["title"], summary["conversation"])
    turns = show.count(plan["turns"], "turn")
    said = [one.get("prompt") for one in details["turns"] if one["id"] == plan["turnId"]]
    since = f", from “{show.one_line(said[0])}” on" if said and said[0] else ""
    terminal.line(
        f"A rewind makes Claude forget {turns} of “{name}”{since}; the history keeps what was said."
    )
    if details.get("running"):  # an earlier daemon does not say it
        terminal.line("What runs in the background is stopped.")
    for path in plan["files"][:MOST_SHOWN]:
        terminal.line(f"  {path}")
    if plan["files"]:
        lines = f"+{plan['insertions'] or 0} -{plan['deletions'] or 0} lines"
        count = show.count(len(plan["files"]), "file")
        it, were = ("it", "it was") if len(plan["files"]) == 1 else ("they", "they were")
        terminal.line(
            f"{count} will be as {were} before ({lines}), or deleted if {it} did not exist then."
        )
    elif files and plan["filesError"] is None:
        terminal.line("No file changes.")
    if plan["filesError"] is not None:
        raise CommandFailed(
            f"The files cannot be put back: {plan['filesError']} With --no-files only Claude's memory is rewound."
        )
    if dry:
        return
    if not sure:
        terminal.confirm("Rewind?")
    # To the turn that was shown, whatever was prompted since.
    done = ask("rewind", timeout=REWIND_WAIT, **chosen | {"message": plan["turnId"]})
    terminal.line(f"Rewound. {_files(done, files)} {STAYS}")


def _turn(word: str, turns: list[str]) -> str:
    """The turn that begins so, or else the word as it is; raises CommandFailed if several do."""
    if word in turns:
        return word
    begun = [one for one in turns if entry_uuid(one).startswith(word)]
    if len(begun) > 1:
        raise CommandFailed(f"Several turns begin with {word}: give more of the id.")
    return begun[0] if begun else word


def _files(done: Mapping[str, Any], wanted: bool) -> str:
    """What became of the files."""
    changed: list[str] = done["files"]
    deleted: list[str] | None = done.get("deleted")
    if changed:
        if deleted is None:  # an earlier daemon did it
            count = show.count(len(changed), "file")
            return f"{count} changed; what did not exist then is deleted."
        names = f" Deleted: {', '.join(deleted[:MOST_SHOWN])}." if deleted else ""
        return f"{files_now(len(changed), deleted)}{names}"
    if wanted:
        return "No file was changed: Claude had changed none with its tools for files."
    return "Files were left as they are."


def stop_task(session: str, tool_call: str) -> None:
    """Stop a subagent, or a command in the background."""
    ask("toolcalls/stop", timeout=REWIND_WAIT, session=session, toolCallId=tool_call)
    terminal.line("Stopped.")
