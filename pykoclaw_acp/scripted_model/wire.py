"""Encoding of steps as a Messages API response, streaming or not, with the waits between. No I/O.

Format: https://docs.anthropic.com/en/api/messages-streaming.
"""

from __future__ import annotations

import base64
import hashlib
import json
import secrets
import string
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from .steps import (
    Cut,
    Hang,
    Step,
    Steps,
    StopStep,
    StreamError,
    TextStep,
    ThinkingStep,
    ToolStep,
)

ERROR_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    500: "api_error",
    504: "timeout_error",
    529: "overloaded_error",
}
_WORDS = {"api_error": "Internal server error"}  # the service's, where the type says less
_ALPHABET = string.ascii_letters + string.digits
_CHARACTERS_PER_TOKEN = 4
_JSON_DELTA_CHARACTERS = 48


@dataclass(frozen=True)
class Send:
    """Bytes to send. `deltas` counts the text and thinking deltas in them."""

    data: bytes
    deltas: int = 0


@dataclass(frozen=True)
class Wait:
    """Send nothing for this many seconds; None: until the client disconnects."""

    seconds: float | None


@dataclass(frozen=True)
class StreamFailed:
    """The stream ended with an error event."""


@dataclass(frozen=True)
class Severed:
    """Close the connection in mid-response."""


Action = Send | Wait | StreamFailed | Severed


def new_id(prefix: str) -> str:
    """A unique identifier in the API's form, for instance `msg_01…`."""
    return f"{prefix}_01" + "".join(secrets.choice(_ALPHABET) for _ in range(22))


def error_body(kind: str, message: str) -> dict[str, Any]:
    """Body of an HTTP error, and data of an error event."""
    text = message or _WORDS.get(kind) or kind.removesuffix("_error").replace("_", " ").capitalize()
    return {"type": "error", "error": {"type": kind, "message": text}, "request_id": new_id("req")}


def error_status(kind: str) -> int:
    """HTTP status of an error type."""
    return next((status for status, name in ERROR_TYPES.items() if name == kind), 500)


