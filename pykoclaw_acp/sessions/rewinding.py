"""Rewinding a session to the beginning of an earlier turn: its files, and what Claude remembers.

The log keeps everything, with a note. Files are put back by the CLI, from the copies that it made
before it changed them; Claude forgets when it is prompted next, by a Claude session that branches
off there. Which files it is about is stored first, then they are put back, then the rest is stored: if
the server dies in between, the same can be done again, and the log says what was done.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import os
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final

import structlog
from msgspec.structs import replace

from pykoclaw_acp import crash_points
from pykoclaw_acp.channel.options import UNREAD
from pykoclaw_acp.errors import InvalidRequest, WorkerFailed
from pykoclaw_acp.model.branches import RewindPoint, Rewound, files_now
from pykoclaw_acp.model.contexts import entry_uuid
from pykoclaw_acp.model.events import Event, UserMessage, note_event
from pykoclaw_acp.model.session_environment import ClientEnvironment
from pykoclaw_acp.sessions.ports import Workers
from pykoclaw_acp.sessions.ports.branches import BranchStore
from pykoclaw_acp.sessions.session import Session
from pykoclaw_acp.sessions.turns import titles
from pykoclaw_acp.system import disks
from pykoclaw_acp.tasks import Tasks

NO_COPY: Final = "No file checkpoint found"  # the CLI's words
_REFUSED: Final = (
    "The files cannot be put back: {} Nothing was changed. To rewind only what Claude remembers, use"
    " `rewind --no-files`, or `files: false` in the request."
)
NO_COPIES: Final = _REFUSED.format("the CLI made no copies of them before this prompt.")
_MOVED: Final = (
    "Claude changed some before this session's directory was moved, and the CLI puts them back only"
    " where they were then."
)
_LEFT: Final = (
    "Not all files could be put back. These were not: {}. The others are as they were before the prompt."
    " Claude's memory was not rewound. Make these files writable (a directory, a link or a protection may be in"
    " the way) and send the request again, or rewind only what Claude remembers, with `rewind --no-files` or"
    " `files: false`. Copies that the CLI made before the project was moved or forked cannot be put back."
)
MOST_NAMES: Final = 5  # that an error tells
MOST_BEFORE: Final = (
    20  # events of a turn among which its prompt is looked for: notes may precede it
)
BUSY: Final = (
    "A turn of this session runs. Wait until it has ended, or stop it: in your editor, or with"
    " `pykoclaw-acp workers stop {}`."
)

log: Final = structlog.get_logger()


class Rewinding:
    """Rewinds sessions."""

    def __init__(self, store: BranchStore, workers: Workers) -> None:
        self._store = store
        self._workers = workers
        self._tasks = Tasks()

    async def rewind(
        self,
        session: Session,
        message_id: str | None,
        *,
        files: bool,
        dry: bool,
        request_key: str | None = None,
        given: ClientEnvironment | None = None,
    ) -> Rewound:
        """Rewind to what was before the prompt of a message; without one, before the newest prompt that
        Claude knows. `dry`: only say what would change. `given`: by who asks, for a worker. A request that is sent
        again under its key is done once, and one that is given up is done whole or not at all.

        Raises InvalidRequest while a turn runs, or if files were wanted and cannot be put back; and
        StoreUnavailable, before anything is changed: from then on it waits for a database that cannot be
        written, and only one that cannot even be read ends it. Also as `BranchStore.rewind_point`.
        """
        begun = asyncio.Event()
        rewinding = self._rewind(
            session, message_id, begun, files=files, dry=dry, request_key=request_key, given=given
        )
        return await self._tasks.finish(rewinding, begun)

    async def _rewind(
        self,
        session: Session,
        message_id: str | None,
        begun: asyncio.Event,
        *,
        files: bool,
        dry: bool,
        request_key: str | None,
        given: ClientEnvironment | None,
    ) -> Rewound:
        """Rewind, and set `begun` before anything is changed."""
        async with session.intake.lock:  # no prompt is accepted meanwhile
            done = None if request_key is None else await self._store.rewound(request_key)
            if done is not None:
                return done
            if not dry:
                self._store.require_writable()
            _require_idle(session)
            await session.idle()
            # A turn that an answer begins waits.
            async with session.between_turns(), session.next_worker.postponed():
                await session.others.look_if_possible()
                point = await self._store.rewind_point(session.record, message_id)
                changed = _NOTHING
                if files:
                    changed = await self._files(session, point, given, dry=True)
                    if point.moved and _any_below(session, changed.get("filesChanged") or []):
                        changed = {"canRewind": False, "error": _MOVED}
                rewound = _rewound(point, changed)
                if dry:
                    return rewound
                if rewound.files_error is not None:
                    raise InvalidRequest(_REFUSED.format(rewound.files_error))
                before = await self._store.begun_rewind(session.id)
                if before is not None and before.turn_id != point.turn_id:
                    before = None
                left = _NO_FILE if files else _LEFT_ALONE if before is None else _PART_BACK
                _require_idle(session)
                self._store.require_writable()  # it may have failed meanwhile
                begun.set()
                if files:
                    rewound = await self._restore(session, point, rewound, before, given)
                await self._forget(session, point, rewound, request_key, left)
        return rewound

    async def _restore(
        self,
        session: Session,
        point: RewindPoint,
        rewound: Rewound,
        before: Rewound | None,
        given: ClientEnvironment | None,
    ) -> Rewound:
        """Put files back. Those that a rewind to this place has begun with `before` the daemon died, or
        not all could be put back, are its files as well.
        """
        differing = rewound.files
        if before is not None:
            more = [one for one in before.files if one not in differing]
            rewound = dataclasses.replace(before, turns=rewound.turns, files=[*differing, *more])
        if differing:
            await self._store.begin_rewind(session.id, rewound)
            await self._put_back(session, point, given)
        if not rewound.files:
            return rewound
        deleted: list[str] = []
        with contextlib.suppress(TimeoutError):  # then none is known to be gone
            deleted = await disks.call(rewound.files[0], partial(_gone, rewound.files))
        return dataclasses.replace(rewound, deleted=deleted)

    async def _put_back(
        self, session: Session, point: RewindPoint, given: ClientEnvironment | None
    ) -> None:
        done = await self._files(session, point, given, dry=False)
        if not done.get("canRewind"):
            raise InvalidRequest(
                f"The files could not be put back: {done.get('error')} Some of them may have been put back"
                " already. Claude's memory was not rewound. Send the request again."
            )
        # The CLI calls it a success though it could not write some, or found no file in their place.
        left = (await self._files(session, point, given, dry=True)).get("filesChanged") or []
        if left:
            raise InvalidRequest(_LEFT.format(_names([str(one) for one in left])))
        crash_points.reached("files_put_back")

    async def _forget(
        self,
        session: Session,
        point: RewindPoint,
        rewound: Rewound,
        request_key: str | None,
        left: str,
    ) -> None:
        async with session.between_turns():  # Claude may have begun one by itself
            await self._workers.stop(session.id)
        context = session.others.context
        note = await context.note_at(point.upto, point.memory, f"rewound-{point.turn_id}")
        following = await session.log.read_after(point.upto, MOST_BEFORE)
        words = _words([one.event for one in following])
        said = _note(point, rewound, words, left, summary=note is not None)
        said += await context.without_tasks()
        stay = await self._store.parked(session.id, point.turn_id)
        seqs = await self._store.rewind(
            session.id, point, said, rewound, note=note, request_key=request_key
        )
        crash_points.reached("session_rewound")
        session.log.committed(seqs, None, said)
        session.record.branch = point.branch
        self._workers.set_resume(session.id, session.record.claude_session_id, point.branch)
        session.permissions.withdraw_parked(stay)
        log.info("Session rewound", action="session_rewound", session=session.id, turns=point.turns)

    async def _files(
        self, session: Session, point: RewindPoint, given: ClientEnvironment | None, *, dry: bool
    ) -> dict[str, Any]:
        """The CLI's answer; a worker that is launched for it acts on nothing in the directory. Before a
        prompt that Claude does not know it made no copies: those before the next one are as good.
        """
        prompts = (*point.commands, point.after)
        if prompts == (None,):
            return _NOTHING
        live = self._workers.workspace(session.id)
        options = session.environment.options(given)
        if live is None:
            options = replace(options, workspace=UNREAD, mcp_servers=())
        else:
            options = replace(options, workspace=live)
        try:
            epoch = await self._workers.acquire(session.id, options)
            for turn_id in prompts:
                answer = turn_id and await self._ask(session, turn_id, epoch, dry=dry)
                if answer:
                    return answer
            if point.after is None:
                return _NOTHING
            raise InvalidRequest(NO_COPIES)
        except WorkerFailed as failure:
            return {"canRewind": False, "error": failure.message}
        finally:
            self._workers.release(session.id)

    async def _ask(
        self, session: Session, turn_id: str, epoch: int, *, dry: bool
    ) -> dict[str, Any] | None:
        """The CLI's answer; None: it made no copies before this turn."""
        try:
            answer = await session.requests.rewind_files(entry_uuid(turn_id), epoch, dry=dry)
        except InvalidRequest as error:
            if NO_COPY in error.message:
                return None
            raise
        return None if NO_COPY in str(answer.get("error")) else answer


