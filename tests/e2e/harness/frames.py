"""Whether a frame of the server is ACP, by the schema models of the official Python SDK."""

from __future__ import annotations

import json
from typing import Any, Final

from acp import schema
from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic.alias_generators import to_camel

MAX_LINE: Final = 8 * 1024 * 1024  # bytes


class _Gone(BaseModel):
    """What is gone from the schema, or never was in it, and Mitto reads all the same."""

    model_config = ConfigDict(alias_generator=to_camel, extra="forbid")


class Empty(_Gone):
    """The answer to `session/set_model`."""


class ModelInfo(_Gone):
    model_id: str
    name: str
    description: str | None = None


class ModelState(_Gone):
    current_model_id: str
    available_models: list[ModelInfo]


class NewSessionResponse(schema.NewSessionResponse):
    models: ModelState


class LoadSessionResponse(schema.LoadSessionResponse):
    models: ModelState


class ResumeSessionResponse(schema.ResumeSessionResponse):
    models: ModelState


RESULTS: Final[dict[str, type[BaseModel]]] = {
    "initialize": schema.InitializeResponse,
    "session/new": NewSessionResponse,
    "session/load": LoadSessionResponse,
    "session/resume": ResumeSessionResponse,
    "session/set_mode": schema.SetSessionModeResponse,
    "session/set_model": Empty,
    "session/set_config_option": schema.SetSessionConfigOptionResponse,
    "session/close": schema.CloseSessionResponse,
    "session/prompt": schema.PromptResponse,
}
REQUESTS: Final[dict[str, type[BaseModel]]] = {
    "session/request_permission": schema.RequestPermissionRequest,
    "elicitation/create": schema.CreateFormSessionElicitationRequest,
}
NOTIFICATIONS: Final[dict[str, type[BaseModel]]] = {
    "session/update": schema.SessionNotification,
    "$/cancel_request": schema.CancelRequestNotification,
}


class BadFrame(AssertionError):
    """The server wrote something that is not ACP."""


def parse(line: bytes) -> dict[str, Any]:
    """The frame of a line; raises BadFrame for what no JSON-RPC client could read."""
    if len(line) > MAX_LINE:
        raise BadFrame(f"a line of {len(line)} bytes")
    try:
        frame = json.loads(line)
    except ValueError as error:
        raise BadFrame(f"not JSON: {line[:300]!r}") from error
    if not isinstance(frame, dict) or frame.get("jsonrpc") != "2.0":
        raise BadFrame(f"not JSON-RPC 2.0: {line[:300]!r}")
    keys = set(frame) - {"jsonrpc", "id"}
    if keys not in ({"method", "params"}, {"result"}, {"error"}) or (
        "method" not in frame and "id" not in frame
    ):
        raise BadFrame(f"no request, notification or response: {line[:300]!r}")
    return frame


def validate_call(frame: dict[str, Any]) -> None:
    """A request or a notification of the server."""
    known = REQUESTS if "id" in frame else NOTIFICATIONS
    if frame["method"] not in known:
        raise BadFrame(f"a method that clients do not have: {frame}")
    _check(known[frame["method"]], frame["params"], frame)


def validate_answer(frame: dict[str, Any], method: str | None) -> None:
    """A response; `method` is what it answers, None where that was no request that anybody could
    read.
    """
    if "error" in frame:
        _check(schema.Error, frame["error"], frame)
    elif method not in RESULTS:
        raise BadFrame(f"a result for {method!r}: {frame}")
    else:
        _check(RESULTS[method], frame["result"], frame)


def _check(model: type[BaseModel], value: Any, frame: dict[str, Any]) -> None:
    try:
        parsed = model.model_validate_json(json.dumps(value), strict=True)
    except ValidationError as error:
        raise BadFrame(f"{error}\nin {json.dumps(frame)[:2000]}") from error
    # The models forgive: what they do not know or cannot read is dropped, and so is missing
    # afterwards.
    kept = parsed.model_dump(mode="json", by_alias=True, exclude_unset=True)
    if kept != value:
        raise BadFrame(
            f"the schema understands only {json.dumps(kept)[:2000]}\nof {json.dumps(frame)[:2000]}"
        )
