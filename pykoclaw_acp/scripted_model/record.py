"""Record of the requests that reached the model, in memory and as JSON lines in a file."""

from __future__ import annotations

import json
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final, Literal

from .answer import ScriptedAnswer
from .steps import HttpError

AnswerEnd = Literal["served", "error", "cut", "client_gone"]


SYSTEM: Final = 4000  # characters that are kept of the system prompt's end


class RequestRecord:
    """Requests in order of arrival.

    In the file, each request is a line at its arrival and a second line `{n, outcome, deltas}` at
    its end, so that arrivals are known even if everything is killed in between.
    """

    def __init__(self, file: Path | None = None) -> None:
        self._file = file.open("a", encoding="utf-8") if file is not None else None
        self._requests: list[dict[str, Any]] = []
        self._count = 0

    def arrived(
        self, path: str, body: dict[str, Any], answer: ScriptedAnswer, headers: dict[str, str]
    ) -> dict[str, Any]:
        """Add a request; returns the entry for `ended`."""
        self._count += 1
        conversation = answer.conversation
        error = next((step.status for step in answer.steps if isinstance(step, HttpError)), None)
        entry: dict[str, Any] = {
            "n": self._count,
            "at": time.time_ns() // 1_000_000,
            "path": path,
            "kind": answer.kind,
            "model": body.get("model"),
            "effort": _dict(body.get("output_config")).get("effort"),
            "speed": body.get("speed"),
            "tools": [_dict(tool).get("name") for tool in _list(body.get("tools"))],
            "system": _text(body.get("system"))[-SYSTEM:],
            "stream": bool(body.get("stream")),
            "session": headers.get("x-claude-code-session-id"),
            "agent": headers.get("x-claude-code-agent-id"),
            "credential": headers.get("x-api-key") or headers.get("authorization"),
            "user_texts": [prompt.text for prompt in conversation.prompts],
            "messages": [asdict(message) for message in conversation.messages],
            "script": answer.script_hash,
            "status": error or 200,
            "outcome": None,
            "deltas": 0,
        }
        self._requests.append(entry)
        self._write(entry)
        return entry

    def ended(self, entry: dict[str, Any], outcome: AnswerEnd, deltas: int) -> None:
        """Add the outcome of a request."""
        entry |= {"outcome": outcome, "deltas": deltas}
        self._write({"n": entry["n"], "outcome": outcome, "deltas": deltas})

    def requests(self, kind: str | None = None) -> list[dict[str, Any]]:
        """The requests of that kind, or all."""
        return [entry for entry in self._requests if kind in (None, entry["kind"])]

    def clear(self) -> None:
        """Forget all requests; numbering continues, and the file is kept."""
        self._requests.clear()

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()

    def _write(self, line: dict[str, Any]) -> None:
        if self._file is not None:
            self._file.write(json.dumps(line, ensure_ascii=False) + "\n")
            self._file.flush()


def _dict(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _text(system: object) -> str:
    """A system prompt, which is a text or a list of blocks, as one text."""
    if isinstance(system, str):
        return system
    return "\n".join(str(_dict(block).get("text", "")) for block in _list(system))
