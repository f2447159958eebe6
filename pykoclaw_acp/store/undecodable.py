"""Reading rows whose texts may be damaged, so that they are no UTF-8: one of them must not keep the
others of its query from being read.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from pykoclaw_acp.store.sqlite import sqlite3

T = TypeVar("T")


def emptied(text: bytes) -> str:
    """The text; empty if it is damaged."""
    try:
        return text.decode()
    except UnicodeDecodeError:
        return ""


def untouched(text: bytes) -> str | bytes:
    """The text; its bytes if it is damaged, which can be written back as they are."""
    try:
        return text.decode()
    except UnicodeDecodeError:
        return text


def tolerant(
    connection: sqlite3.Connection,
    read: Callable[[], T],
    damaged: Callable[[bytes], object] = untouched,
) -> T:
    """What `read` returns, which is called again if it meets a damaged text; that is then as
    `damaged` makes it.
    """
    try:
        return read()
    except sqlite3.OperationalError as error:
        if "decode" not in str(error):
            raise
    connection.text_factory = damaged
    try:
        return read()
    finally:
        connection.text_factory = str
