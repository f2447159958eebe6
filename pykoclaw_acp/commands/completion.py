"""`pykoclaw-acp completion`: what shells ask to complete a command line."""

from __future__ import annotations

from typing import Final

import click
from click.shell_completion import CompletionItem, get_completion_class

from pykoclaw_acp import terminal
from pykoclaw_acp.commands import show
from pykoclaw_acp.commands.daemon import ask
from pykoclaw_acp.errors import CommandFailed, StartupError

PROGRAM: Final = "pykoclaw-acp"
VARIABLE: Final = "_PYKOCLAW_ACP_COMPLETE"  # click: a shell asks; as in __main__
PATIENCE: Final = 2.0  # s, more than a look for transcripts; somebody waits at a command line
MOST: Final = 1000


def script(cli: click.Command, shell: str) -> None:
    """Write the script that makes a shell ask; `shell`: bash, zsh or fish. Raises CommandFailed."""
    made = get_completion_class(shell)
    if made is None:
        raise CommandFailed(f"There is no completion for {shell}.")
    terminal.prose(made(cli, {}, PROGRAM, VARIABLE).source() + "\n")


def sessions(begun: str) -> list[CompletionItem]:
    """Sessions whose id begins so, with their titles; none if no daemon answers in time."""
    try:
        found = ask("sessions/list", start=False, timeout=PATIENCE, all=False, limit=MOST)
    except (CommandFailed, StartupError):
        return []
    return [
        CompletionItem(one["id"], help=show.one_line(one["title"]))
        for one in found["sessions"]
        if one["id"].startswith(begun)
    ]
