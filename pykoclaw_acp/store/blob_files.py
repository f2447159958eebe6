"""The files of blobs: `blobs/<sha256>` beside the database, 0600 in a 0700 directory.

A file is durable under its name before the row that refers to it is committed, and is removed before
the last such row is: whoever dies in between leaves a file that nobody uses, never a reference
without a file. The process that holds the data directory is the only one that writes here.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import secrets
from collections import Counter
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping
from contextlib import AbstractAsyncContextManager
from functools import partial
from pathlib import Path
from typing import Final

import structlog

from pykoclaw_acp.errors import StoreUnavailable
from pykoclaw_acp.model.condition import DatabaseState
from pykoclaw_acp.system import trusted_path

DIRECTORY: Final = "blobs"
UNFINISHED: Final = ".part"  # suffix of a file that is being written
NAME_LENGTH: Final = 64  # of a file: SHA-256 in hex
OURS: Final = f".{secrets.token_hex(4)}-"  # in the names of files that this process writes

log: Final = structlog.get_logger()


class BlobFiles:
    """The blobs of one data directory."""

    def __init__(self, data: Path) -> None:
        self._directory = data / DIRECTORY
        self._kept: Counter[str] = Counter()  # whose rows are being committed
        self._changing = asyncio.Lock()  # files are not removed while one is about to be used

    def kept(self, blobs: Mapping[str, bytes]) -> AbstractAsyncContextManager[None]:
        """Files of the blobs, by hash, durable on entry; inside of the block rows that refer to
        them are committed.

        Raises StoreUnavailable if they cannot be written.
        """
        return self._keep(blobs) if blobs else contextlib.nullcontext()

    @contextlib.asynccontextmanager
    async def _keep(self, blobs: Mapping[str, bytes]) -> AsyncIterator[None]:
        async with self._changing:
            self._kept.update(blobs.keys())
        try:
            try:
                await asyncio.to_thread(_write_all, self._directory, blobs)
            except OSError as error:
                log.warning("A blob could not be written", action="blob_failed", error=str(error))
                raise StoreUnavailable(
                    DatabaseState.BLOCKED,
                    f"Images and files cannot be written to {self._directory}: {error.strerror or error}.",
                ) from error
            yield
        finally:
            self._kept.subtract(blobs.keys())
            self._kept += Counter()  # drops those at zero

    async def read(self, sha256: str, size: int) -> bytes | None:
        """The blob's bytes; None if its file is missing or damaged."""
        try:
            return await asyncio.to_thread(_read, self._directory / sha256, sha256, size)
        except (OSError, ValueError) as error:
            log.warning(
                "A blob cannot be read", action="blob_missing", blob=sha256, error=str(error)
            )
            return None

    @contextlib.asynccontextmanager
    async def removing(self) -> AsyncIterator[Callable[[Iterable[str]], None]]:
        """Inside of the block no file gets a new user; what it gets removes files, but those whose
        first row is being committed.
        """
        async with self._changing:
            kept = set(self._kept)
            yield partial(_remove, self._directory, kept)

    async def all(self) -> list[str]:
        """Names of all blobs; files that an earlier process has left unfinished are removed."""
        return await asyncio.to_thread(_all, self._directory)


def _write_all(directory: Path, blobs: Mapping[str, bytes]) -> None:
    if not directory.is_dir():
        trusted_path.make(str(directory))
        _sync_directory(directory.parent)
    if directory.stat().st_mode & 0o077:
        directory.chmod(0o700)
    for sha256, data in blobs.items():
        path = directory / sha256
        try:
            _read(path, sha256, len(data))
        except (OSError, ValueError):
            _write(path, data)
    _sync_directory(directory)


def _write(path: Path, data: bytes) -> None:
    unfinished = path.with_name(f"{path.name}{OURS}{secrets.token_hex(4)}{UNFINISHED}")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        with open(os.open(unfinished, flags, 0o600), "wb", buffering=0) as file:
            written = 0
            with memoryview(data) as view:
                while written < len(view):
                    written += file.write(view[written:])
            os.fsync(file.fileno())
        unfinished.replace(path)
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise


def _read(path: Path, sha256: str, size: int) -> bytes:
    """Raises OSError and ValueError."""
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    with open(os.open(path, flags), "rb", buffering=0) as file:
        if os.fstat(file.fileno()).st_size != size:
            raise ValueError("the file has another size")
        data = file.read(size) if size else b""
    if hashlib.sha256(data or b"").hexdigest() != sha256:
        raise ValueError("the file has another content")
    return data or b""


def _remove(directory: Path, kept: Collection[str], names: Iterable[str]) -> None:
    """What cannot be removed stays, and is tried again as an orphan later: a session is deleted all
    the same.
    """
    for name in names:
        if name in kept:
            continue
        try:
            (directory / name).unlink(missing_ok=True)
        except OSError as error:
            log.warning("A blob cannot be removed", action="blob_kept", blob=name, error=str(error))


def _all(directory: Path) -> list[str]:
    found: list[str] = []
    with contextlib.suppress(FileNotFoundError), os.scandir(directory) as entries:
        for entry in entries:
            if len(entry.name) == NAME_LENGTH:
                found.append(entry.name)
            elif entry.name.endswith(UNFINISHED) and OURS not in entry.name:
                with contextlib.suppress(OSError):
                    Path(entry).unlink(missing_ok=True)
    return found


def _sync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
