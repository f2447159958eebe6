"""What works of a session's MCP servers, as the CLI says at the beginning of each turn.

What does not is told to the user once in a session, and tried again. Where a sign-in is missing the
user is asked for it, by a client that can open a page.

While the CLI (2.1.327) connects to a server again, it reads no input: a prompt would wait, for 30 s
if the server says nothing. So that is done between turns, and not to a server that hangs.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import re
import shlex
import time
from collections.abc import Callable, Mapping
from typing import Any, Final
from urllib.parse import urlsplit

import structlog
from claude_agent_sdk import ClaudeSDKClient, Message, SystemMessage

from pykoclaw_acp.channel.options import McpServer, WorkerOptions
from pykoclaw_acp.model.events import Event, note_event
from pykoclaw_acp.model.permissions import Form
from pykoclaw_acp.model.session_environment import shown
from pykoclaw_acp.neutral import neutral
from pykoclaw_acp.system import credentials
from pykoclaw_acp.tasks import Tasks, told_elsewhere
from pykoclaw_acp.worker import sdk_private, unreachable
from pykoclaw_acp.worker.failures import in_one_line
from pykoclaw_acp.worker.permissions import PermissionCallbacks

FAILED: Final = "failed"
NEEDS_SIGN_IN: Final = "needs-auth"
PENDING: Final = "pending"
ASK_WAIT: Final = 5.0  # s; for the CLI to say why a server failed
PAUSE: Final = 15.0  # s until a server that has failed is tried again, doubled each time
LONGEST_PAUSE: Final = 300.0  # s; longer ones are for servers that take long to fail
SHARE: Final = 50  # a pause is at least so many times as long as the tries before it
RETRY_WAIT: Final = 3.0  # s that a prompt waits for servers after a sign-in
SIGN_IN_WAIT: Final = 600.0  # s in which the user may open the page, and sign in there
LOOK: Final = 1.0  # s between two looks whether that is done
SHORTEST_SECRET: Final = 4  # characters
OF_DIRECTORY: Final = ("local", "project")  # scopes of servers
_REFUSED: Final = re.compile(r"\bHTTP (?:401|403)\b|Dynamic Client Registration")
_NOT_FOUND: Final = re.compile(r"\bHTTP 404\b")
_HANGS: Final = "connection timed out after"
CHECK: Final = "Check that it runs and how it is configured"
AGAIN: Final = "it is tried again now and then between prompts, and at once"
SIGN_IN: Final = "Sign in, so that Claude can use this MCP server."

log: Final = structlog.get_logger()


class ServerStates:
    """The servers that do not work, and of which the user was told.

    `told` is what an earlier worker of the session gave as such; `changed` is called when a sign-in
    begins or ends.
    """

    def __init__(
        self,
        told: str,
        options: WorkerOptions,
        permissions: PermissionCallbacks,
        changed: Callable[[], None],
    ) -> None:
        self._told = set(told.split())
        self._given = {one.name: one for one in options.mcp_servers}
        self.account = options.account
        self._permissions = permissions
        self._changed = changed
        self._lacking: dict[str, str] = {}  # states by name
        self._hanging: set[str] = set()  # not tried again unless the user wants it
        self._turn = ""  # the newest one
        self._tokens = _tokens()
        self._trying: asyncio.Task[None] | None = None
        self.is_idle: Callable[[], bool] = lambda: True
        """Whether Claude does nothing, and no prompt is to be sent."""
        self.shown: tuple[str, Mapping[str, str]] = "", {}
        """The states, by name, that the answer to a prompt shows, and its turn."""
        self._opened: set[str] = set()  # whose page to sign in the user has opened
        self._tasks = Tasks()

    @property
    def told(self) -> str:
        """Identifies what the user was told of."""
        return " ".join(sorted(self._told))

    @property
    def signs_in(self) -> bool:
        """Whether the user is signing in to a server."""
        return bool(self._opened)

    async def retry(self, client: ClaudeSDKClient) -> None:
        """Connect again to what wanted a sign-in, if the user has signed in somewhere since."""
        names = [name for name, state in self._lacking.items() if state == NEEDS_SIGN_IN]
        if not names or (tokens := await asyncio.to_thread(_tokens)) == self._tokens:
            return
        self._tokens = tokens
        tries = [
            asyncio.create_task(client.reconnect_mcp_server(one), name="reconnect-server")
            for one in names
        ]
        try:
            await asyncio.wait(tries, timeout=RETRY_WAIT)
        finally:
            for one in tries:
                one.add_done_callback(told_elsewhere)  # by the next turn
                one.cancel()

    @property
    def _failing(self) -> set[str]:
        """What is to be tried again."""
        failed = {name for name, state in self._lacking.items() if state == FAILED}
        return failed - self._hanging

    async def _keep_trying(self, client: ClaudeSDKClient) -> None:
        """Connect again, between turns, to what has failed: it may have been repaired."""
        pause = PAUSE
        while self._failing:
            await self._rest(pause)
            known, began = await _details(client), time.monotonic()
            for name in sorted(self._failing & known.keys()):
                state = known[name].get("status")
                if name not in self._failing or state == PENDING:
                    continue  # as a turn has said meanwhile; or it connects right now
                if state == NEEDS_SIGN_IN:
                    self._lacking[name] = state
                elif state != FAILED:
                    self._lacking.pop(name)  # it was connected meanwhile
                elif _hangs(known[name]):
                    self._hanging.add(name)
                elif self.is_idle():
                    await self._try(name, client)
            took = time.monotonic() - began
            pause = max(min(2 * pause, LONGEST_PAUSE), SHARE * took)

    async def _rest(self, pause: float) -> None:
        """Return after the pause; after another one, if a turn was in it."""
        while True:
            turn = self._turn
            await asyncio.sleep(pause)
            if self.is_idle() and self._turn == turn:
                return
            pause = PAUSE

    async def _try(self, name: str, client: ClaudeSDKClient) -> None:
        try:
            await client.reconnect_mcp_server(name)
            self._lacking.pop(name, None)
        except Exception as error:  # noqa: BLE001  the SDK raises bare ones
            why = self.without_secrets(name, str(error))
            log.info("An MCP server still fails", action="mcp_failed_again", server=name, why=why)

    async def look(self, message: Message, client: ClaudeSDKClient, turn_id: str) -> list[Event]:
        """What to tell the user when a turn begins, of which the CLI says this."""
        states = _states(message)
        if states is None:
            return []
        self._turn = turn_id
        self._lacking = {
            name: state for name, state in states.items() if state in (FAILED, NEEDS_SIGN_IN)
        }
        keys = {name: _key(name, state) for name, state in self._lacking.items()}
        self._told &= set(keys.values())  # what works again may fail again
        self._hanging &= self._lacking.keys()
        if self._failing and (self._trying is None or self._trying.done()):
            self._trying = self._tasks.start(self._keep_trying(client))
        new = [name for name, key in keys.items() if key not in self._told]
        if not new:
            return []
        self._told |= {keys[name] for name in new}
        details = await _details(client)
        lines = {name: self._line(name, details.get(name, {}), client, turn_id) for name in new}
        answering, answer = self.shown
        shown = answer if answering == turn_id else {}
        words = "\n\n".join(
            line for name, line in lines.items() if line and shown.get(name) != states[name]
        )
        return [note_event(f"{turn_id}-servers", words)] if words else []

    def close(self) -> None:
        """Withdraw what the user was asked."""
        self._tasks.cancel()

    def _line(
        self, name: str, detail: Mapping[str, Any], client: ClaudeSDKClient, turn_id: str
    ) -> str:
        state = self._lacking[name]
        log.warning(
            "An MCP server cannot be used; Claude works without it",
            action="mcp_failed" if state == FAILED else "mcp_needs_sign_in",
            server=name,
        )
        if detail.get("scope") == "claudeai":
            return ""  # connectors of the account, which the user may never have wanted here
        shown = f"**MCP server `{neutral(name, 'command')}`"
        if state == FAILED:
            why = neutral(self.without_secrets(name, str(detail.get("error") or "")), "command")
            why = f": {why.rstrip('.')}" if why else ""
            stop = "" if why.endswith(("?", "!")) else "."
            again = f"`/mcp reconnect {neutral(name, 'command')}`"
            return (
                f"{shown} does not work{why}{stop}** Claude goes on without it. {advice(why) or CHECK}; "
                + (f"{again} then tries it again." if _hangs(detail) else f"{AGAIN} by {again}.")
            )
        asks = self._permissions.links and not _has_secret(self._given.get(name))
        if asks:
            self._tasks.start(self._offer_sign_in(name, client, turn_id))
        page = "Open the page that you are asked for, or run" if asks else "Run"
        command = sign_in_command(name, detail, self.account)
        return (
            f"{shown} wants you to sign in.** {page} {command} in a terminal. Claude goes on without it, and has it "
            "with the prompt after that."
        )

    async def _offer_sign_in(self, name: str, client: ClaudeSDKClient, turn_id: str) -> None:
        """Ask the user to open the page; the CLI waits for the browser, and keeps the token."""
        try:
            url = await sdk_private.sign_in(client, name)
        except sdk_private.NoSignIn as error:
            log.info(
                "A sign-in cannot be begun", action="sign_in_failed", server=name, why=str(error)
            )
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(SIGN_IN_WAIT):
                form = Form(server=name, message=SIGN_IN, schema={}, url=url)
                if (await self._permissions.ask(form, turn_id))["action"] == "accept":
                    await self._opened_page(name, client)

    async def _opened_page(self, name: str, client: ClaudeSDKClient) -> None:
        """Wait until the user has signed in."""
        self._opened.add(name)
        self._changed()
        try:
            while not await _is_connected(client, name):  # noqa: ASYNC110  the CLI does not tell it
                await asyncio.sleep(LOOK)
            self._lacking.pop(name, None)
        finally:
            self._opened.discard(name)
            self._changed()

    def without_secrets(self, name: str, words: str) -> str:
        """An error in one line, without what the client has configured."""
        if (lost := unreachable.reason(words, "its address")) is not None:
            return lost
        given = self._given.get(name)
        if given is not None:
            if given.command and words.startswith("ENOENT"):
                words = "its program, or the interpreter of that, does not exist"
            for one in (given.url, *given.headers.values(), *given.env.values(), *given.args):
                if len(one) >= SHORTEST_SECRET:
                    words = words.replace(one, "…")
        return in_one_line(words).rstrip(" :;,")  # a server may have left empty what follows


def sign_in_command(name: str, detail: Mapping[str, Any], account: str) -> str:
    """The command that signs in to a server of which the CLI knows this, and where it is run: a
    directory's servers are known there alone.
    """
    # Always named: without one, PYKOCLAW_ACCOUNT says whose it is, which a worker does not know.
    of = f"--account {shown(account)}"
    command = f"`pykoclaw-acp mcp login {of} {neutral(shlex.quote(name), 'command')}`"
    return (
        f"{command}, in this session's directory,"
        if detail.get("scope") in OF_DIRECTORY
        else command
    )


def advice(why: str) -> str:
    """What to do about a server that fails with these words; empty if they do not say it."""
    if _REFUSED.search(why):
        return "It requires a sign-in that Claude cannot perform: put a token or a header into its configuration"
    return "Check its address" if _NOT_FOUND.search(why) else ""


def _states(message: Message) -> dict[str, str] | None:
    """The servers' states by name, in what the CLI says when a turn begins; None: it says else."""
    if not isinstance(message, SystemMessage) or message.subtype != "init":
        return None
    servers = message.data.get("mcp_servers")
    found = [one for one in servers if isinstance(one, dict)] if isinstance(servers, list) else []
    return {str(one.get("name")): str(one.get("status")) for one in found}


