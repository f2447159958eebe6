"""The index of Claude's transcripts: brought up to date when a list is asked for, and kept so while
lists are, by a process of low priority.

Folders are watched, so that what did not change costs nothing; where the machine has no watch left,
their files are looked at again when the last look is old.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import time
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Any, Final

import structlog

from pykoclaw_acp.errors import InternalError, StoreClosed, StoreUnavailable
from pykoclaw_acp.model.found_transcripts import FoundTranscript, Removed
from pykoclaw_acp.system import disks
from pykoclaw_acp.transcripts import watching, wire
from pykoclaw_acp.transcripts.ports import FoundStore
from pykoclaw_acp.transcripts.process import ReaderDied, ReaderProcesses
from pykoclaw_acp.transcripts.roots import Roots

LONGEST_WAIT: Final = 1.0  # s from the begin of a look, in which lists wait for it
SHORT_WAIT: Final = 0.3  # s in which a list waits for what has changed lately
SETTLE: Final = 1.0  # s from a change to a look, and at least between two for which lists wait
REST: Final = 20.0  # times as long as a look took, until the next one
LEAST_REST: Final = 3.0  # s
LONGEST_REST: Final = 30.0  # s
LOOK_EVERY: Final = 10.0  # s between looks, without watches
UNASKED: Final = 600.0  # s without a list, after which nothing is watched any more

log: Final = structlog.get_logger()


class TranscriptFinder:
    """Implements `sessions.ports.FoundTranscripts` for the transcripts below `roots`."""

    def __init__(
        self,
        store: FoundStore,
        readers: ReaderProcesses,
        title: Callable[[list[dict[str, Any]]], str | None],
        ignored: Sequence[str] = (),
        roots: Roots | None = None,
        *,
        helpers: tuple[str, ...] = (),
    ) -> None:
        """`readers`: for a transcript that somebody waits for. `title`: makes one of a prompt.
        `ignored`: directories whose transcripts are no sessions of their own.
        `helpers`: as in `wire.Compare`.
        """
        self.surveyors = ReaderProcesses()
        self._store = store
        self._readers = readers
        self._title = title
        self._helpers = helpers
        self._ignored = tuple(f"{one.rstrip('/')}/" for one in ignored)
        self._roots = Roots() if roots is None else roots
        self._folders = watching.KernelWatches(self._changed, watching.FOLDER_CHANGES)
        self._watched = False
        self._surveyed = float("-inf")  # when the last survey was complete
        self._wait_until = float("-inf")  # lists wait for the look that one of them has begun
        self._asked = float("-inf")
        self._rested = 0.0  # when the next look may begin by itself
        self._looked = float("-inf")  # when the last look had ended
        self._dirty: set[str] = set()
        self._unread: set[str] = set()  # folders, of which not everything could be read
        self._above: set[str] = set()  # what is watched above folders; a change asks for a survey
        self._survey_due = False
        self._due: asyncio.TimerHandle | None = None
        self._looking: asyncio.Task[None] | None = None
        self._closed = False

    async def refresh(self) -> None:
        """A list is asked for. Waits for a look only if there was none lately or something has changed
        since, and not for long.
        """
        now = self._asked = time.monotonic()
        if self._watched and now >= self._looked + LOOK_EVERY:
            for folder in self._unread:
                self._changed(folder)
        current = self._watched or now - self._surveyed < LOOK_EVERY
        if current or self._closed:
            if self._due is not None and now >= self._looked + SETTLE:
                self._due.cancel()
                await asyncio.wait([self._begin()], timeout=SHORT_WAIT)
            return
        if self._looking is None or self._looking.done():
            self._survey_due = True
            self._begin()
            self._wait_until = now + LONGEST_WAIT
        if self._looking is not None and now < self._wait_until:
            await asyncio.wait([self._looking], timeout=self._wait_until - now)

    async def find(self, claude_session_id: str) -> FoundTranscript | None:
        """The transcript of this session as it is now; None if there is none, or it is of no session
        of its own. Raises InternalError if that cannot be seen.
        """
        path = await self._roots.call(partial(self._roots.find, claude_session_id))
        if path is None:
            return None
        try:
            try:
                return await self._examine(path)
            except ReaderDied:  # it may have been killed since it was asked last
                return await self._examine(path)
        except (ReaderDied, OSError) as error:
            log.warning("A transcript could not be examined", action="unexamined", error=str(error))
            raise InternalError(
                f"The transcript of the session cannot be read now ({error}). Nothing was changed: try again, and see"
                " `pykoclaw-acp logs` if it goes on."
            ) from error

    async def _examine(self, path: str) -> FoundTranscript | None:
        async for answer in self._readers.ask(wire.Examine(path, self._helpers)):
            if isinstance(answer, wire.UnreadableTranscript):
                raise OSError(answer.error)
            if isinstance(answer, wire.FolderChanges) and answer.transcripts:
                found = self._found(answer.transcripts[0])
                return found if found.is_session else None
        return None

    async def remove(self, claude_session_ids: Collection[str]) -> Removed:
        """Delete the transcripts of these sessions, and what Claude keeps beside them, as far as that
        is possible.
        """
        some, left = False, dict[str, list[str]]()
        try:
            for one in claude_session_ids:
                removed, remains = await self._remove(one)
                some |= removed
                left |= {one: remains} if remains else {}
        except InternalError as error:
            log.warning("Transcripts cannot be deleted", action="undeleted", error=str(error))
            left |= {one: [self._roots.own] for one in claude_session_ids}
        paths = tuple(dict.fromkeys(path for remains in left.values() for path in remains))
        if paths:
            log.warning(
                "What is left of transcripts is tried again", action="undeleted", paths=paths
            )
        return Removed(some, paths, frozenset(left))

    async def _remove(self, claude_session_id: str) -> tuple[bool, list[str]]:
        """Whether any was deleted, and what is left: if none was found, where that cannot be seen."""
        some, find = False, partial(self._roots.find, claude_session_id)
        while (path := await self._roots.call(find)) is not None:
            if undeleted := await self._roots.call(partial(_remove, path)):
                return some, undeleted  # it would be found again
            some = True
        unsearchable = partial(self._roots.unsearchable, claude_session_id)
        return some, [] if some else await self._roots.call(unsearchable)

    def close(self) -> None:
        """End the process and the watching."""
        self._closed = True
        self._folders.arrange(())
        if self._due is not None:
            self._due.cancel()
        if self._looking is not None:
            self._looking.cancel()
        self.surveyors.close()

    # --- when

    def _changed(self, folder: str) -> None:
        if folder in self._above:
            self._survey_due = True
        else:
            self._dirty.add(folder)
        if self._due is None and not self._closed:
            pause = max(SETTLE, self._rested - time.monotonic())
            self._due = asyncio.get_running_loop().call_later(pause, self._begin)

    def _begin(self) -> asyncio.Task[None]:
        self._due = None
        if self._looking is None or self._looking.done():
            self._looking = asyncio.create_task(self._look(), name="look at transcripts")
        return self._looking

    async def _look(self) -> None:
        if time.monotonic() - self._asked > UNASKED:
            self._watched = False
            self._folders.arrange(())
            return
        began = time.monotonic()
        while self._dirty or self._survey_due:
            dirty, survey = self._dirty.copy(), self._survey_due
            self._dirty.clear()
            self._survey_due = False
            try:
                if survey:
                    await self._survey()
                else:
                    for folder in dirty:
                        await self._compare(folder)
            except (ReaderDied, OSError, StoreUnavailable, StoreClosed) as error:
                self._watched = False  # the next list looks again
                self._look_later(error)
                return
            if not self._watched:
                return
            if not self._survey_due:
                break
        self._looked = time.monotonic()
        took = self._looked - began
        self._rested = self._looked + min(max(LEAST_REST, REST * took), LONGEST_REST)
        if self._dirty:
            self._changed(next(iter(self._dirty)))

    # --- what

    async def _survey(self) -> None:
        """Look at all folders."""
        known = await self._store.transcript_folders()
        roots = await disks.call(self._roots.own, self._roots.every)
        self._above = await disks.call(self._roots.own, self._roots.to_watch)
        for directory in {os.path.dirname(one) for one in (*known, *self._above)} | {
            *roots.values()
        }:
            await disks.locate(directory)
        every, changed, unread = set[str](), list[str](), False
        self._watch(known)
        for root in roots.values():
            below = {one: digest for one, digest in known.items() if os.path.dirname(one) == root}
            async for answer in self.surveyors.ask(wire.Survey(root, below)):
                if isinstance(answer, wire.UnreadableTranscript):
                    self._look_later(answer.error)
                    unread = True
                    every.update(below)
                    continue
                if not isinstance(answer, wire.Folders):
                    raise ReaderDied
                every.update(answer.every)
                changed += answer.changed
        self._watch(every)
        self._watched = self._watched and not unread
        for folder in known.keys() - every:  # also those of an account that is gone
            await self._store.forget_folder(folder)
            self._survey_due = True  # another folder may have copies of what was in it
        for folder in changed:
            await self._compare(folder)
        self._surveyed = time.monotonic()

    def _watch(self, folders: Collection[str]) -> None:
        wanted = {*self._above, *folders}
        local = {one for one in wanted if disks.is_local(one)}
        self._watched = not self._folders.arrange(local) and local == wanted

    async def _compare(self, folder: str) -> None:
        """Take in what is new in a folder."""
        known, unread = await self._store.known_in_folder(folder), ""
        asking = self.surveyors.ask(wire.Compare(folder, known, self._helpers))
        async with contextlib.aclosing(asking) as answers:
            async for answer in answers:
                if isinstance(answer, wire.UnreadableTranscript):
                    unread = answer.error
                    break
                if not isinstance(answer, wire.FolderChanges):
                    raise ReaderDied
                unread = answer.unread
                found = [self._found(one) for one in answer.transcripts]
                digest = answer.digest if answer.done else None
                await self._store.keep_found(folder, found, answer.gone, digest)
                self._survey_due = self._survey_due or bool(answer.gone)  # as with a folder
        if not unread:
            self._unread.discard(folder)
        elif folder not in self._unread:
            self._unread.add(folder)
            self._look_later(unread)

    def _look_later(self, error: object) -> None:
        log.info("Transcripts are looked at later", action="look_later", error=str(error))

    def _found(self, one: wire.Examined) -> FoundTranscript:
        title = self._title([{"type": "text", "text": text} for text in [one.title or ""]])
        words = self._title([{"type": "text", "text": text} for text in one.words])
        cwd = one.cwd if one.cwd is not None and os.path.isabs(one.cwd) else None
        foreign = cwd is not None and not f"{cwd}/".startswith(self._ignored)
        return FoundTranscript(
            one.path,
            one.claude_session_id,
            one.size,
            one.mtime,
            cwd,
            title or words,
            min(one.updated_at, time.time_ns() // 1_000_000),
            one.prompted and foreign,
            self._roots.account(one.path),
            one.mode,
        )


def _remove(path: str) -> list[str]:
    """Delete a transcript; returns what is left of it. By the file itself the rest is found again."""
    beside = path.removesuffix(".jsonl")
    shutil.rmtree(beside, ignore_errors=True)
    with contextlib.suppress(OSError):
        os.unlink(beside)  # it is no directory, or a link to one
    with contextlib.suppress(OSError):
        if not os.path.lexists(beside):
            os.unlink(path)
    return [one for one in (path, beside) if os.path.lexists(one)]
