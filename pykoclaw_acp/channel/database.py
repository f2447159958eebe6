"""What a worker asks of the database for its tools and plugins: statements go to the daemon, rows
come back.

Neither frame is numbered, kept or repeated: a statement whose answer is lost may have run.
"""

from __future__ import annotations

import base64
import math
from typing import Any, Final

import msgspec

MAX_CALL: Final = 4 * 1024 * 1024  # bytes of one call's frame
ANSWER_BYTES: Final = 8 * 1024 * 1024  # of the values that one call may return
_BLOB: Final = "b64"
_FLOAT: Final = "float"

Parameters = list[Any] | dict[str, Any]


class SqlStatement(msgspec.Struct, frozen=True, omit_defaults=True):
    """One statement. `many`: `parameters` is a list of parameters, and it runs once for each."""

    sql: str
    parameters: Parameters = []
    many: bool = False


class SqlResult(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a statement did; `columns` is None if it returns no rows. `rows` are JSON: lists of
    cells.
    """

    rowcount: int = -1
    lastrowid: int | None = None
    columns: list[str] | None = None
    rows: msgspec.Raw = msgspec.Raw(b"[]")


class SqlError(msgspec.Struct, frozen=True):
    """Why nothing of a call was kept; `kind` is the name of an exception of DB-API 2.0 (PEP 249)."""

    kind: str
    message: str


class DatabaseCall(
    msgspec.Struct, frozen=True, kw_only=True, tag_field="frame", tag="database", omit_defaults=True
):
    """Run these statements in one transaction, or a single one that reads without; or a `script`,
    each of whose statements is a transaction of its own.

    `once`: the script needs to run only once under each daemon.
    """

    epoch: int
    call: int
    statements: list[SqlStatement] = []
    script: str = ""
    once: bool = False


class DatabaseAnswer(
    msgspec.Struct, frozen=True, kw_only=True, tag_field="frame", tag="rows", omit_defaults=True
):
    """Answers a DatabaseCall: a result for each statement, or an error."""

    epoch: int
    call: int
    results: list[SqlResult] = []
    error: SqlError | None = None


def to_cell(value: Any) -> Any:
    """A value of SQLite as JSON, which has neither blobs nor infinities."""
    if isinstance(value, bytes):
        return {_BLOB: base64.b64encode(value).decode()}
    if isinstance(value, float) and not math.isfinite(value):
        return {_FLOAT: repr(value)}
    return value


def from_cell(cell: Any) -> Any:
    """The value of a cell; raises ValueError for what is none."""
    if not isinstance(cell, dict):
        return cell
    match cell:
        case {"b64": str(data)}:
            return base64.b64decode(data, validate=True)
        case {"float": str(number)}:
            return float(number)
    raise ValueError("not a value of SQLite")


def to_parameters(parameters: Parameters) -> Parameters:
    """Parameters of one run, as cells."""
    return _each(parameters, to_cell)


def from_parameters(parameters: Parameters) -> Parameters:
    """Parameters of one run, from their cells; raises ValueError."""
    return _each(parameters, from_cell)


def to_rows(rows: list[tuple[Any, ...]]) -> msgspec.Raw:
    """Rows for a result."""
    return msgspec.Raw(msgspec.json.encode([[to_cell(one) for one in row] for row in rows]))


def from_rows(rows: msgspec.Raw) -> list[tuple[Any, ...]]:
    """Rows of a result."""
    decoded = msgspec.json.decode(rows, type=list[list[Any]])
    return [tuple(from_cell(one) for one in row) for row in decoded]


def _each(parameters: Parameters, convert: Any) -> Parameters:
    if isinstance(parameters, dict):
        return {name: convert(one) for name, one in parameters.items()}
    return [convert(one) for one in parameters]
