"""Watching of transcripts: inotify, or a look a second where the machine has no watch left, or the
disk may not answer.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Final

import structlog

from pykoclaw_acp.system import disks
from pykoclaw_acp.system import transcript_files as files

SETTLE: Final = 0.5  # s from a change to the call: the CLI writes in batches
LOOK_EVERY: Final = 1.0  # s, without inotify
_IN_MODIFY: Final = 0x2
_IN_ATTRIB: Final = 0x4
_IN_DELETE_SELF: Final = 0x400
_IN_MOVE_SELF: Final = 0x800
FOLDER_CHANGES: Final = 0x8 | 0x40 | 0x80 | 0x100 | 0x200 | _IN_DELETE_SELF | _IN_MOVE_SELF
"""In a folder: a file was written and closed, or came, or went."""
_CHANGES: Final = _IN_MODIFY | _IN_ATTRIB | _IN_DELETE_SELF | _IN_MOVE_SELF
_IGNORED: Final = 0x8000  # the kernel has dropped the watch
_GONE: Final = _IN_ATTRIB | _IN_DELETE_SELF | _IN_MOVE_SELF | _IGNORED
"""After these the path may be another file's: one that is open gets no more than the first of them
when another one takes its place."""
_HEADER: Final = 16  # bytes of an event without its name (inotify(7))

log: Final = structlog.get_logger()


class Watcher:
    """Sessions that somebody watches, and the files of each. Nothing runs while there are none.

    A change of one session costs what it has, however many others there are.
    """

    def __init__(self) -> None:
        # By session, watched or not: its transcripts as they were when they were read.
        self._files: dict[str, dict[str, files.FileStamp]] = {}
        self._callbacks: dict[str, list[Callable[[], None]]] = {}
        self._sessions: dict[str, set[str]] = {}  # the watched ones of each file
        self._notices = KernelWatches(self._changed, _CHANGES)
        self._looks: dict[str, files.FileStamp | None] = {}  # of files that are looked at
        self._looking: asyncio.TimerHandle | None = None
        self._polls: dict[str, asyncio.Task[None]] = {}  # of files whose disks may not answer
        self._due: dict[str, asyncio.TimerHandle] = {}

    def set_transcripts(self, session_id: str, read: Mapping[str, files.FileStamp]) -> None:
        """Make these the session's transcripts, by path as they were when they were read.
        What has changed since one was read, and before its watch began, is a change, too.
        """
        before, now = self._files.get(session_id, {}), dict(read)
        if now:
            self._files[session_id] = now
        else:
            self._files.pop(session_id, None)
        if session_id in self._callbacks:
            self._leave(session_id, before.keys() - now.keys())
            self._join(session_id, now.keys() - before.keys())

    def watch(self, session_id: str, changed: Callable[[], None]) -> Callable[[], None]:
        """Call `changed` whenever one of the session's files changes; returns what ends that."""
        self._callbacks.setdefault(session_id, []).append(changed)
        self._join(session_id, self._files.get(session_id, ()))

        def end() -> None:
            callbacks = self._callbacks.get(session_id, [])
            if changed in callbacks:
                callbacks.remove(changed)
            if not callbacks:
                self._forget(session_id)

        return end

    def close(self) -> None:
        """End all watching."""
        for session_id in list(self._callbacks):
            self._forget(session_id)

    def _forget(self, session_id: str) -> None:
        self._callbacks.pop(session_id, None)
        if (due := self._due.pop(session_id, None)) is not None:
            due.cancel()
        self._leave(session_id, self._files.get(session_id, ()))

    def _join(self, session_id: str, paths: Collection[str]) -> None:
        for path in paths:
            sessions = self._sessions.setdefault(path, set())
            if not sessions:
                self._begin(path)
            sessions.add(session_id)
            # On a disk that may not answer nobody knows what is there before somebody looks.
            if path in self._polls or files.look(path) != self._files[session_id][path]:
                self._call_soon(session_id)

    def _leave(self, session_id: str, paths: Collection[str]) -> None:
        for path in paths:
            sessions = self._sessions.get(path, set())
            sessions.discard(session_id)
            if not sessions:
                self._sessions.pop(path, None)
                self._looks.pop(path, None)
                if (poll := self._polls.pop(path, None)) is not None:
                    poll.cancel()
                self._notices.remove(path)
        if not self._looks and self._looking is not None:
            self._looking.cancel()
            self._looking = None

    def _begin(self, path: str) -> None:
        if not disks.is_local(path):  # whatever is asked of it may hang
            self._polls[path] = asyncio.create_task(self._poll(path), name="look at a transcript")
            return
        if self._notices.add(path):
            return
        self._looks[path] = files.look(path)
        if self._looking is None:
            self._look_later()

    async def _poll(self, path: str) -> None:
        looks: list[files.FileStamp | None] = []
        while True:
            with contextlib.suppress(TimeoutError):
                looks.append(await disks.call(path, partial(files.look, path)))
            if len(looks) > 1 and looks.pop(0) != looks[0]:
                self._changed(path)
            await asyncio.sleep(LOOK_EVERY)

    def _look_later(self) -> None:
        self._looking = asyncio.get_running_loop().call_later(LOOK_EVERY, self._look)

    def _look(self) -> None:
        self._looking = None
        for path, before in list(self._looks.items()):
            now = files.look(path)
            if now is not None and self._notices.add(path):
                del self._looks[path]
            else:
                self._looks[path] = now
            if now != before:
                self._changed(path)
        if self._looks:
            self._look_later()

    def _changed(self, path: str) -> None:
        for session in self._sessions.get(path, ()):
            self._call_soon(session)
        seen = path in self._looks or path in self._polls or path in self._notices
        if path in self._sessions and not seen:
            self._begin(path)  # its file is gone, or another one has its place

    def _call_soon(self, session: str) -> None:
        if session not in self._due:
            loop = asyncio.get_running_loop()
            self._due[session] = loop.call_later(SETTLE, self._call, session)

    def _call(self, session: str) -> None:
        self._due.pop(session, None)
        for changed in list(self._callbacks.get(session, ())):
            changed()


