"""The handlers of `_pykoclaw.dev/trust/…`: which directories are trusted, as the user says on the
command line.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from typing import Any, Final, TypeVar

from pykoclaw_acp.errors import InvalidParams
from pykoclaw_acp.model.permissions import Workspace
from pykoclaw_acp.model.trust import ANY, FIRST_USE, NOTHING, Trusted, changes, grant
from pykoclaw_acp.protocol import session_meta
from pykoclaw_acp.protocol.control.trust import (
    Looked,
    RunWithout,
    TrustedDirectory,
    TrustListParams,
    TrustParams,
    TrustShowParams,
)
from pykoclaw_acp.protocol.messages import Empty
from pykoclaw_acp.server.call import Call
from pykoclaw_acp.server.dispatch import Method
from pykoclaw_acp.sessions.registry import Sessions
from pykoclaw_acp.store import trust
from pykoclaw_acp.store.database import Database, Statement, Unit
from pykoclaw_acp.system import disks
from pykoclaw_acp.trust import dotenv
from pykoclaw_acp.trust.listed import text
from pykoclaw_acp.trust.watch import Watch

T = TypeVar("T")

BY: Final = "cli"
_NO_DIRECTORY: Final = "`path`: must be the absolute path of a directory."


class Trusting:
    """What the user says of directories, whether a session works there or not."""

    def __init__(self, sessions: Sessions, database: Database) -> None:
        self._sessions = sessions
        self._database = database
        self._watch = Watch()

    @property
    def methods(self) -> dict[str, Method[Call, Any]]:
        """Their part of the dispatch table."""
        return {
            "_pykoclaw.dev/trust/list": Method(
                TrustListParams, self.list_all, before_initialize=True
            ),
            "_pykoclaw.dev/trust/show": Method(TrustShowParams, self.show, before_initialize=True),
            "_pykoclaw.dev/trust/add": Method(TrustParams, self.add, before_initialize=True),
            "_pykoclaw.dev/trust/remove": Method(TrustParams, self.remove, before_initialize=True),
        }

    async def list_all(
        self,
        call: Call,  # noqa: ARG002
        params: TrustListParams,
    ) -> list[TrustedDirectory]:
        """All directories that are trusted, each once, with whatever content; then the others."""
        by_path: dict[str, list[Trusted]] = {}
        for one in await trust.listing(self._database):
            by_path.setdefault(one.path, []).append(one)
        found = [
            TrustedDirectory(
                path=path,
                tree=any(one.content == ANY for one in rows),
                pending=any(one.content == FIRST_USE for one in rows),
                dotenv=any(one.dotenv is not None for one in rows),
                by=rows[-1].by,
                at=rows[-1].at,
            )
            for path, rows in by_path.items()
        ]
        if params.without:
            found += [
                TrustedDirectory(
                    path=one.path,
                    tree=False,
                    pending=False,
                    dotenv=False,
                    by=one.by,
                    at=one.at,
                    trusted=False,
                )
                for one in await trust.without(self._database)
            ]
        return found

    async def show(self, call: Call, params: TrustShowParams) -> Looked:  # noqa: ARG002
        """What a directory holds that acts."""
        path = await _at(params.path, _directory)
        sources = session_meta.SOURCES if params.all_sources else self._sessions.setting_sources
        content = await self._watch.look(path, (), sources)
        return await self._looked(path, next(iter(content.acting), None))

    async def add(self, call: Call, params: TrustParams) -> Looked:  # noqa: ARG002
        """Trust a directory with what it holds now, or `tree`: whatever it and those below hold."""
        self._database.condition.require()
        path = await _at(params.path, _directory)
        found = await self._look(path)
        file = await _at(path, dotenv.fingerprint) if await _said(path) else None
        if params.tree:
            await self._write(trust.add(text(path), ANY, BY), trust.settled(text(path)))
        elif found is not None and not found.content:
            raise InvalidParams(
                f"The content of {text(path)} could not be examined completely ({found.found[-1]}), so it cannot be"
                " remembered. `--tree` trusts the directory and all directories below it, whatever their content is."
            )
        elif found is not None or file is not None:
            content = NOTHING if found is None else found.content
            added = await self._look_as_added(path)
            files = {} if found is None else found.files or None
            statements = [trust.add(text(path), content, BY, file, files)]
            if added is not None and added.content not in ("", content):
                statements.append(trust.add(text(path), added.content, BY, files=added.files))
            statements.append(trust.settled(text(path)))
            await self._write(*statements)
        await self._sessions.trusted_elsewhere.settle()
        return await self._looked(path, found)

    async def remove(self, call: Call, params: TrustParams) -> Empty:  # noqa: ARG002
        """Trust it no more, from the next prompts on."""
        self._database.condition.require()
        # It may be gone
        said = (
            text(params.path),
            text(await _at(params.path, _absolute)),
        )
        listed = {one.path for one in await trust.listing(self._database)}
        listed |= {one.path for one in await trust.without(self._database)}
        known = listed & set(said)
        if not known:
            raise InvalidParams(
                f"{said[0]} is not in the list of trusted directories: `pykoclaw-acp trust list`."
            )
        for path in known:
            await self._write(*trust.remove(path))
        return Empty()

    async def _look(self, path: str) -> Workspace | None:
        content = await self._watch.look(path, (), self._sessions.setting_sources)
        return next(iter(content.acting), None)

    async def _look_as_added(self, path: str) -> Workspace | None:
        """What acts of it where it is a further directory of a session, of which less counts."""
        content = await self._watch.look(None, (path,), self._sessions.setting_sources)
        return next(iter(content.acting), None)

    async def _looked(self, path: str, found: Workspace | None) -> Looked:
        known = await trust.of(self._database, [text(path)])
        trusted = found is not None and grant(found, known) is not None
        doubtful = found if not trusted else None
        last = {one.path: one for one in await trust.without(self._database)}.get(text(path))
        return Looked(
            path=text(path),
            found=[] if found is None else list(found.found),
            complete=found is None or bool(found.content),
            trusted=trusted,
            changes=[] if doubtful is None else changes(doubtful.path, doubtful.files, known),
            without=None
            if doubtful is None or last is None or last.content != doubtful.content
            else RunWithout(by=last.by, at=last.at),
            dotenv=sorted(name.upper() for name in await _said(path)),
        )

    async def _write(self, *statements: Statement) -> None:
        await self._database.commit(Unit(statements=statements, durable=True))


async def _said(path: str) -> list[str]:
    return list(await _at(path, dotenv.settings))


async def _at(path: str, look: Callable[[str], T]) -> T:
    """What is seen there; raises InvalidParams if the disk does not answer."""
    try:
        return await disks.call(path, partial(look, path))
    except TimeoutError as error:
        raise InvalidParams(f"{text(path)}: {disks.SILENT}.") from error


def _directory(path: str) -> str:
    """The directory without symbolic links; raises InvalidParams."""
    real = _absolute(path)
    if not os.path.isdir(real):
        raise InvalidParams(_NO_DIRECTORY)
    return real


def _absolute(path: str) -> str:
    if not os.path.isabs(path) or "\0" in path:
        raise InvalidParams(_NO_DIRECTORY)
    return os.path.realpath(path)
