"""The end of a turn from the CLI's result message: pure functions."""

from __future__ import annotations

from typing import Any, Final

from claude_agent_sdk import AssistantMessage, Message, ResultMessage, TextBlock, UserMessage

from pykoclaw_acp.channel.frames import TurnEnded
from pykoclaw_acp.channel.usage import TurnUsage
from pykoclaw_acp.model.failures import TurnFailure
from pykoclaw_acp.worker.failures import turn_failure

ABORTED: Final = ("aborted_streaming", "aborted_tools")


def answers(result: ResultMessage, turn_id: str) -> bool:
    """Whether this is the result of the prompt, and not of a turn that the CLI began by itself."""
    if result.user_message_uuids:
        return turn_id in result.user_message_uuids
    if result.user_message_uuid is not None:
        return result.user_message_uuid == turn_id
    return result.origin is None


def of_interrupt(claude_session_id: str) -> ResultMessage:
    """The result of an interrupted turn of Claude's own, of which the CLI tells none."""
    return ResultMessage(
        subtype="error_during_execution",
        duration_ms=0,
        duration_api_ms=0,
        is_error=True,
        num_turns=0,
        session_id=claude_session_id,
        terminal_reason=ABORTED[1],
        origin={"kind": "task-notification"},
    )


def entry(message: Message) -> str | None:
    """The uuid under which the message is in Claude's transcript; None if it is not in the main one."""
    if isinstance(message, AssistantMessage | UserMessage) and not message.parent_tool_use_id:
        return message.uuid
    return None


def api_error(message: Message) -> tuple[str, str] | None:
    """Kind and words of the API's error that the message tells, unless a subagent met it."""
    if not isinstance(message, AssistantMessage) or message.error is None:
        return None
    if message.parent_tool_use_id:
        return None
    texts = (block.text for block in message.content if isinstance(block, TextBlock))
    return message.error, " ".join(texts)


def turn_ended(
    epoch: int,
    turn_id: str,
    result: ResultMessage,
    failure: TurnFailure | None,
    api_error: tuple[str, str] | None,
    *,
    last_uuid: str | None = None,
) -> TurnEnded:
    """The end of a turn. `failure`: why we stopped it; `api_error`: kind and message of the API's
    last error; `last_uuid`: its last entry in Claude's transcript.
    """
    error: TurnFailure | None = None
    stop: str | None = None
    if failure is not None:
        error = failure
    elif result.terminal_reason in ABORTED:
        stop = "cancelled"
    elif result.subtype == "error_max_turns":
        stop = "max_turn_requests"
    elif result.stop_reason == "refusal":
        stop = "refusal"
    elif result.stop_reason == "max_tokens" or (api_error and api_error[0] == "max_output_tokens"):
        stop = "max_tokens"
    elif result.is_error:
        error = turn_failure(result, api_error)
    else:
        stop = "end_turn"
    return TurnEnded(
        epoch=epoch,
        turn_id=turn_id,
        stop_reason=stop,
        claude_session_id=result.session_id,
        error=error,
        usage=_usage(result.usage),
        last_uuid=last_uuid,
    )


def _usage(usage: dict[str, Any] | None) -> TurnUsage | None:
    """Tokens of the turn; None when the CLI counted none, as after an interrupt."""
    given = usage or {}
    used = TurnUsage(
        input_tokens=int(given.get("input_tokens") or 0),
        output_tokens=int(given.get("output_tokens") or 0),
        cached_read_tokens=int(given.get("cache_read_input_tokens") or 0),
        cached_write_tokens=int(given.get("cache_creation_input_tokens") or 0),
    )
    return None if used == TurnUsage() else used
