"""What leans on private parts of the Claude Agent SDK; without them the worker does without.

MCP elicitation: the CLI hands an MCP server's form to the SDK as a control request, which the SDK
(0.2) answers with "unsupported", and the server is told `cancel`. Here the request is taken before
the SDK sees it. A sign-in to an MCP server, and a sign-out, are control requests of the CLI that
the SDK has no methods for.

Effort and fast mode: the CLI takes them in a control request that the SDK has no method for, and
tells in another one what holds.

The CLI's pid: the SDK keeps it to itself.

The end of the CLI: while the SDK closes, its reader calls a CLI that SIGTERM ends a fatal error.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import math
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, Final, NamedTuple

import structlog
from claude_agent_sdk import ClaudeSDKClient

from pykoclaw_acp.model.permissions import Form
from pykoclaw_acp.system import processes

CANCEL: Final[dict[str, Any]] = {"action": "cancel"}
PAGES: Final = ("https://", "http://")

log: Final = structlog.get_logger()


class OtherSdk(Exception):
    """This SDK is another inside."""

    def __init__(self) -> None:
        super().__init__("This Claude Agent SDK leaves no way to ask this of Claude.")


class Applied(NamedTuple):
    """What the CLI goes on with, in its own words; None: not known."""

    effort: str | None = None
    model: str | None = None
    fast: bool | None = None  # whether the session asks for fast mode, which its model may not have


class NoSignIn(Exception):
    """A sign-in to an MCP server cannot be begun, or ended; the message says why."""


def take_elicitations(
    client: ClaudeSDKClient, ask: Callable[[Form], Awaitable[dict[str, Any]]]
) -> bool:
    """Let `ask` answer the forms of MCP servers with MCP's elicitation result; `client` must be
    connected.

    False, and every form is cancelled, if this SDK is another inside.
    """
    query = getattr(client, "_query", None)
    others = getattr(query, "_handle_control_request", None)
    write = getattr(getattr(query, "transport", None), "write", None)
    if query is None or not callable(others) or not callable(write):
        log.warning(
            "This Claude Agent SDK leaves no way to show forms", action="elicitation_unavailable"
        )
        return False

    async def handle(request: dict[str, Any]) -> None:
        body = request["request"]
        if body["subtype"] != "elicitation":
            await others(request)
            return
        form = _form(body)
        try:
            result = CANCEL if form is None else await ask(form)
        except Exception:
            log.exception("A form could not be shown", action="elicitation_failed")
            result = CANCEL  # the CLI waits for an answer, whatever it is
        response = {"subtype": "success", "request_id": request["request_id"], "response": result}
        await write(json.dumps({"type": "control_response", "response": response}) + "\n")

    query._handle_control_request = handle
    return True


async def apply_settings(client: ClaudeSDKClient, settings: dict[str, Any]) -> None:
    """Change settings of the CLI for this session; None as a value takes one back.

    Raises as `control`.
    """
    await control(client, {"subtype": "apply_flag_settings", "settings": settings})


async def applied(client: ClaudeSDKClient) -> Applied:
    """What the CLI's next request will be sent with. Raises what the SDK raises."""
    try:
        answer = await control(client, {"subtype": "get_settings"})
    except OtherSdk:
        return Applied()
    found, sources = answer.get("applied"), answer.get("sources")
    its = found if isinstance(found, dict) else {}
    effort, model = its.get("effort"), its.get("model")
    return Applied(
        effort if isinstance(effort, str) else None,
        model if isinstance(model, str) else None,
        any(_has_fast_mode(one) for one in sources) if isinstance(sources, list) else None,
    )


async def forbids_bypass(client: ClaudeSDKClient, limit: float) -> bool:
    """Whether Claude's settings forbid the mode bypassPermissions now, or do not become known within
    `limit` (s).
    """
    try:
        async with asyncio.timeout(limit):
            sources = (await control(client, {"subtype": "get_settings"})).get("sources")
    except Exception as error:  # noqa: BLE001  the SDK raises bare ones
        log.info("The settings are not known", action="settings_unknown", error=repr(error)[:200])
        return True
    given = (one.get("settings") for one in sources or () if isinstance(one, dict))
    permissions = (one.get("permissions") for one in given if isinstance(one, dict))
    key = "disableBypassPermissionsMode"
    return any(one.get(key) == "disable" for one in permissions if isinstance(one, dict))


