"""JSON-RPC 2.0 envelopes: bytes to messages and back, no I/O
(https://www.jsonrpc.org/specification).

Ids are kept as the raw JSON that the client sent, so that they are echoed exactly.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import msgspec

from pykoclaw_acp.errors import AcpError, InvalidParams, InvalidRequest, ParseError
from pykoclaw_acp.protocol import allowed

NULL_ID: Final = b"null"
MAX_ID: Final = 1024  # bytes; an id is echoed
BAD_ID: Final = f"`id` must be a string of at most {MAX_ID} bytes, an integer or null."


class _Envelope(msgspec.Struct):
    jsonrpc: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    id: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    method: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    params: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    result: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    error: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


@dataclass(frozen=True, slots=True)
class Request:
    """A call that gets exactly one response; `id` is raw JSON."""

    id: bytes
    method: str
    params: bytes


@dataclass(frozen=True, slots=True)
class Notification:
    """A call without a response."""

    method: str
    params: bytes


@dataclass(frozen=True, slots=True)
class Response:
    """A response to a request of ours; either `result` or `error` is set, as raw JSON."""

    id: bytes
    result: bytes | None
    error: bytes | None


@dataclass(frozen=True, slots=True)
class Invalid:
    """A line that is not a message; `error` is to be sent as response under `id`."""

    id: bytes
    error: AcpError


AnyMessage = Request | Notification | Response | Invalid

_decoder = msgspec.json.Decoder(_Envelope)
_id_decoder = msgspec.json.Decoder(str | int | None)


def parse(line: bytes | bytearray) -> AnyMessage | None:
    """Parse a line; None for a blank line, and for a response without a usable id."""
    if not line.strip():
        return None
    try:
        envelope = _decode(line)
    except msgspec.ValidationError:
        if line.lstrip().startswith(b"["):
            return Invalid(
                NULL_ID, InvalidRequest("Batches are not supported: send one message a line.")
            )
        return Invalid(NULL_ID, InvalidRequest("A message must be a JSON object."))
    except UnicodeEncodeError:
        return Invalid(NULL_ID, InvalidRequest(BAD_ID))
    except (ValueError, RecursionError):
        return Invalid(NULL_ID, ParseError("The line is not valid JSON."))
    return _classify(envelope)


def _decode(line: bytes | bytearray) -> _Envelope:
    line.decode()  # msgspec does not look inside of what it keeps raw
    try:
        return _decoder.decode(line)
    except msgspec.ValidationError:
        raise
    except msgspec.DecodeError:
        # JavaScript clients that cut a text inside of an emoji send half of it (`\ud83d`): JSON,
        # but not Unicode.
        message = json.loads(line)
        if isinstance(message, dict) and isinstance(message.get("id"), str):
            message["id"].encode()  # another id would answer another request
        return _decoder.decode(json.dumps(message, ensure_ascii=False).encode(errors="replace"))


def _classify(envelope: _Envelope) -> AnyMessage | None:
    if isinstance(envelope.method, msgspec.UnsetType):
        return _response(envelope)
    message_id = NULL_ID if isinstance(envelope.id, msgspec.UnsetType) else bytes(envelope.id)
    try:
        if len(message_id) > MAX_ID:
            raise msgspec.DecodeError
        _id_decoder.decode(message_id)
    except (msgspec.DecodeError, UnicodeError):
        return Invalid(NULL_ID, InvalidRequest(BAD_ID))
    if isinstance(envelope.jsonrpc, msgspec.UnsetType) or bytes(envelope.jsonrpc) != b'"2.0"':
        return Invalid(message_id, InvalidRequest('`jsonrpc` must be "2.0".'))
    try:
        method = msgspec.json.decode(envelope.method, type=str)
    except (msgspec.DecodeError, UnicodeError):
        return Invalid(message_id, InvalidRequest("`method` must be a string."))
    params = b"{}" if isinstance(envelope.params, msgspec.UnsetType) else bytes(envelope.params)
    if params == b"null":
        params = b"{}"
    if isinstance(envelope.id, msgspec.UnsetType):
        return Notification(method, params)
    return Request(message_id, method, params)


def _response(envelope: _Envelope) -> AnyMessage | None:
    has_id = not isinstance(envelope.id, msgspec.UnsetType)
    result = None if isinstance(envelope.result, msgspec.UnsetType) else bytes(envelope.result)
    error = None if isinstance(envelope.error, msgspec.UnsetType) else bytes(envelope.error)
    if result is None and error is None:
        return Invalid(
            NULL_ID,
            InvalidRequest("A message needs a `method`, or an `id` with a `result` or an `error`."),
        )
    if not has_id:
        return None
    assert not isinstance(envelope.id, msgspec.UnsetType)
    return Response(bytes(envelope.id), result if error is None else None, error)


T = TypeVar("T")


def decode_params(raw: bytes, kind: type[T], place: str = "") -> T:
    """Decode parameters as `kind`; raises InvalidParams with the field's name, without any value.

    `place`: path of `raw` within the parameters, if it is only a part of them.
    """
    try:
        return msgspec.json.decode(raw, type=kind)
    except msgspec.ValidationError as error:
        raise InvalidParams(explain(error, kind, place)) from None
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        raise InvalidParams("The parameters hold text that cannot be decoded.") from None


_PLACE: Final = " - at `$"
_MISSING = re.compile(r"Object missing required field `(\w+)`")


def explain(error: msgspec.ValidationError, kind: Any, place: str = "") -> str:
    """Reason and place from a msgspec message, without the values that it quotes. `kind`: as what the
    value was to be read, whose allowed words are listed.

    msgspec quotes types and field names in backticks, values in apostrophes.
    """
    what, path = str(error), ""
    at = what.rfind(_PLACE)  # the last one: a value that is quoted before it may hold anything
    if at >= 0 and what.endswith("`"):
        what, path = what[:at], what[at + len(_PLACE) : -1].removeprefix(".")
    where = ".".join(part for part in (place, path) if part)
    if missing := _MISSING.fullmatch(what):
        return (
            f"`{where}.{missing.group(1)}` is required."
            if where
            else f"`{missing.group(1)}` is required."
        )
    if "'" in what or not what.startswith("Expected"):
        words = allowed.words(kind, path)
        what = f"must be one of {', '.join(words)}" if words else "is not one of the allowed values"
        what = f"must be {words[0]}" if len(words) == 1 else what
    return f"`{where or 'params'}`: {what[0].lower()}{what[1:]}."


def encode_result(message_id: bytes, result: Any) -> bytes:
    """Encode a response as a line."""
    return (
        b'{"jsonrpc":"2.0","id":'
        + message_id
        + b',"result":'
        + msgspec.json.encode(result)
        + b"}\n"
    )


def encode_error(message_id: bytes, error: AcpError) -> bytes:
    """Encode an error response as a line."""
    return b'{"jsonrpc":"2.0","id":' + message_id + b',"error":' + error_object(error) + b"}\n"


def error_object(error: AcpError) -> bytes:
    """The `error` object of a response."""
    body: dict[str, Any] = {"code": error.code, "message": error.message}
    if error.data is not None:
        body["data"] = error.data
    return msgspec.json.encode(body)


def encode_request(message_id: str, method: str, params: Any) -> bytes:
    """Encode a request as a line."""
    head = (
        b'{"jsonrpc":"2.0","id":'
        + msgspec.json.encode(message_id)
        + b',"method":'
        + msgspec.json.encode(method)
    )
    return head + b',"params":' + msgspec.json.encode(params) + b"}\n"


def encode_notification(method: str, params: Any) -> bytes:
    """Encode a notification as a line."""
    head = b'{"jsonrpc":"2.0","method":' + msgspec.json.encode(method)
    return head + b',"params":' + msgspec.json.encode(params) + b"}\n"
