"""The directories of a session as they are when it is prompted: what is gone is said, and Claude
starts anew in what has come back.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
from collections.abc import Collection, Iterable
from functools import partial
from typing import Final
from uuid import uuid4

import structlog

from pykoclaw_acp.error_kinds import ErrorKind
from pykoclaw_acp.errors import InvalidParams, WorkerFailed
from pykoclaw_acp.model.events import note_event
from pykoclaw_acp.model.session_environment import DaemonEnvironment
from pykoclaw_acp.model.turns import SessionRecord
from pykoclaw_acp.neutral import neutral
from pykoclaw_acp.sessions.ports import Workers
from pykoclaw_acp.sessions.state import SessionState
from pykoclaw_acp.sessions.user_settings import BrokenSettings
from pykoclaw_acp.system import disks
from pykoclaw_acp.system.paths import upwards
from pykoclaw_acp.trust.content import Stamp
from pykoclaw_acp.trust.layout import config_home
from pykoclaw_acp.trust.looking import Looking, same

RESOLVING: Final = 0.2  # s; for what only lists need, of a session readable without its disk
_Inode = tuple[int, int]  # device and inode
_MEMORY: Final = ("CLAUDE.md", "CLAUDE.local.md", ".claude/CLAUDE.md")
_ABSENT: Final = frozenset({errno.ENOENT, errno.ENOTDIR})
_GONE: Final = "there is no such directory"
_DANGLING: Final = "a symbolic link in its path leads nowhere"

log: Final = structlog.get_logger()


class Directories:
    """Directories of one session: its own, those of its client, and those of the user's
    settings.
    """

    def __init__(
        self, state: SessionState, workers: Workers, daemon_environment: DaemonEnvironment
    ) -> None:
        self._state = state
        self._workers = workers
        self._daemon_environment = daemon_environment
        self._settings = BrokenSettings(state, daemon_environment)
        self._seen: dict[str, _Inode | None] = {}  # at the last prompt; None: gone
        self._read: dict[str, Stamp | None] = {}  # when a worker was started before its prompt

    async def before_prompt(self) -> None:
        """Look at them, and replace a worker that was started in other directories of these names.
        Raises WorkerFailed if the session's own one is gone.
        """
        options = self._state.options
        added = [one for one in options.additional_directories if one != options.cwd]
        seen = await self._look()
        if options.cwd and seen[options.cwd][0] is None:
            self._seen[options.cwd] = None
            raise WorkerFailed(
                ErrorKind.CWD_MISSING, cwd_missing(options.cwd, seen[options.cwd][1])
            )
        outdated = self._read and not await _is_as_read(options.cwd, self._read)
        self._state.unsaid.extend(await self._settings.check())
        # Nothing is awaited from here on: a prompt that is cancelled leaves no half of it.
        before, self._seen = self._seen, {path: one for path, (one, _) in seen.items()}
        self._read = {}
        if outdated:
            log.info("What Claude reads at its start was changed", action="early_outdated")
            self._workers.retire(self._state.id)
        replaced = [
            path
            for path, one in self._seen.items()
            if one is not None and before.get(path, one) != one
        ]
        if replaced and self._workers.is_live(self._state.id):
            log.info(
                "A directory of the session was replaced by another one",
                action="directory_replaced",
                paths=replaced,
            )
            self._workers.retire(self._state.id)
        gone = [
            path for path in added if self._seen[path] is None and before.get(path, ()) is not None
        ]
        if gone:
            words = "\n\n".join(_gone(path, seen[path][1]) for path in dict.fromkeys(gone))
            self._state.unsaid.append(note_event(f"directories-{uuid4()}", words))

    async def note(self) -> None:
        """Note those that are there, in which a worker is started before there is a prompt."""
        seen = await self._look()
        said = {path for path, one in self._seen.items() if one is None}  # that they are gone
        self._seen = {
            path: one for path, (one, _) in seen.items() if one is not None or path in said
        }
        cwd = self._state.options.cwd
        user = (
            self._daemon_environment.configuration(self._state.record.environment.account)
            or config_home()
        )
        with contextlib.suppress(TimeoutError):  # then its next prompt is refused
            self._read = await disks.call(cwd, partial(_read_in, cwd, user))

    async def _look(self) -> dict[str, tuple[_Inode | None, str]]:
        options = self._state.options
        return await _look((options.cwd, *options.additional_directories))


async def require_own(cwd: str | None) -> None:
    """Raises InvalidParams if the directory that a session begins in does not exist."""
    if cwd is not None:
        _require("cwd", cwd, await _looked_at(cwd))


async def is_gone(path: str) -> bool:
    """Whether there is nothing at this path; False if that cannot be said, as of a silent disk, or of
    one behind a link, which may not be mounted.
    """
    return (await _looked_at(path))[1] == _GONE


async def resolve_links(record: SessionRecord) -> None:
    """Note where the session's directory is without symbolic links; what was known stays if its disk
    does not answer soon.
    """
    if record.cwd is not None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(RESOLVING):  # the disk itself may take as long as any
                real = await disks.call(record.cwd, partial(os.path.realpath, record.cwd))
            record.real_cwd = None if real == record.cwd else real


async def require_added(paths: Collection[str], known: Collection[str] = ()) -> None:
    """Raises InvalidParams for an added directory that does not exist, unless the session knew it
    before.
    """
    new = [path for path in paths if path not in known]
    for path, found in (await _look(new)).items():
        _require(f"additionalDirectories[{list(paths).index(path)}]", path, found)


def cwd_missing(path: str, why: str) -> str:
    """What is said when the session's own directory is gone, or its disk is."""
    return (
        f"The session's directory {path} cannot be used: {why}. The prompt was not sent to Claude. What was said can "
        "still be read. Put the directory back and send the prompt again, or open this session where the directory is "
        "now, or start a session elsewhere."
    )


