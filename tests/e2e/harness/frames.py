"""Whether a frame of the server is ACP, by the official JSON schema."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

from tests.schema import validation

MAX_LINE: Final = 8 * 1024 * 1024  # bytes
REQUESTS: Final = {"session/request_permission", "elicitation/create"}
OPENING: Final = {"session/new", "session/load", "session/resume"}


class BadFrame(AssertionError):
    """The server wrote something that is not ACP."""


def parse(line: bytes, most: int = MAX_LINE) -> dict[str, Any]:
    """The frame of a line; raises BadFrame for what no JSON-RPC client could read."""
    if len(line) > most:
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
    if (frame["method"] in REQUESTS) != ("id" in frame):
        raise BadFrame(f"a method that tests do not expect: {frame}")
    _check(validation.call_problem(frame["method"], frame["params"]), frame)


def validate_answer(frame: dict[str, Any], method: str | None) -> None:
    """A response; `method` is what it answers, None where that was no request that anybody could
    read.
    """
    if "error" in frame:
        _check(validation.error_problem(frame["error"]), frame)
    elif method is None:
        raise BadFrame(f"a result for nothing: {frame}")
    elif method == "session/set_model":  # gone from the schema, but clients still use it
        _check(None if frame["result"] == {} else "not empty", frame)
    else:
        result = frame["result"]
        if method in OPENING:  # as above
            result = {key: value for key, value in result.items() if key != "models"}
        _check(validation.result_problem(method, result), frame)


def validate_record(record: Path) -> int:
    """What `tee.py` has recorded of a server, as far as its lines are whole; returns how many frames
    the server wrote.
    """
    sent = [json.loads(line) for line in _lines(record.with_suffix(".in"))]
    methods = {json.dumps(one["id"]): one["method"] for one in sent if {"id", "method"} <= set(one)}
    written = [parse(line) for line in _lines(record)]
    for frame in written:
        if "method" in frame:
            validate_call(frame)
        else:
            validate_answer(frame, methods.get(json.dumps(frame["id"])))
    return len(written)


def _lines(record: Path) -> list[bytes]:
    return record.read_bytes().split(b"\n")[:-1]


def _check(problem: str | None, frame: dict[str, Any]) -> None:
    if problem is not None:
        raise BadFrame(f"{problem}\nin {json.dumps(frame)[:2000]}")
