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


def given(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:  # noqa: ARG001  click passes them
    """The value of a text that must not be empty: what a variable of a script that is not set gives
    must not count as if there were none, nor begin every id. Raises BadParameter.
    """
    if value == "":
        raise click.BadParameter("It is empty. Is the variable of a script not set?")
    return value


JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
SESSION = click.argument("session", callback=given, shell_complete=sessions)
