"""Tries plugins in child processes before the worker loads them: one that ends its process, or never
gives Python's lock back, would take the session along.

A child imports and instantiates one plugin. The files that this has imported are remembered; as long
as none of them has changed, the plugin is not tried again.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import sys
from collections.abc import Sequence
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Final, NoReturn

import msgspec
import structlog

from pykoclaw_acp.system.processes import die_with_parent

LIMIT: Final = 5.0  # s; for the import of a plugin, also when it is loaded
TOO_SLOW: Final = f"did not load within {LIMIT:g} s"
_READ: Final = 64 * 1024  # bytes

log: Final = structlog.get_logger()
Stat = tuple[int, int]  # size, mtime in ns
_memory: Final = msgspec.json.Decoder(dict[str, dict[str, Stat]])
_answer: Final = msgspec.json.Decoder(list[str] | None)


class Probes:
    """What is known of plugins, in a file that all workers of an instance share; None: in none."""

    def __init__(self, memory: Path | None) -> None:
        self._memory = memory

    async def failures(self, plugins: Sequence[EntryPoint]) -> list[str | None]:
        """Why each of them must not be loaded; None if it may."""
        known = self._read()
        new = [one for one in plugins if not _unchanged(known.get(_key(one)))]
        if not new:
            return [None] * len(plugins)
        tried = dict(zip(map(_key, new), await asyncio.gather(*map(_try, new)), strict=True))
        found = {key: files for key, files in tried.items() if isinstance(files, dict)}
        self._write(known | found)
        whys = (tried.get(_key(one)) for one in plugins)
        return [why if isinstance(why, str) else None for why in whys]

    def _read(self) -> dict[str, dict[str, Stat]]:
        try:
            return {} if self._memory is None else _memory.decode(self._memory.read_bytes())
        except (OSError, msgspec.MsgspecError, UnicodeError):
            return {}

    def _write(self, known: dict[str, dict[str, Stat]]) -> None:
        if self._memory is None:
            return
        made = self._memory.with_name(f"{self._memory.name}.{os.getpid()}")
        try:
            made.write_bytes(msgspec.json.encode(known))
            made.replace(self._memory)
        except OSError as error:  # they are tried again
            log.warning("Plugins are not remembered", action="plugins_forgotten", error=str(error))
            with contextlib.suppress(OSError):
                made.unlink()


def _key(plugin: EntryPoint) -> str:
    return f"{plugin.name} = {plugin.value}"


def _unchanged(files: dict[str, Stat] | None) -> bool:
    return bool(files) and _stats(list(files or ())) == files


def _stats(paths: Sequence[str]) -> dict[str, Stat]:
    found: dict[str, Stat] = {}
    for path in paths:
        with contextlib.suppress(OSError, ValueError):
            status = os.stat(path)
            found[path] = (status.st_size, status.st_mtime_ns)
    return found


async def _try(plugin: EntryPoint) -> dict[str, Stat] | str | None:
    """What was imported; or why the plugin must not be; None if it raises, which costs nobody."""
    ours, theirs = socket.socketpair()
    worker = os.getpid()
    try:
        child = os.fork()
    except OSError as error:
        ours.close()
        theirs.close()
        log.warning("A plugin could not be tried", action="plugin_untried", error=str(error))
        return None
    if child == 0:
        _import(plugin, theirs.fileno(), worker)
    theirs.close()
    ours.setblocking(False)
    said, late = b"", False
    try:
        async with asyncio.timeout(LIMIT):
            while not said.endswith(b"\n"):
                part = await asyncio.get_running_loop().sock_recv(ours, _READ)
                if not part:
                    break
                said += part
    except TimeoutError:
        late = True
    except ConnectionError:
        pass  # as at the end
    finally:
        ours.close()
        status = _end(child)
    if late:
        return TOO_SLOW
    if not said.endswith(b"\n"):
        how = f"status {status}" if status >= 0 else f"signal {-status}"
        return f"ends its process when it is loaded ({how})"
    files = _answer.decode(said)
    return None if files is None else _stats(files)


def _end(child: int) -> int:
    """End a child, which may have ended; returns its status, or its signal as a negative number."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(child, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def _import(plugin: EntryPoint, answer: int, worker: int) -> NoReturn:
    """In the child, which has nothing else of the worker's: no socket, no event loop."""
    try:
        die_with_parent(True)
        if os.getppid() != worker:
            os._exit(1)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_DFL)
        nothing = os.open(os.devnull, os.O_RDWR)
        for standard in (0, 1):
            os.dup2(nothing, standard)
        os.dup2(answer, 3, inheritable=False)
        os.closerange(4, min(65536, os.sysconf("SC_OPEN_MAX")))
        before = set(sys.modules)
        files: list[str] | None = None
        with contextlib.suppress(BaseException):
            plugin.load()()
            new = [sys.modules.get(name) for name in set(sys.modules) - before]
            paths = [getattr(one, "__file__", None) for one in new]
            files = [path for path in paths if isinstance(path, str)]
        said = memoryview(msgspec.json.encode(files) + b"\n")
        while said:
            said = said[os.write(3, said) :]
    finally:
        os._exit(0)
