"""`pykoclaw-acp mcp`: list MCP servers, sign in to one and out of it, which Claude's CLI does."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import tempfile
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from pykoclaw_acp import terminal
from pykoclaw_acp.commands.daemon import ask
from pykoclaw_acp.errors import CommandFailed, DaemonNotRunning

STATE_WAIT: Final = 60.0  # s; for the servers to have been tried
PAGE_WAIT: Final = 600.0  # s in which the user may open the page
LOOK: Final = 0.3  # s between two looks at a server's state
UNKNOWN: Final = (
    "There is no MCP server {}: no client has given one of this name or address to a session, and your Claude settings"
    " have none. Open the session in your client first; `pykoclaw-acp mcp list` shows what is known."
)
MAX_PASTED: Final = 64 * 1024  # bytes


def list_all(as_json: bool) -> None:
    """List the servers that clients have given."""
    servers = ask("mcp/list", start=False)
    if as_json:
        terminal.as_json(servers)
    elif servers:
        rows = [
            (one["name"], one["transport"], str(one["sessions"]), one["address"]) for one in servers
        ]
        terminal.table(("name", "transport", "sessions", "address"), rows, right=("sessions",))
    else:
        terminal.line("No client has given an MCP server.")


def login(server: str) -> None:
    """Sign in to all servers of this name or address; raises CommandFailed."""
    _for_each(server, _login)


def logout(server: str) -> None:
    """Sign out of all servers of this name or address; raises CommandFailed."""
    _for_each(server, _logout)


def _for_each(
    server: str, work: Callable[[str, Mapping[str, Any] | None], Coroutine[Any, Any, None]]
) -> None:
    try:
        found = ask("mcp/find", start=False, server=server)
    except DaemonNotRunning:
        found = {"servers": [], "claudeConfigDir": os.environ.get("CLAUDE_CONFIG_DIR")}
    for one in found["servers"] or [None]:
        # Of the session's account; Claude keeps the sign-in there.
        place = (found if one is None else one)["claudeConfigDir"]
        os.environ.pop("CLAUDE_CONFIG_DIR", None)
        if place is not None:
            os.environ["CLAUDE_CONFIG_DIR"] = place
        try:
            asyncio.run(work(server, one))
        except KeyboardInterrupt:
            raise CommandFailed("It was stopped. Nothing was stored or removed.") from None


async def _logout(server: str, given: Mapping[str, Any] | None) -> None:
    from pykoclaw_acp.worker import sdk_private

    configured = {} if given is None else {given["name"]: given["config"]}
    async with _claude(configured) as client:
        found = await _state(client, server if given is None else given["name"])
        if found is None:
            raise CommandFailed(UNKNOWN.format(server))
        name = str(found["name"])
        try:
            await sdk_private.sign_out(client, name)
        except sdk_private.NoSignIn as error:
            raise CommandFailed(
                f"Claude could not sign out of {name}: {error}. What it keeps of the sign-in is as before."
            ) from error
    terminal.line(
        f"Signed out of {name}. A session that runs keeps its connection until its worker ends"
        " (`pykoclaw-acp workers stop`)."
    )


async def _login(server: str, given: Mapping[str, Any] | None) -> None:
    configured = {} if given is None else {given["name"]: given["config"]}
    async with _claude(configured) as client:
        found = await _settled(client, server if given is None else given["name"])
        name = str(found["name"])
        if found["status"] == "connected":
            terminal.line(f"{name} works already; there is nothing to sign in to.")
            return
        await _sign_in(client, name)
    terminal.line(f"Signed in to {name}. Sessions have it with their next prompt.")


async def _sign_in(client: Any, name: str) -> None:
    from pykoclaw_acp.worker import sdk_private

    try:
        page = await sdk_private.sign_in(client, name)
    except sdk_private.NoSignIn as error:
        raise CommandFailed(
            f"{name} has no way to sign in that Claude can use: {error}. Give it a token in a header, where your "
            "client or Claude's settings name the server."
        ) from error
    terminal.line(f"Open this page to sign in to {name}:")
    terminal.line(page)
    terminal.line(
        "If the browser is on another machine, paste here the address at which it ends; else just wait."
    )
    pasted: asyncio.Queue[str] = asyncio.Queue()
    try:
        async with asyncio.timeout(PAGE_WAIT):
            with _pasting(pasted):
                while (await _state(client, name) or {}).get("status") != "connected":
                    await asyncio.sleep(LOOK)
                    while not pasted.empty():
                        try:
                            await sdk_private.end_sign_in(client, name, pasted.get_nowait())
                        except sdk_private.NoSignIn as error:
                            terminal.line(f"That did not do: {error}", err=True)
    except TimeoutError:
        raise CommandFailed(
            f"Nobody has signed in to {name} within {PAGE_WAIT / 60:.0f} minutes. Nothing was stored."
        ) from None


@contextlib.asynccontextmanager
async def _claude(configured: dict[str, Any]) -> AsyncIterator[Any]:
    """The CLI with these servers and those of the user's own settings, in an empty directory."""
    from claude_agent_sdk import ClaudeAgentOptions, ClaudeSDKClient, ClaudeSDKError

    from pykoclaw_acp.config import loading
    from pykoclaw_acp.worker import options

    with tempfile.TemporaryDirectory(prefix="pykoclaw-acp-") as directory:
        servers = json.dumps({"mcpServers": configured}) if configured else None
        with options.private_file(Path(directory) / "mcp.json", servers) as file:
            path = loading.load().cli_path
            client = ClaudeSDKClient(
                ClaudeAgentOptions(
                    cwd=directory,
                    cli_path=options.find_cli(None if path is None else str(path)),
                    setting_sources=["user"],
                    extra_args={} if file is None else {"mcp-config": str(file)},
                    stderr=lambda _: None,
                )
            )
            try:
                await client.connect()
            except (ClaudeSDKError, OSError) as error:
                raise CommandFailed(
                    f"Claude could not be started: {error}. `pykoclaw-acp doctor` says more."
                ) from error
        try:
            yield client
        finally:
            await client.disconnect()


async def _settled(client: Any, server: str) -> dict[str, Any]:
    """What the CLI knows of the server, by name or address, once it has tried it; raises
    CommandFailed if there is none, or it does not work.
    """
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(STATE_WAIT):
            while (found := await _state(client, server) or {}).get("status") == "pending":  # noqa: ASYNC110
                await asyncio.sleep(LOOK)
    if not found:
        raise CommandFailed(UNKNOWN.format(server))
    if found["status"] not in ("connected", "needs-auth"):
        why = found.get("error") or f"its state is {found['status']}"
        raise CommandFailed(f"{found['name']} does not work: {why}")
    return found


async def _state(client: Any, server: str) -> dict[str, Any] | None:
    for one in (await client.get_mcp_status()).get("mcpServers", []):
        if server in (one.get("name"), (one.get("config") or {}).get("url")):
            return dict(one)
    return None


@contextlib.contextmanager
def _pasting(lines: asyncio.Queue[str]) -> Iterator[None]:
    """Lines that the user pastes go into the queue, if standard input can be waited for."""
    loop, descriptor = asyncio.get_running_loop(), 0

    def read() -> None:
        data = os.read(descriptor, MAX_PASTED)
        if not data:
            loop.remove_reader(descriptor)
        for line in data.decode(errors="replace").split():
            lines.put_nowait(line)

    with contextlib.suppress(OSError, ValueError):  # a file, or closed
        loop.add_reader(descriptor, read)
    try:
        yield
    finally:
        with contextlib.suppress(OSError, ValueError):
            loop.remove_reader(descriptor)
