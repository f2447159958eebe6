"""Loads pykoclaw's plugins (entry points `pykoclaw.plugins`) for one session: their migrations, then
their MCP servers.

A plugin that fails costs a line that names it, and nothing else.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
import time
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any, Final

import structlog

from pykoclaw_acp.worker import deferred_mcp
from pykoclaw_acp.worker.database_calls import DatabaseCalls
from pykoclaw_acp.worker.plugins.handle import Handle
from pykoclaw_acp.worker.plugins.output import PluginOutput
from pykoclaw_acp.worker.plugins.probing import LIMIT, TOO_SLOW, Probes
from pykoclaw_acp.worker.plugins.threads import PluginFailed, PluginThread, ThreadedServer

GROUP: Final = "pykoclaw.plugins"
_OURS: Final = "pykoclaw_acp."  # how the value of our own entry point begins

log: Final = structlog.get_logger()
_Servers = dict[str, dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Complaint:
    """What is wrong with a plugin: `Plugin <name> <what>.` `serious`: something of it is missing."""

    plugin: str
    what: str
    serious: bool = True


class Plugins:
    """The plugins of a session, loaded once for its worker: `servers` are those that the Claude
    Agent SDK takes, in the order of the entry points, `complaints` grow while the worker lives.
    """

    def __init__(self, conversation: str, calls: DatabaseCalls, memory: Path | None = None) -> None:
        """`memory`: as in Probes."""
        self.servers: list[_Servers] = []
        self.complaints: list[Complaint] = []
        self._conversation = conversation
        self._calls = calls
        self._output: PluginOutput | None = None
        self._probes = Probes(memory)

    async def load(self) -> None:
        """Load all of them, at the same time."""
        if not (there := self._find()):
            return
        _choose_engine()
        try:
            deferred_mcp.complete()  # plugins import of it what they like
        except Exception as error:  # noqa: BLE001  what is installed is not ours
            self._complain("*", f"cannot use the package mcp ({error!r})"[:300])
        found: list[EntryPoint] = []
        for one, why in zip(there, await self._probes.failures(there), strict=True):
            if why is None:
                found.append(one)
            else:
                self._complain(one.name, why)
        self._output = PluginOutput.install()
        began = time.monotonic()
        self.servers = await asyncio.gather(*(self._load(one) for one in found))
        log.info(
            "Plugins loaded",
            action="plugins_loaded",
            plugins=[one.name for one in found],
            seconds=round(time.monotonic() - began, 3),
        )

    def _find(self) -> Sequence[EntryPoint]:
        """The entry points of the installed plugins; none, with a complaint, if they cannot be read."""
        try:
            return installed()
        except Exception as error:  # noqa: BLE001  what is installed is not ours
            self._complain("*", f"could not be looked for ({error!r})"[:300])
            return []

    async def _load(self, entry: EntryPoint) -> _Servers:
        complain = self._on_loop(self._complain, entry.name)
        thread = PluginThread(entry.name, complain)
        assert self._output is not None
        self._output.watch(thread.thread, self._on_loop(self._printed, entry.name))
        handle = Handle(self._calls, asyncio.get_running_loop())
        try:
            given = await thread.call(
                partial(_servers, entry, handle, self._conversation, complain), LIMIT
            )
        except TimeoutError:
            handle.close()  # what it does later changes nothing
            self._complain(entry.name, TOO_SLOW)
            return {}
        except PluginFailed as error:
            handle.close()
            self._complain(entry.name, f"could not be loaded ({error})")
            return {}
        return {
            name: {**one, "instance": ThreadedServer(one["instance"], thread)}
            if one.get("type") == "sdk"
            else one
            for name, one in given.items()
        }

    def _on_loop(self, function: Callable[..., None], *first: str) -> Callable[..., None]:
        """Let a plugin's thread call a method here."""
        loop = asyncio.get_running_loop()

        def call(*more: str) -> None:
            with contextlib.suppress(RuntimeError):  # the worker ends
                loop.call_soon_threadsafe(partial(function, *first, *more))

        return call

    def _printed(self, plugin: str) -> None:
        self._complain(plugin, "prints to standard output, which is dropped", serious=False)

    def _complain(self, plugin: str, what: str, *, serious: bool = True) -> None:
        complaint = Complaint(plugin, what, serious)
        if complaint not in self.complaints:
            self.complaints.append(complaint)
            log.warning(f"A plugin {what}", action="plugin_failed", plugin=plugin)


def installed() -> Sequence[EntryPoint]:
    """All plugins but our own. Their distributions are read once, here or in the fork server, until a
    directory of `sys.path` changes, as it does when something is installed. May raise anything.
    """
    return _installed(tuple(map(_state, sys.path)))


@lru_cache(maxsize=1)
def _installed(_: Hashable) -> Sequence[EntryPoint]:
    return [one for one in entry_points(group=GROUP) if not one.value.startswith(_OURS)]


def _state(path: str) -> tuple[str, int, int]:
    try:
        seen = os.stat(path or ".")
    except OSError:
        return path, 0, 0
    return path, seen.st_ino, seen.st_mtime_ns


def _servers(
    entry: EntryPoint, handle: Handle, conversation: str, complain: Callable[[str], None]
) -> _Servers:
    """Load a plugin; called in its thread, and may raise anything."""
    plugin = entry.load()()
    migrations = plugin.get_db_migrations() if hasattr(plugin, "get_db_migrations") else []
    for script in migrations:
        try:
            handle.migrate(script)
        except Exception as error:  # noqa: BLE001  as in pykoclaw, the next one is tried
            complain(f"has a migration that failed ({error})"[:300])
    given = (
        plugin.get_mcp_servers(handle, conversation) if hasattr(plugin, "get_mcp_servers") else {}
    )
    servers: _Servers = {}
    for name, one in dict(given).items():
        if isinstance(name, str) and name and _is_server(one):
            servers[name] = one
        else:
            complain(f"gives an MCP server that is none ({name!r})"[:300])
    return servers


def _is_server(given: object) -> bool:
    """Whether Claude can be given it: an SDK's server with its instance, or one that JSON can name."""
    if not isinstance(given, dict):
        return False
    if given.get("type") == "sdk":
        return given.get("instance") is not None
    try:
        json.dumps(given)
    except (TypeError, ValueError, RecursionError):
        return False
    return bool(given)


def _choose_engine() -> None:
    """Let a plugin that opens the database itself do so with the daemon's SQLite."""
    from pykoclaw_acp.store import engine

    try:
        engine.install()
    except RuntimeError as error:
        log.warning("Plugins use another SQLite", action="plugin_engine", reason=str(error))
