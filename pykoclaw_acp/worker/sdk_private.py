"""What leans on private parts of the Claude Agent SDK; without them the worker does without.

MCP elicitation: the CLI hands an MCP server's form to the SDK as a control request, which the SDK
(0.2) answers with "unsupported", and the server is told `cancel`. Here the request is taken before
the SDK sees it.

Effort and fast mode: the CLI takes them in a control request that the SDK has no method for, and
tells in another one what holds.

The CLI's pid: the SDK keeps it to itself.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any, Final

import structlog
from claude_agent_sdk import ClaudeSDKClient

from pykoclaw_acp.model.permissions import Form

CANCEL: Final[dict[str, Any]] = {"action": "cancel"}

log: Final = structlog.get_logger()


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

    Raises what the SDK raises, and AttributeError if this SDK is another inside.
    """
    await _control(client, {"subtype": "apply_flag_settings", "settings": settings})


async def applied(client: ClaudeSDKClient) -> dict[str, Any]:
    """What the CLI's next request will be sent with, such as `model` and `effort`; empty if this
    SDK is another inside. Raises what the SDK raises.
    """
    try:
        answer = await _control(client, {"subtype": "get_settings"})
    except AttributeError:
        return {}
    found = answer.get("applied") if isinstance(answer, dict) else None
    return found if isinstance(found, dict) else {}


async def _control(client: ClaudeSDKClient, request: dict[str, Any]) -> Any:
    return await client._query._send_control_request(request)  # type: ignore[union-attr]


async def control(client: ClaudeSDKClient, request: dict[str, Any]) -> dict[str, Any]:
    """The CLI's answer to a control request, some of which the SDK cuts; raises what the SDK does."""
    send = getattr(getattr(client, "_query", None), "_send_control_request", None)
    if not callable(send):
        raise NotImplementedError("This Claude Agent SDK leaves no way to ask this of Claude.")
    answer = await send(request)
    return answer if isinstance(answer, dict) else {}


async def cancel_message(client: ClaudeSDKClient, uuid: str) -> bool:
    """Whether the CLI has dropped a message that it had not taken up yet."""
    try:
        request = {"subtype": "cancel_async_message", "message_uuid": uuid}
        return (await control(client, request)).get("cancelled") is True
    except Exception as error:  # noqa: BLE001  of a CLI that ends, or does not know it
        log.info("A message could not be dropped", action="cancel_message", error=repr(error))
        return False


def cli_pid(client: ClaudeSDKClient) -> int | None:
    """The CLI's process; None if this SDK is another inside."""
    pid = getattr(getattr(getattr(client, "_transport", None), "_process", None), "pid", None)
    return pid if isinstance(pid, int) else None


def cli_status(client: ClaudeSDKClient) -> int | None:
    """The exit status of a CLI that has ended; None if it has not, or this SDK is
    another inside.
    """
    status = getattr(
        getattr(getattr(client, "_transport", None), "_process", None), "returncode", None
    )
    return status if isinstance(status, int) else None


def _form(body: dict[str, Any]) -> Form | None:
    """None for what is no form: a URL that the user should open, or what this version does not
    know.
    """
    server, message, schema = (
        body.get("mcp_server_name"),
        body.get("message"),
        body.get("requested_schema"),
    )
    if (
        body.get("mode", "form") != "form"
        or not isinstance(message, str)
        or not isinstance(schema, dict)
    ):
        return None
    return Form(server=str(server), message=message, schema=schema)
