"""`pykoclaw-acp login` and `logout`."""

from __future__ import annotations

import click

from pykoclaw_acp.cli.options import given

ACCOUNT = click.option(
    "--account",
    metavar="NAME",
    callback=given,
    help="Name of the account; default: PYKOCLAW_ACCOUNT, or Claude's own configuration.",
)


@click.command(short_help="Log in to Claude, in this terminal.")
@ACCOUNT
@click.option(
    "--console",
    is_flag=True,
    help="Use an Anthropic Console account instead of a Claude subscription.",
)
@click.option("--sso", is_flag=True, help="Log in with single sign-on.")
@click.option("--email", metavar="ADDRESS", help="Fill in this address on the login page.")
@click.pass_context
def login(
    ctx: click.Context, account: str | None, console: bool, sso: bool, email: str | None
) -> None:
    """Log in to Claude: runs the login of Claude's CLI in this terminal.

    With --account NAME, makes or renews an account of its own, which has its own configuration and
    transcripts. Clients use it with PYKOCLAW_ACCOUNT=NAME in their environment.

    Exit status: that of the CLI; 0 if the login succeeded.
    """
    from pykoclaw_acp.commands import login as command

    options = ["--console" if console else "--claudeai", *(["--sso"] if sso else [])]
    options += [] if email is None else ["--email", email]
    ctx.exit(command.login(account, options=options))


@click.command(short_help="Log out from Claude.")
@ACCOUNT
@click.pass_context
def logout(ctx: click.Context, account: str | None) -> None:
    """Log out from Claude: removes the login that Claude's CLI has stored for the account.

    Sessions and transcripts stay.
    """
    from pykoclaw_acp.commands import login as command

    ctx.exit(command.logout(account))