def _gone(paths: Sequence[str]) -> list[str]:
    """Return the files that are not there; one that cannot be looked at counts as there."""
    gone = []
    for path in paths:
        try:
            os.lstat(path)
        except FileNotFoundError:
            if os.path.isabs(path):
                gone.append(path)
        except OSError:
            continue
    return gone


def _names(paths: Sequence[str]) -> str:
    more = len(paths) - MOST_NAMES
    return ", ".join(paths[:MOST_NAMES]) + (f" and {more} more" if more > 0 else "")


_NOTHING: Final[dict[str, Any]] = {"canRewind": True}


_NO_FILE: Final = "No file was changed."
_LEFT_ALONE: Final = "Files were left as they are."
_PART_BACK: Final = "An earlier try may have put some files back; this one changed none."
_SUMMARY: Final = "It gets a summary of what came before."
_STAYS: Final = "Mode, model and lasting permission rules stay."


def _require_idle(session: Session) -> None:
    if session.background or not all(turn.ended.done() for turn in session.turns):
        raise InvalidRequest(BUSY.format(session.id[:8]))


def _any_below(session: Session, paths: Sequence[str]) -> bool:
    """Whether any of these is below the session's directory."""
    record = session.record
    below = tuple(f"{one.rstrip('/')}/" for one in (record.cwd, record.real_cwd) if one)
    return any(str(one).startswith(below) for one in paths)


def _rewound(point: RewindPoint, changed: Mapping[str, Any]) -> Rewound:
    """What a rewind changes, of whose files the CLI has said this."""
    return Rewound(
        point.turn_id,
        point.turns,
        [str(one) for one in changed.get("filesChanged") or []],
        changed.get("insertions"),
        changed.get("deletions"),
        None if changed.get("canRewind") else str(changed.get("error")),
    )


def _words(following: Sequence[Event | None]) -> str:
    """How the first prompt of these events begins."""
    for event in following:
        if isinstance(event, UserMessage):
            content = [event.content]
            return titles.title(content) or titles.of_content(content) or "…"
    return "…"


def _note(
    point: RewindPoint, rewound: Rewound, words: str, left: str, *, summary: bool
) -> list[Event]:
    """What the log says of it; `left`: where it has no files. What was rewound before may stand above,
    too: turns are not counted.
    """
    files = files_now(len(rewound.files), rewound.deleted or []) if rewound.files else left
    lacks = f" {_SUMMARY}" if summary else ""
    gone = f"Claude no longer remembers the conversation from “{words}” on, which stays above."
    text = f"(Rewound: {gone}{lacks} {files} {_STAYS})"
    return [note_event(f"rewound-{point.turn_id}", text)]
