"""`pykoclaw-acp mcp`: the MCP servers that clients have given."""

from __future__ import annotations

import click

from pykoclaw_acp.cli.options import JSON, given

ACCOUNT = click.option(
    "--account",
    metavar="NAME",
    callback=given,
    help="Account whose sessions or settings have the server; default: any session's, or PYKOCLAW_ACCOUNT's settings.",
)


@click.group(invoke_without_command=True, short_help="List MCP servers, sign in or out.")
@click.pass_context
def mcp(ctx: click.Context) -> None:
    """List the MCP servers of clients, and sign in to or out of one. Without a command, list
    them.
    """
    if ctx.invoked_subcommand is None:
        ctx.invoke(list_servers, as_json=False)


@mcp.command(name="list", short_help="List the MCP servers that clients have given.")
@JSON
def list_servers(as_json: bool) -> None:
    """List the MCP servers that clients have given to sessions which are in the daemon's memory.

    Exit status: 3 if no daemon is running.
    """
    from pykoclaw_acp.commands import mcp as command

    command.list_all(as_json)


@mcp.command(short_help="Sign in to an MCP server.")
@click.argument("server", callback=given)
@ACCOUNT
def login(server: str, account: str | None) -> None:
    """Sign in to SERVER, an MCP server over http or sse: its name, or its address.

    SERVER is looked for among the servers that clients have given to sessions, then in your Claude
    settings, then, by name only, in the current directory.

    Shows a page to open in a browser. Claude keeps the token where it keeps its own credential, and
    sessions can use the server from their next prompt on. For a server of the directory, Claude's
    own command is run, which needs a terminal; a server of an .mcp.json must first be approved in
    `claude`.
    """
    from pykoclaw_acp.commands import mcp as command

    command.login(server, account)


@mcp.command(short_help="Sign out of an MCP server.")
@click.argument("server", callback=given)
@ACCOUNT
def logout(server: str, account: str | None) -> None:
    """Sign out of SERVER, an MCP server over http or sse: its name, or its address.

    Claude deletes the token that `mcp login` or a sign-in in a client has stored, and asks the server
    to revoke it if the server can. Running sessions keep their connection until their workers end.
    """
    from pykoclaw_acp.commands import mcp as command

    command.logout(server, account)
