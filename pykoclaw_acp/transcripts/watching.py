"""Watching of transcripts: inotify, or a look a second where the machine has no watch left."""

from __future__ import annotations

import asyncio
import ctypes
import os
from collections.abc import Callable, Collection
from typing import Final

import structlog

from pykoclaw_acp.transcripts import files

SETTLE: Final = 0.5  # s from a change to the call: the CLI writes in batches
LOOK_EVERY: Final = 1.0  # s, without inotify
_IN_MODIFY: Final = 0x2
_IN_ATTRIB: Final = 0x4
_IN_DELETE_SELF: Final = 0x400
_IN_MOVE_SELF: Final = 0x800
FOLDER_CHANGES: Final = 0x8 | 0x40 | 0x80 | 0x100 | 0x200 | _IN_DELETE_SELF | _IN_MOVE_SELF
"""In a folder: a file was written and closed, or came, or went."""
_CHANGES: Final = _IN_MODIFY | _IN_ATTRIB | _IN_DELETE_SELF | _IN_MOVE_SELF
_HEADER: Final = 16  # bytes of an event without its name (inotify(7))

log: Final = structlog.get_logger()


class Watcher:
    """Sessions that somebody watches, and the files of each. Nothing runs while there are none."""

    def __init__(self) -> None:
        self._files: dict[str, frozenset[str]] = {}  # by session
        self._callbacks: dict[str, list[Callable[[], None]]] = {}
        self._notices = Notices(self._changed, _CHANGES)
        self._looks: dict[str, files.Look | None] = {}  # of files that are looked at
        self._looking: asyncio.TimerHandle | None = None
        self._due: dict[str, asyncio.TimerHandle] = {}

    def follow(self, session_id: str, paths: Collection[str]) -> None:
        """From now on these are the session's transcripts."""
        if self._files.get(session_id) != frozenset(paths):
            self._files[session_id] = frozenset(paths)
            self._arrange()

    def watch(self, session_id: str, changed: Callable[[], None]) -> Callable[[], None]:
        """Call `changed` whenever one of the session's files changes; returns what ends that."""
        self._callbacks.setdefault(session_id, []).append(changed)
        self._arrange()

        def end() -> None:
            callbacks = self._callbacks.get(session_id, [])
            if changed in callbacks:
                callbacks.remove(changed)
            if not callbacks:
                self._callbacks.pop(session_id, None)
                if (due := self._due.pop(session_id, None)) is not None:
                    due.cancel()
            self._arrange()

        return end

    def close(self) -> None:
        """End all watching."""
        self._callbacks.clear()
        for due in self._due.values():
            due.cancel()
        self._due.clear()
        self._arrange()

    def _arrange(self) -> None:
        """Watch the files of watched sessions, and no others."""
        wanted = {path for session in self._callbacks for path in self._files.get(session, ())}
        missed = self._notices.arrange(wanted)
        self._looks = {path: self._looks.get(path) or files.look(path) for path in missed}
        if self._looks and self._looking is None:
            self._look_later()
        elif not self._looks and self._looking is not None:
            self._looking.cancel()
            self._looking = None

    def _look_later(self) -> None:
        self._looking = asyncio.get_running_loop().call_later(LOOK_EVERY, self._look)

    def _look(self) -> None:
        for path, before in self._looks.items():
            self._looks[path] = files.look(path)
            if self._looks[path] != before:
                self._changed(path)
        self._look_later()

    def _changed(self, path: str) -> None:
        for session in self._callbacks:
            if path in self._files.get(session, ()) and session not in self._due:
                loop = asyncio.get_running_loop()
                self._due[session] = loop.call_later(SETTLE, self._call, session)

    def _call(self, session: str) -> None:
        self._due.pop(session, None)
        for changed in list(self._callbacks.get(session, ())):
            changed()


class Notices:
    """Watches of the kernel's (inotify); open only while there are any."""

    def __init__(self, changed: Callable[[str], None], changes: int) -> None:
        """`changed` is called with a path that has changed in one of the ways `changes`."""
        self._changed = changed
        self._changes = changes
        self._descriptor: int | None = None
        self._watches: dict[str, int] = {}  # by path

    def arrange(self, wanted: Collection[str]) -> set[str]:
        """Watch these paths; returns those that cannot be watched."""
        for path in set(self._watches) - set(wanted):
            self._libc.inotify_rm_watch(self._descriptor, self._watches.pop(path))
        missed = {path for path in wanted if path not in self._watches and not self._add(path)}
        if not self._watches and self._descriptor is not None:
            asyncio.get_running_loop().remove_reader(self._descriptor)
            os.close(self._descriptor)
            self._descriptor = None
        return missed

    @property
    def _libc(self) -> ctypes.CDLL:
        return ctypes.CDLL(None, use_errno=True)

    def _add(self, path: str) -> bool:
        if self._descriptor is None:
            opened = self._libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
            if opened < 0:
                return False
            self._descriptor = opened
            asyncio.get_running_loop().add_reader(opened, self._read)
        watch = self._libc.inotify_add_watch(self._descriptor, os.fsencode(path), self._changes)
        if watch < 0:
            log.debug("A file cannot be watched", action="watch_failed", errno=ctypes.get_errno())
            return False
        self._watches[path] = watch
        return True

    def _read(self) -> None:
        assert self._descriptor is not None
        try:
            data = os.read(self._descriptor, 64 * 1024)
        except BlockingIOError:
            return
        paths = {watch: path for path, watch in self._watches.items()}
        changed: set[str] = set()
        at = 0
        while at + _HEADER <= len(data):
            watch = int.from_bytes(data[at : at + 4], "little", signed=True)
            name = int.from_bytes(data[at + 12 : at + 16], "little")
            at += _HEADER + name
            if watch in paths:
                changed.add(paths[watch])
            elif watch < 0:  # the queue ran over
                changed.update(paths.values())
        for path in changed:
            if not os.path.exists(path):
                self._watches.pop(path, None)  # the kernel has dropped it
            self._changed(path)
