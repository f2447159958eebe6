"""Whether what an agent sends is ACP, by the official JSON schema.

A closed check also finds fields that the schema does not know: it allows them, as readers must, but
agents must not add any to the protocol's own objects (Extensibility: `_meta` is for that).
"""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any, Final

from jsonschema_rs import Draft202012Validator, ValidationError

_FOLDER: Final = Path(__file__).parent / "v1"
_IN_PLACE: Final = ("allOf", "anyOf", "oneOf")


class Schema:
    """One file of the schema."""

    def __init__(self, name: str) -> None:
        whole = json.loads((_FOLDER / name).read_text(encoding="utf-8"))
        self._open: dict[str, Any] = whole["$defs"]
        self._closed = {known: _closing(node, self._open) for known, node in self._open.items()}
        self._results: dict[str, str] = {}
        self._calls: dict[str, str] = {}
        for known, node in self._open.items():
            side, answers = node.get("x-side"), known.endswith("Response")
            if side == "agent" and answers:
                self._results[node["x-method"]] = known
            elif side in {"client", "protocol"} and not answers:
                self._calls[node["x-method"]] = known

    def result(self, method: str) -> str | None:
        """The definition of the agent's result of a method, if the schema has the method."""
        return self._results.get(method)

    def call(self, method: str) -> str | None:
        """The definition of the parameters of a method that agents call on clients."""
        return self._calls.get(method)

    @functools.cached_property
    def updates(self) -> frozenset[str]:
        """The kinds of `session/update`."""
        variants = self._open["SessionUpdate"]["oneOf"]
        return frozenset(one["properties"]["sessionUpdate"]["const"] for one in variants)

    def problem(self, definition: str, value: Any, *, closed: bool = False) -> str | None:
        """What is wrong with a value, for people; None if nothing is."""
        errors = list(self._validator(definition, closed).iter_errors(value))
        return _words(definition, errors) if errors else None

    @functools.cache  # noqa: B019 - there are two schemas, which live as long as the tests
    def _validator(self, definition: str, closed: bool) -> Draft202012Validator:
        entry: dict[str, Any] = {"$ref": f"#/$defs/{definition}"}
        if closed:
            entry = _sealed(entry, self._open)
        return Draft202012Validator({"$defs": self._closed if closed else self._open, **entry})


@functools.cache
def stable() -> Schema:
    """What every client may expect."""
    return Schema("schema.json")


@functools.cache
def unstable() -> Schema:
    """The stable part, and what is unstable."""
    return Schema("schema.unstable.json")


def call_problem(method: str, params: Any) -> str | None:
    """What is wrong with a request or notification of the agent. Methods that begin with `_` are
    its own.
    """
    if method.startswith("_"):
        return None
    definition = unstable().call(method)
    if definition is None:
        return f"clients have no method {method!r}"
    kind = params["update"].get("sessionUpdate") if _is_update(method, params) else None
    settled = stable().call(method) == definition and (
        kind is None or kind in stable().updates or kind not in unstable().updates
    )
    return (stable().problem(definition, params) if settled else None) or unstable().problem(
        definition, params, closed=True
    )


def result_problem(method: str, result: Any) -> str | None:
    """What is wrong with the agent's result of a method."""
    if method.startswith("_"):
        return None
    definition = unstable().result(method)
    if definition is None:
        return f"a result of {method!r}, which ACP does not have"
    settled = stable().result(method) == definition
    return (stable().problem(definition, result) if settled else None) or unstable().problem(
        definition, result, closed=True
    )


def error_problem(error: Any) -> str | None:
    """What is wrong with the error of a response."""
    return unstable().problem("Error", error, closed=True)


def _is_update(method: str, params: Any) -> bool:
    return (
        method == "session/update"
        and isinstance(params, dict)
        and isinstance(params.get("update"), dict)
    )


def _words(definition: str, errors: list[ValidationError]) -> str:
    # Around an unknown field every other one counts as unknown as well: the innermost is meant.
    faults = [one for one in errors if one.kind.name != "unevaluatedProperties"]
    error = (
        min(faults, key=lambda one: len(one.instance_path))
        if faults
        else max(errors, key=lambda one: len(one.instance_path))
    )
    place = "".join(f"[{one!r}]" for one in error.instance_path)
    return f"{definition}{place}: {error.message[:500]}"


def _closing(node: dict[str, Any], known: dict[str, Any]) -> dict[str, Any]:
    """A schema that allows no unknown fields in the values inside of those that it describes."""
    made = dict(node)
    for key in _IN_PLACE:
        if key in node:
            made[key] = [_closing(one, known) for one in node[key]]
    for key in ("items", "additionalProperties"):
        if isinstance(node.get(key), dict):
            made[key] = _sealed(_closing(node[key], known), known)
    if "properties" in node:
        made["properties"] = {
            name: _sealed(_closing(one, known), known) for name, one in node["properties"].items()
        }
    return made


def _sealed(node: dict[str, Any], known: dict[str, Any]) -> dict[str, Any]:
    """A schema that allows no unknown fields in the value itself, if it names any."""
    if not _names_fields(node, known):
        return node
    return {"allOf": [node], "unevaluatedProperties": False}


def _names_fields(node: dict[str, Any], known: dict[str, Any]) -> bool:
    if "$ref" in node:
        return _names_fields(known[node["$ref"].removeprefix("#/$defs/")], known)
    return "properties" in node or any(
        _names_fields(one, known) for key in _IN_PLACE for one in node.get(key, [])
    )
