"""What was exchanged over one connection, in order."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Line:
    """One line; `frame` is what it says, None where it is no JSON object."""

    by_agent: bool
    raw: bytes
    frame: dict[str, Any] | None


@dataclass(slots=True)
class Recording:
    """`capabilities` are those that the client has advertised last, `agent` is the agent's answer."""

    capabilities: dict[str, Any] = field(default_factory=dict)
    agent: dict[str, Any] = field(default_factory=dict)
    lines: list[Line] = field(default_factory=list)

    def add(self, raw: bytes, *, by_agent: bool) -> dict[str, Any] | None:
        """A line; gives its frame."""
        try:
            read = json.loads(raw)
        except ValueError:
            read = None
        frame: dict[str, Any] | None = read if isinstance(read, dict) else None
        self.lines.append(Line(by_agent, raw, frame))
        return frame

    def from_agent(self) -> Iterator[dict[str, Any]]:
        """The agent's frames."""
        return (one.frame for one in self.lines if one.by_agent and one.frame is not None)

    def calls(self, method: str | None = None) -> Iterator[dict[str, Any]]:
        """The agent's requests and notifications of this method, or all."""
        return (
            frame
            for frame in self.from_agent()
            if "method" in frame and method in (None, frame["method"])
        )

    def updates(self, *kinds: str) -> Iterator[tuple[str, dict[str, Any]]]:
        """Session and update of each `session/update`, of these kinds or all."""
        for frame in self.calls("session/update"):
            params: Any = frame.get("params")
            update = params.get("update") if isinstance(params, dict) else None
            if isinstance(update, dict) and (not kinds or update.get("sessionUpdate") in kinds):
                yield str(params.get("sessionId")), update

    def results(self, *methods: str) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
        """The client's request, and the result that the agent has given, for these methods."""
        for request, answer in self.answers():
            if request["method"] in methods and isinstance(answer.get("result"), dict):
                yield request, answer["result"]

    def later(self, since: int) -> Recording:
        """What came after so many lines."""
        return Recording(lines=self.lines[since:])

    def until_answered(self, method: str, since: int) -> Recording:
        """What came after so many lines, and before the answer to the first request of this
        method.
        """
        asked: str | None = None
        for number, line in enumerate(self.lines[since:], since):
            frame = line.frame or {}
            if not line.by_agent and asked is None and frame.get("method") == method:
                asked = json.dumps(frame.get("id"))
            elif line.by_agent and "method" not in frame and json.dumps(frame.get("id")) == asked:
                return Recording(lines=self.lines[since:number])
        return self.later(since)

    def answers(self) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
        """The client's request and the agent's answer, in the order of the answers."""
        asked: dict[str, dict[str, Any]] = {}
        for line in self.lines:
            frame = line.frame
            if frame is None or "id" not in frame:
                continue
            key = json.dumps(frame["id"])
            if line.by_agent and "method" not in frame and key in asked:
                yield asked.pop(key), frame
            elif not line.by_agent and isinstance(frame.get("method"), str):
                asked[key] = frame

    def has(self, capability: str) -> bool:
        """Whether the client has advertised it: `fs.readTextFile`, for instance."""
        return granted(self.capabilities, capability)


def granted(tree: Any, path: str) -> bool:
    """Whether a tree of capabilities has this one: a true value, or an object."""
    for part in path.split("."):
        if not isinstance(tree, dict):
            return False
        tree = tree.get(part)
    return tree is True or isinstance(tree, dict)
