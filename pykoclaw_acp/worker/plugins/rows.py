"""Results of statements as plugins get them: cursors and rows like those of `sqlite3`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from pykoclaw_acp.channel.database import SqlResult, from_rows

Description = tuple[tuple[Any, ...], ...]
RowFactory = Callable[[Any, tuple[Any, ...]], Any]


class Row:
    """A row as `sqlite3.Row`: by index, by column name in any case, iterable; `dict(row)` works."""

    __slots__ = ("_names", "_values")

    def __init__(self, cursor: Any, values: tuple[Any, ...]) -> None:
        self._names = tuple(column[0] for column in cursor.description or ())
        self._values = values

    def keys(self) -> list[str]:
        """The names of the columns."""
        return list(self._names)

    def __getitem__(self, key: int | slice | str) -> Any:
        if not isinstance(key, str):
            return self._values[key]
        for name, value in zip(self._names, self._values, strict=True):
            if name == key or name.lower() == key.lower():
                return value
        raise IndexError("No item with that key")

    def __iter__(self) -> Iterator[Any]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Row):
            return NotImplemented
        return self._names == other._names and self._values == other._values

    def __hash__(self) -> int:
        return hash((self._names, self._values))

    def __repr__(self) -> str:
        return f"<Row {dict(zip(self._names, self._values, strict=True))!r}>"


class ResultCursor:
    """The result of a statement that has run."""

    arraysize = 1

    def __init__(self, result: SqlResult, row_factory: RowFactory | None) -> None:
        columns = result.columns
        self.rowcount = result.rowcount
        self.lastrowid = result.lastrowid
        self.description: Description | None = (
            None if columns is None else tuple((name, *(None,) * 6) for name in columns)
        )
        self._rows = iter(from_rows(result.rows))
        self._row_factory = row_factory

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        values = next(self._rows)
        return values if self._row_factory is None else self._row_factory(self, values)

    def fetchone(self) -> Any:
        """The next row; None at the end."""
        return next(self, None)

    def fetchmany(self, size: int | None = None) -> list[Any]:
        """The next rows."""
        size = self.arraysize if size is None else size
        return [row for _, row in zip(range(size), self, strict=False)]

    def fetchall(self) -> list[Any]:
        """All rows that are left."""
        return list(self)

    def close(self) -> None:
        """Drop the rows that are left."""
        self._rows = iter(())