async def _details(client: ClaudeSDKClient) -> dict[str, dict[str, Any]]:
    """What the CLI knows of each server."""
    try:
        async with asyncio.timeout(ASK_WAIT):
            known: Any = await client.get_mcp_status()
    except Exception as error:  # noqa: BLE001  the SDK's own time-out is a bare one
        log.info("Claude does not say what its servers lack", action="mcp_unknown", why=repr(error))
        return {}
    return {str(one.get("name")): one for one in known.get("mcpServers", [])}


def _hangs(detail: Mapping[str, Any]) -> bool:
    """Whether the CLI has waited for the server as long as it may take to connect."""
    return _HANGS in str(detail.get("error"))


def _tokens() -> int:
    """When the CLI has last written its tokens (ns since 1970); 0: never, or that is not known."""
    directory = credentials.configuration(os.environ, os.path.expanduser("~"))
    try:
        return os.stat(os.path.join(directory, credentials.LOGIN)).st_mtime_ns
    except OSError:
        return 0


async def _is_connected(client: ClaudeSDKClient, name: str) -> bool:
    return bool((await _details(client)).get(name, {}).get("status") == "connected")


def _key(name: str, state: str) -> str:
    return hashlib.sha256(f"{name}\0{state}".encode()).hexdigest()[:12]


def _has_secret(given: McpServer | None) -> bool:
    """Whether the address may hold a secret: a page to sign in would name it, which is stored."""
    return given is not None and ("?" in given.url or "@" in urlsplit(given.url).netloc)
