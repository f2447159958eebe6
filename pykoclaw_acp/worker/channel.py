"""Frames over a unix socket, and who is at its other end."""

from __future__ import annotations

import asyncio
import os
import socket
import struct
from collections.abc import AsyncIterator
from typing import Final, TypeVar

import msgspec

from pykoclaw_acp.worker.frames import MAX_FRAME

T = TypeVar("T")
_UCRED: Final = struct.Struct("3i")
_READ: Final = 256 * 1024  # bytes


def peer_is_ours(connection: socket.socket) -> bool:
    """Whether the peer runs as this user (SO_PEERCRED, unix(7))."""
    raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size)
    return bool(_UCRED.unpack(raw)[1] == os.geteuid())


async def read_batches(reader: asyncio.StreamReader, decoder: msgspec.json.Decoder[T]) -> AsyncIterator[list[T]]:
    """Frames as they come, several at once when they came at once; raises ValueError for a broken or huge one."""
    parts: list[bytes] = []
    size = 0
    while data := await reader.read(_READ):
        head, newline, tail = data.rpartition(b"\n")
        if not newline:
            parts.append(data)
            size += len(data)
            if size > MAX_FRAME:
                raise ValueError("a frame is larger than the limit")
            continue
        parts.append(head)
        lines = b"".join(parts).split(b"\n")
        parts, size = [tail], len(tail)
        yield [decoder.decode(line) for line in lines]


async def read_frames(reader: asyncio.StreamReader, decoder: msgspec.json.Decoder[T]) -> AsyncIterator[T]:
    """The same, one by one."""
    async for batch in read_batches(reader, decoder):
        for frame in batch:
            yield frame