def estimate_tokens(value: object) -> int:
    """Approximate number of tokens of the text of `value`."""
    return max(1, len(json.dumps(value, ensure_ascii=False)) // _CHARACTERS_PER_TOKEN)


def input_tokens(body: dict[str, Any]) -> int:
    """Approximate number of tokens of the request body."""
    return estimate_tokens([body.get("system", ""), body.get("tools", []), body["messages"]])


class ResponseWriter:
    """One response to one request; call either `stream` or `message`, once.

    The steps hold no HttpError; a StreamError or Cut is the last one.
    """

    def __init__(self, body: dict[str, Any], steps: Steps) -> None:
        self._steps = steps
        self._model = body.get("model", "scripted")
        thinking = body.get("thinking") or {}
        self._thinks = thinking.get("type") in ("adaptive", "enabled")
        self._shows_thinking = thinking.get("display") == "summarized"
        self._input_tokens = input_tokens(body)
        self._output: list[str] = []
        self._index = -1
        self._open: type[Step] | None = None

    def stream(self) -> Iterator[Action]:
        """Server-sent events of the response; nothing follows StreamFailed or Severed."""
        yield Send(_event("message_start", message=self._envelope([], None)) + _event("ping"))
        for step in self._steps:
            match step:
                case TextStep():
                    yield from self._stream_text(step)
                case ThinkingStep() if self._thinks:
                    yield from self._stream_thinking(step)
                case ToolStep():
                    yield from self._stream_tool(step)
                case Hang():
                    yield Wait(step.seconds)
                case StreamError():
                    yield Send(_sse("error", error_body(step.type, step.message)))
                    yield StreamFailed()
                    return
                case Cut():
                    yield Severed()
                    return
                case _:
                    pass
        yield from self._close_block()
        delta = {"stop_reason": _stop_reason(self._steps), "stop_sequence": None}
        yield Send(
            _event("message_delta", delta=delta, usage=self._usage()) + _event("message_stop")
        )

    def message(self) -> Iterator[Action]:
        """The response as one message, for a request without streaming."""
        content: list[dict[str, Any]] = []
        before: type[Step] | None = None
        for step in self._steps:
            match step:
                case TextStep():
                    yield Wait(step.every * (len(step.deltas) - 1))
                    text = "".join(step.deltas)
                    if before is TextStep:
                        content[-1]["text"] += "\n" + text
                    else:
                        content.append({"type": "text", "text": text})
                case ThinkingStep() if self._thinks:
                    text = step.text if self._shows_thinking else ""
                    content.append(
                        {"type": "thinking", "thinking": text, "signature": _signature(step.text)}
                    )
                case ToolStep():
                    content.append(
                        {
                            "type": "tool_use",
                            "id": new_id("toolu"),
                            "name": step.name,
                            "input": step.input,
                        }
                    )
                case Hang():
                    yield Wait(step.seconds)
                    continue
                case Cut():
                    yield Send(b'{"id":"')
                    yield Severed()
                    return
                case _:
                    continue
            before = type(step)
        self._output.append(json.dumps(content))
        yield Send(json.dumps(self._envelope(content, _stop_reason(self._steps))).encode())

    def _stream_text(self, step: TextStep) -> Iterator[Action]:
        joined = self._open is TextStep
        if not joined:
            yield from self._open_block(TextStep, {"type": "text", "text": ""})
        for number, delta in enumerate(step.deltas):
            if number and step.every:
                yield Wait(step.every)
            text = "\n" + delta if joined and not number else delta
            if text:
                yield self._delta({"type": "text_delta", "text": text}, text, counts=True)

    def _stream_thinking(self, step: ThinkingStep) -> Iterator[Action]:
        yield from self._open_block(
            ThinkingStep, {"type": "thinking", "thinking": "", "signature": ""}
        )
        if self._shows_thinking:
            yield self._delta(
                {"type": "thinking_delta", "thinking": step.text}, step.text, counts=True
            )
        yield self._delta({"type": "signature_delta", "signature": _signature(step.text)}, "")

    def _stream_tool(self, step: ToolStep) -> Iterator[Action]:
        block = {"type": "tool_use", "id": new_id("toolu"), "name": step.name, "input": {}}
        yield from self._open_block(ToolStep, block)
        text = json.dumps(step.input, ensure_ascii=False)
        for start in range(0, len(text), _JSON_DELTA_CHARACTERS):
            part = text[start : start + _JSON_DELTA_CHARACTERS]
            yield self._delta({"type": "input_json_delta", "partial_json": part}, part)

    def _open_block(self, kind: type[Step], block: dict[str, Any]) -> Iterator[Action]:
        yield from self._close_block()
        self._index += 1
        self._open = kind
        yield Send(_event("content_block_start", index=self._index, content_block=block))

    def _close_block(self) -> Iterator[Action]:
        if self._open is not None:
            self._open = None
            yield Send(_event("content_block_stop", index=self._index))

    def _delta(self, delta: dict[str, Any], text: str, *, counts: bool = False) -> Send:
        self._output.append(text)
        return Send(_event("content_block_delta", index=self._index, delta=delta), int(counts))

    def _envelope(self, content: list[dict[str, Any]], stop_reason: str | None) -> dict[str, Any]:
        return {
            "id": new_id("msg"),
            "type": "message",
            "role": "assistant",
            "model": self._model,
            "content": content,
            "stop_reason": stop_reason,
            "stop_sequence": None,
            "usage": self._usage() | {"service_tier": "standard"},
        }

    def _usage(self) -> dict[str, int]:
        return {
            "input_tokens": self._input_tokens,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": 0,
            "output_tokens": 1 + sum(map(len, self._output)) // _CHARACTERS_PER_TOKEN,
        }


def _stop_reason(steps: Steps) -> str:
    stop = next((step.reason for step in steps if isinstance(step, StopStep)), None)
    return stop or ("tool_use" if any(isinstance(step, ToolStep) for step in steps) else "end_turn")


def _signature(text: str) -> str:
    return base64.b64encode(hashlib.sha512(text.encode()).digest()).decode()


def _event(kind: str, **data: object) -> bytes:
    return _sse(kind, {"type": kind, **data})


def _sse(kind: str, data: dict[str, Any]) -> bytes:
    return f"event: {kind}\ndata: {json.dumps(data, separators=(',', ':'), ensure_ascii=False)}\n\n".encode()