class KernelWatches:
    """Watches of the kernel's (inotify); open only while there are any."""

    def __init__(self, changed: Callable[[str], None], changes: int) -> None:
        """`changed` is called with a path that has changed in one of the ways `changes`."""
        self._changed = changed
        self._changes = changes
        self._descriptor: int | None = None
        self._watches: dict[str, int] = {}  # by path
        self._paths: dict[int, str] = {}  # by watch

    def __contains__(self, path: str) -> bool:
        return path in self._watches

    def arrange(self, wanted: Collection[str]) -> set[str]:
        """Watch these paths; returns those that cannot be watched."""
        for path in set(self._watches) - set(wanted):
            self.remove(path)
        return {path for path in wanted if not self.add(path)}

    def add(self, path: str) -> bool:
        """Watch this path; False if it cannot be watched."""
        if path in self._watches:
            return True
        watched = self._add(path)
        self._close_unused()
        return watched

    def remove(self, path: str) -> None:
        """No longer watch this path."""
        if (watch := self._watches.pop(path, None)) is not None:
            self._paths.pop(watch, None)
            self._libc.inotify_rm_watch(self._descriptor, watch)
            self._close_unused()

    def _close_unused(self) -> None:
        if not self._watches and self._descriptor is not None:
            asyncio.get_running_loop().remove_reader(self._descriptor)
            os.close(self._descriptor)
            self._descriptor = None

    @property
    def _libc(self) -> ctypes.CDLL:
        return ctypes.CDLL(None, use_errno=True)

    def _add(self, path: str) -> bool:
        """Have the kernel watch this path; False if it does not."""
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
        self._paths[watch] = path
        return True

    def _read(self) -> None:
        assert self._descriptor is not None
        try:
            data = os.read(self._descriptor, 64 * 1024)
        except BlockingIOError:
            return
        changed: set[str] = set()
        at = 0
        while at + _HEADER <= len(data):
            watch = int.from_bytes(data[at : at + 4], "little", signed=True)
            mask = int.from_bytes(data[at + 4 : at + 8], "little")
            name = int.from_bytes(data[at + 12 : at + 16], "little")
            at += _HEADER + name
            if watch < 0:  # the queue ran over
                changed.update(self._watches)
                self.arrange(())
            elif (path := self._paths.get(watch)) is not None:
                changed.add(path)
                if mask & _GONE:
                    self.remove(path)
        for path in changed:
            self._changed(path)