def _has_fast_mode(source: object) -> bool:
    """Whether these settings turn fast mode on: those of files do not, as the CLI has it under the
    SDK by the session's own only.
    """
    if not isinstance(source, dict) or source.get("source") != "flagSettings":
        return False
    settings = source.get("settings")
    return isinstance(settings, dict) and settings.get("fastMode") is True


async def control(
    client: ClaudeSDKClient, request: dict[str, Any], **limits: float
) -> dict[str, Any]:
    """The CLI's answer to a control request, some of which the SDK cuts; raises what the SDK does,
    and OtherSdk. `limits`: of the SDK's own call.
    """
    send = getattr(getattr(client, "_query", None), "_send_control_request", None)
    if not callable(send):
        raise OtherSdk
    answer = await send(request, **limits)
    return answer if isinstance(answer, dict) else {}


async def cancel_message(client: ClaudeSDKClient, uuid: str) -> bool:
    """Whether the CLI has dropped a message that it had not taken up yet; waits for the answer without
    limit, since the CLI says so once, and may have been stopped.
    """
    try:
        request = {"subtype": "cancel_async_message", "message_uuid": uuid}
        return (await control(client, request, timeout=math.inf)).get("cancelled") is True
    except Exception as error:  # noqa: BLE001  of a CLI that ends, or does not know it
        log.info("A message could not be dropped", action="cancel_message", error=repr(error))
        return False


def cli_pid(client: ClaudeSDKClient) -> int | None:
    """The CLI's process; None if this SDK is another inside."""
    pid = getattr(getattr(getattr(client, "_transport", None), "_process", None), "pid", None)
    return pid if isinstance(pid, int) else None


def cli_lives(client: ClaudeSDKClient) -> bool:
    """Whether the CLI's process is not known to end."""
    pid = cli_pid(client)
    return pid is None or not is_ending(pid)


def is_ending(pid: int) -> bool:
    """Whether the CLI's process is known to be dead or exiting."""
    try:
        return processes.ending(pid)
    except OSError:  # no descriptor is left
        return False


@contextlib.contextmanager
def end_expected() -> Iterator[None]:
    """Keep the SDK's reader from logging that the CLI has ended."""
    logger = logging.getLogger("claude_agent_sdk._internal.query")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(level)


def cli_process(client: ClaudeSDKClient) -> object:
    """The CLI's process, as the SDK has it until it is closed; None if there is none, or this SDK
    is another inside.
    """
    return getattr(getattr(client, "_transport", None), "_process", None)


def exit_status(process: object) -> int | None:
    """The exit status of a CLI that has ended; None if it has not."""
    status = getattr(process, "returncode", None)
    return status if isinstance(status, int) else None


async def sign_in(client: ClaudeSDKClient, server: str) -> str:
    """Begin to sign in to an MCP server: the page that the user is to open, for whose end the CLI
    waits. Raises NoSignIn.
    """
    answer = await _sign_in(client, {"subtype": "mcp_authenticate", "serverName": server})
    url = answer.get("authUrl")
    if not isinstance(url, str) or not url.startswith(PAGES):
        raise NoSignIn("The server names no page to sign in")
    return url


async def end_sign_in(client: ClaudeSDKClient, server: str, address: str) -> None:
    """Give the CLI the address at which the user's browser has ended, on another machine. Raises
    NoSignIn.
    """
    request = {"subtype": "mcp_oauth_callback_url", "serverName": server, "callbackUrl": address}
    await _sign_in(client, request)
    with contextlib.suppress(Exception):  # its state says so
        await client.reconnect_mcp_server(server)  # which the CLI then leaves to us


async def sign_out(client: ClaudeSDKClient, server: str) -> None:
    """Have the CLI forget, and revoke, what it keeps of a sign-in to an MCP server. Raises NoSignIn."""
    await _sign_in(client, {"subtype": "mcp_clear_auth", "serverName": server})


async def _sign_in(client: ClaudeSDKClient, request: dict[str, Any]) -> dict[str, Any]:
    try:
        return await control(client, request)
    except Exception as error:  # the SDK raises a bare one
        raise NoSignIn(str(error)) from error


def _form(body: dict[str, Any]) -> Form | None:
    """None for what is neither a form nor a page that the user should open."""
    server, message = str(body.get("mcp_server_name")), body.get("message")
    mode, schema, url = body.get("mode", "form"), body.get("requested_schema"), body.get("url")
    if not isinstance(message, str):
        return None
    if mode == "form" and isinstance(schema, dict):
        return Form(server=server, message=message, schema=schema)
    if mode == "url" and isinstance(url, str) and url.startswith(PAGES):
        return Form(server=server, message=message, schema={}, url=url)
    return None
