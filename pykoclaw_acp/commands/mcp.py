"""`pykoclaw-acp mcp`: list MCP servers, sign in to one and out of it, which Claude's CLI does."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import subprocess
import tempfile
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from pykoclaw_acp import terminal
from pykoclaw_acp.commands.daemon import ask
from pykoclaw_acp.commands.login import account_directory
from pykoclaw_acp.commands.trust import LOOK_WAIT
from pykoclaw_acp.config import loading
from pykoclaw_acp.config.settings import Settings
from pykoclaw_acp.errors import CommandFailed, DaemonNotRunning
from pykoclaw_acp.system import credentials
from pykoclaw_acp.system.environment import CONFIGURATION

STATE_WAIT: Final = 60.0  # s; for the servers to have been tried
PAGE_WAIT: Final = 600.0  # s in which the user may open the page
LOOK: Final = 0.3  # s between two looks at a server's state
UNKNOWN: Final = (
    "There is no MCP server {}. It was looked for, by name or address, among the servers that clients have given to"
    " sessions and in your Claude settings (account {}), and by name in this directory. Open the session in your client"
    " first, or run this command in the session's directory with the server's name; `pykoclaw-acp mcp list` shows what"
    " clients have given."
)
OF_ANOTHER: Final = (
    "The MCP server {} is not in account {}: clients have given it only to sessions of another account, and neither the"
    " Claude settings of this account nor this directory has it. Run the command without --account, or with the"
    " account of those sessions."
)
NOT_TRUSTED: Final = (
    "The MCP server {} was not found among those that clients have given to sessions, nor in your"
    " Claude settings. It was not looked for in this directory, because Claude would use the"
    " directory's active content, which is not trusted. `pykoclaw-acp trust show` lists it; after"
    " `pykoclaw-acp trust add` (`trust add --tree`, if PYKOCLAW_SETTING_SOURCES leaves `project` or"
    " `local` out), run this command again."
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


def login(server: str, account: str | None) -> None:
    """Sign in to all servers of this name or address; raises CommandFailed."""
    _for_each(server, account, "login", _login)


def logout(server: str, account: str | None) -> None:
    """Sign out of all servers of this name or address; raises CommandFailed."""
    _for_each(server, account, "logout", _logout)


def _for_each(
    server: str,
    account: str | None,
    command: str,
    work: Callable[[str, Mapping[str, Any] | None, str], Coroutine[Any, Any, bool]],
) -> None:
    """Do `work` with the servers that clients have given, in sessions of this account or, without
    one, of any; else with that of the account's own settings, else with that of this directory.
    """
    settings = loading.load()
    name, directory = settings.account, None
    if account is not None:
        name, directory = account_directory(settings, account)
    try:
        found = ask("mcp/find", start=False, server=server)
    except DaemonNotRunning:
        found = {"servers": [], "claudeConfigDir": os.environ.get(CONFIGURATION)}
    if account is None and not found["servers"]:
        name, directory = account_directory(settings, account)
    own = directory or found["claudeConfigDir"]
    given = [one for one in found["servers"] if account is None or one["claudeConfigDir"] == own]
    unknown = OF_ANOTHER if found["servers"] and not given else UNKNOWN
    for one in given or [None]:
        # Of the session's account; Claude keeps the sign-in there.
        place = own if one is None else one["claudeConfigDir"]
        try:
            with _configuration(place):
                done = asyncio.run(work(server, one, name))
            if not done:
                _require_trusted(settings, server)
                with _configuration(place):
                    _with_cli(settings, command, server, unknown.format(server, name))
        except KeyboardInterrupt:
            raise CommandFailed("It was stopped. Nothing was stored or removed.") from None


@contextlib.contextmanager
def _configuration(place: str | None) -> Iterator[None]:
    """Let Claude have this configuration directory; None: its own. Not a daemon that is started."""
    before = os.environ.pop(CONFIGURATION, None)
    if place is not None:
        os.environ[CONFIGURATION] = place
    try:
        yield
    finally:
        os.environ.pop(CONFIGURATION, None)
        if before is not None:
            os.environ[CONFIGURATION] = before


def _require_trusted(settings: Settings, server: str) -> None:
    """Raises CommandFailed if this directory has active content that is not trusted: to know a
    server, the CLI starts it, whatever settings files the daemon leaves out.
    """
    if settings.workspace_trust != "off":
        looked = ask("trust/show", timeout=LOOK_WAIT, path=os.getcwd(), allSources=True)
        if looked["found"] and not looked["trusted"]:
            raise CommandFailed(NOT_TRUSTED.format(server))


def _with_cli(settings: Settings, command: str, server: str, unknown: str) -> None:
    """Let the CLI do it, which knows the servers of this directory, and which of them its user has
    approved; raises CommandFailed, with `unknown` if it knows none.
    """
    cli = str(settings.cli_path or credentials.bundled_cli() or "claude")
    known = subprocess.run(
        [cli, "mcp", "get", "--", server],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
    )
    if known.returncode:
        raise CommandFailed(unknown)
    status = subprocess.run([cli, "mcp", command, "--", server], check=False).returncode
    if status:
        raise CommandFailed(
            f"Claude's own `mcp {command}` has ended with status {status}; it says why. Nothing else was changed."
        )


async def _logout(server: str, given: Mapping[str, Any] | None, account: str) -> bool:
    from pykoclaw_acp.worker import sdk_private

    configured = {} if given is None else {given["name"]: given["config"]}
    async with _claude(configured) as client:
        found = await _state(client, server if given is None else given["name"])
        if found is None:
            return False
        name = str(found["name"])
        try:
            await sdk_private.sign_out(client, name)
        except sdk_private.NoSignIn as error:
            raise CommandFailed(
                f"Claude could not sign out of {name}: {error}. What it keeps of the sign-in is as before."
            ) from error
    terminal.line(
        f"Signed out of {name}{_of(given, account)}. A session that runs keeps its connection until its worker ends"
        " (`pykoclaw-acp workers stop`)."
    )
    return True


async def _login(server: str, given: Mapping[str, Any] | None, account: str) -> bool:
    configured = {} if given is None else {given["name"]: given["config"]}
    async with _claude(configured) as client:
        found = await _settled(client, server if given is None else given["name"])
        if not found:
            return False
        name = str(found["name"])
        if found["status"] == "connected":
            terminal.line(f"{name} works already; there is nothing to sign in to.")
            return True
        await _sign_in(client, name)
    terminal.line(
        f"Signed in to {name}{_of(given, account)}. Sessions have it with their next prompt."
    )
    return True


def _of(given: Mapping[str, Any] | None, account: str) -> str:
    """What is said of the account: a server that clients have given is found with its own."""
    return "" if given is not None else f", account {account}"


async def _sign_in(client: Any, name: str) -> None:
    from pykoclaw_acp.worker import sdk_private

    try:
        page = await sdk_private.sign_in(client, name)
    except sdk_private.NoSignIn as error:
        raise CommandFailed(
            f"Claude cannot sign in to {name}: {error}. Put a token into a header, where your client or Claude's"
            " settings name the server."
        ) from error
    terminal.line(f"Open this page to sign in to {name}:")
    terminal.line(page)
    terminal.line(
        "If the browser is on another machine, paste here the address of the last page that it opens, even if that page"
        " cannot be shown; otherwise just wait."
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
                            terminal.line(f"This address was not accepted: {error}", err=True)
    except TimeoutError:
        raise CommandFailed(
            f"Nobody has signed in to {name} within {PAGE_WAIT / 60:.0f} minutes. Nothing was stored."
        ) from None


@contextlib.asynccontextmanager
async def _claude(configured: dict[str, Any]) -> AsyncIterator[Any]:
    """The CLI with these servers and those of the user's own settings, in an empty directory."""
    from claude_agent_sdk import ClaudeAgentOptions, ClaudeSDKClient, ClaudeSDKError

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
    """What the CLI knows of the server, by name or address, once it has tried it; empty if there
    is none. Raises CommandFailed if it does not work.
    """
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(STATE_WAIT):
            while (found := await _state(client, server) or {}).get("status") == "pending":  # noqa: ASYNC110
                await asyncio.sleep(LOOK)
    if found and found["status"] not in ("connected", "needs-auth"):
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
