"""Options and arguments that several commands have."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem


def sessions(ctx: click.Context, param: click.Parameter, begun: str) -> list[CompletionItem]:  # noqa: ARG001  click passes them
    """Sessions whose id begins so, for a shell; none without a daemon."""
    from pykoclaw_acp.commands import completion

    return completion.sessions(begun)


JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
SESSION = click.argument("session", shell_complete=sessions)