def moved(before: str, now: str) -> str:
    """What is said when a session continues in another directory, as its own one is gone."""
    return (
        f"**This session's directory {neutral(before)} does not exist any more. It continues in {neutral(now)}.** What "
        "Claude remembers of files may name the earlier place."
    )


def _gone(path: str, why: str) -> str:
    return (
        f"**The additional directory `{neutral(path, 'command')}` cannot be used: {why}.** Claude goes on without it, "
        "and has it again with the first prompt after it is back."
    )


def _read_in(cwd: str, user: str) -> dict[str, Stamp | None]:
    """What Claude reads when it starts there, as it is now: its memory, also above, and what acts,
    of which the directory itself tells also when it is gone again; and the user's own, in `user`.
    """
    looking = Looking(os.path.realpath(cwd))
    memory = (os.path.join(place, name) for place in upwards(cwd) for name in _MEMORY)
    own = (os.path.join(user, name) for name in ("CLAUDE.md", "settings.json"))
    for path in (cwd, os.path.join(cwd, ".claude"), *memory, *own):
        looking.kind(path)
    for rules in (os.path.join(cwd, ".claude", "rules"), os.path.join(user, "rules")):
        for path in looking.files(rules):
            looking.kind(path)
    return looking.stamps


async def _is_as_read(cwd: str, read: dict[str, Stamp | None]) -> bool:
    with contextlib.suppress(TimeoutError):
        return await disks.call(cwd, partial(same, read))
    return False


async def _look(paths: Iterable[str]) -> dict[str, tuple[_Inode | None, str]]:
    """Which directories they are."""
    given = [path for path in dict.fromkeys(paths) if path]
    return dict(zip(given, await asyncio.gather(*map(_looked_at, given)), strict=True))


def _require(field: str, path: str, found: tuple[_Inode | None, str]) -> None:
    one, why = found
    if one is None:
        raise InvalidParams(f"`{field}`: {neutral(path)} cannot be used: {why}.")


async def _looked_at(path: str) -> tuple[_Inode | None, str]:
    try:
        return await disks.call(path, partial(_identity, path))
    except TimeoutError:
        return None, disks.SILENT


def _identity(path: str) -> tuple[_Inode | None, str]:
    """Which directory it is; or None, and why there is none."""
    try:
        status = os.stat(os.path.join(path, ""))  # the separator: a file is none
    except OSError as error:
        if error.errno in _ABSENT:
            return None, _why_absent(path.rstrip("/"))
        return None, f"it cannot be looked at ({error.strerror})"
    except ValueError:
        return None, "it is not a path"
    return (status.st_dev, status.st_ino), ""


def _why_absent(path: str) -> str:
    nearest = next(filter(os.path.lexists, upwards(path)), "/")
    if not os.path.exists(nearest):
        return _DANGLING
    return "it is not a directory" if nearest == path else _GONE
