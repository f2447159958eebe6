"""Identity of this server: the instance of its database, or a new one if the data directory is a
copy.

Decided at start-up, before anything of an earlier server is changed; docs/architecture.md describes
the rules.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Final, Self

import structlog

from pykoclaw_acp.channel.processes import WorkerRecord
from pykoclaw_acp.error_kinds import ErrorKind
from pykoclaw_acp.errors import DataDirectoryLocked
from pykoclaw_acp.link import records
from pykoclaw_acp.link.places import Places
from pykoclaw_acp.link.records import InstanceRecord, Site
from pykoclaw_acp.model.failures import TurnFailure
from pykoclaw_acp.pool.whereabouts import Direction, Sighting, Unlisted, Whereabouts
from pykoclaw_acp.server import copies
from pykoclaw_acp.server.copy_detection import Evidence, judge
from pykoclaw_acp.server.instance_name import InstanceName, claim
from pykoclaw_acp.sessions.turns import outcomes
from pykoclaw_acp.store import instance
from pykoclaw_acp.store.database import Database, Unit
from pykoclaw_acp.store.instance import InstanceRow
from pykoclaw_acp.store.sessions import now_ms
from pykoclaw_acp.store.workers import SqlWorkerStore

log: Final = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class InstanceWorkers:
    """The instance, and which workers of earlier servers belong to it. Workers are named by their
    cookies.

    `names`: under which its own workers know it. `taken`: everything that was started under one of
    these belongs to it. `foreign`: live workers of another instance with the same name. `outdated`:
    own workers that are ahead of the database, which was put back. `strays`: own workers without a
    row. `put_back`: sessions whose logs end before what their workers have reported.
    """

    id: str
    names: frozenset[str]
    taken: frozenset[str]
    foreign: frozenset[str] = frozenset()
    outdated: frozenset[str] = frozenset()
    strays: tuple[Unlisted, ...] = ()
    put_back: frozenset[str] = frozenset()
    copied_from: str | None = None  # by this start

    @classmethod
    def of(cls, instance: str) -> Self:
        """This instance, under one name."""
        names = frozenset({instance})
        return cls(instance, names, names)

    def owns(self, row: WorkerRecord) -> bool:
        """Whether the row's worker is the instance's own."""
        return row.identity.instance in self.names and row.identity.cookie not in self.foreign

    def owns_process(self, cookie: str) -> bool:
        """Whether processes with this cookie are the instance's own."""
        return cookie.partition(":")[0] in self.taken and cookie not in self.foreign

    def last_words(self, row: WorkerRecord) -> TurnFailure | None:
        """Why this worker does not continue here, if its turn's log is to say so."""
        if self.copied_from is not None:
            return TurnFailure(ErrorKind.COPIED, outcomes.COPIED.format(path=self.copied_from))
        if row.identity.cookie in self.outdated:
            return TurnFailure(ErrorKind.RESTORED, outcomes.RESTORED)
        return None


class Identity:
    """Result of `settle`: the standing, the row to store, and the instance's name while it is held.

    `before`: the row that is stored.
    """

    def __init__(
        self,
        standing: InstanceWorkers,
        row: InstanceRow,
        before: InstanceRow | None,
        name: InstanceName | None,
    ) -> None:
        self.standing = standing
        self._row = row
        self._before = before
        self._name = name

    async def keep(self, database: Database, places: Places) -> None:
        """Store the instance and its place; waits until the store can be written."""
        if self._row != self._before:
            unit = Unit((stored := instance.save(self._row),), durable=True)
            if (original := self.standing.copied_from) is not None:
                unit = await copies.leave_to_original(database, original, stored)
            await database.commit(unit, patient=True)
        try:
            await asyncio.to_thread(
                records.write, places.state, InstanceRecord(self._row.instance, self._row.site)
            )
        except OSError as error:
            log.warning(
                "The state directory cannot be written", action="record_failed", error=str(error)
            )

    def release(self) -> None:
        """Release the instance's name."""
        if self._name is not None:
            self._name.release()


async def settle(database: Database, places: Places, whereabouts: Whereabouts) -> Identity:
    """Determine the instance; the data directory's lock is held, and nothing is written.

    Raises DatabaseMissing if this is not the database that was here, ConfigurationError if it is a
    link to that of another directory, and DataDirectoryLocked if another server uses this very
    directory although its lock was to be had.
    """
    here = await asyncio.to_thread(Site.of, places.data)
    rows = await SqlWorkerStore(database).rows()
    kept = await instance.read(database)
    known = kept or await asyncio.to_thread(_by_place, places, here)
    if known is None:
        return await _first(places, here, rows, whereabouts, new=not await _has_sessions(database))
    if kept is None and not await _has_sessions(database):
        raise records.without_conversations(here.path, known.instance, places.state)
    await asyncio.to_thread(records.require_own_database, known.site, here)
    name = await claim(known.instance, places.state)
    if name is None and here.is_same(known.site):
        raise DataDirectoryLocked(
            f"Another pykoclaw-acp server uses the data directory {here.path}; its lock file there was removed. Stop "
            "that server (`pykoclaw-acp stop`, or `kill` it: its turns go on), then start this one."
        )
    names = frozenset(
        {known.instance} if known.formerly is None else {known.instance, known.formerly}
    )
    live = [row for row in rows if row.identity.instance in names and whereabouts.lives(row)]
    sightings = await asyncio.gather(*(whereabouts.locate(row, here) for row in live))
    seen = dict(zip(live, sightings, strict=True))
    unlisted = await asyncio.to_thread(whereabouts.survey, here, live)
    mine = tuple(one for one in unlisted if one.direction == "here")
    others = [
        one
        for one in unlisted
        if one.direction == "elsewhere" and _is_of(one.cookie, known.instance)
    ]
    verdict = judge(
        Evidence(
            recorded=known.site,
            here=here,
            workers=[*_directions(seen.values()), *(one.direction for one in others)],
            served=name is None,
            lives_elsewhere=await asyncio.to_thread(_lives_elsewhere, places, known.instance, here),
            original_is_there=await asyncio.to_thread(_is_another_with_database, known.site, here),
        )
    )
    if verdict == "copy":
        log.warning(
            "The data directory is a copy",
            action="instance_copied",
            data=here.path,
            of=known.site.path,
        )
        if name is not None:
            name.release()
        return await _copy(places, here, known.site.path, kept, mine)
    if verdict == "moved":
        log.warning(
            "The data directory was moved",
            action="instance_moved",
            data=here.path,
            before=known.site.path,
        )
    outdated = [row for row in live if _is_further_on(seen[row], row)]
    # A daemon that found it elsewhere would have told it: whose directory was deleted is left from
    # here, too.
    mine += tuple(
        one for one in unlisted if one.direction == "deleted" and _is_of(one.cookie, known.instance)
    )
    foreign = {row.identity.cookie for row in live if seen[row].direction == "elsewhere"}
    standing = InstanceWorkers(
        id=known.instance,
        names=names,
        taken=frozenset({known.instance}),
        foreign=frozenset(foreign | {one.cookie for one in others if one.cookie is not None}),
        outdated=frozenset(row.identity.cookie for row in outdated),
        strays=mine,
        put_back=frozenset(
            [row.session_id for row in outdated] + await _launched_later(database, mine)
        ),
    )
    return Identity(standing, replace(known, site=here), kept, name)


async def _has_sessions(database: Database) -> bool:
    return bool(await database.read("SELECT 1 FROM acp_sessions LIMIT 1"))


async def _first(
    places: Places, here: Site, rows: Sequence[WorkerRecord], whereabouts: Whereabouts, *, new: bool
) -> Identity:
    """The identity of a database without an id: a new one, or one from before there were ids."""
    others = [
        row for row in rows if row.identity.instance != places.hash and whereabouts.lives(row)
    ]
    if others:  # from before there were ids: such a worker cannot say whose it is, and was launched for another place
        row = others[0]
        of = whereabouts.launched_for(row)
        log.warning("The data directory is a copy", action="instance_copied", data=here.path, of=of)
        return await _copy(places, here, of, None, ())
    made = InstanceRow(_new_id(), None if new else places.hash, here)
    names = frozenset({made.instance} if new else {made.instance, places.hash})
    standing = InstanceWorkers(made.instance, names, names)
    return Identity(standing, made, None, await claim(made.instance, places.state))


async def _copy(
    places: Places, here: Site, of: str, before: InstanceRow | None, mine: tuple[Unlisted, ...]
) -> Identity:
    row = InstanceRow(_new_id(), None, here, copied_from=of, copied_at=now_ms())
    names = frozenset({row.instance})
    standing = InstanceWorkers(row.instance, names, names, strays=mine, copied_from=of)
    return Identity(standing, row, before, await claim(row.instance, places.state))


def _by_place(places: Places, here: Site) -> InstanceRow | None:
    """The instance recorded for this place, if an older database without an id was put back."""
    for record in records.at(places.state, here.path):
        return InstanceRow(record.instance, places.hash, record.site)
    return None


def _directions(seen: Collection[Sighting]) -> list[Direction]:
    # Of a directory that was deleted only one copy can be the successor: the one whose daemon the
    # worker serves.
    return [
        "elsewhere" if one.direction == "deleted" and one.attached else one.direction
        for one in seen
    ]


def _is_further_on(sighting: Sighting, row: WorkerRecord) -> bool:
    """Whether the database has fewer frames than it acknowledged to the worker, or more than the
    worker has sent.
    """
    answer = sighting.answer
    return answer is not None and not answer.acked <= row.acked_frame <= answer.last


async def _launched_later(database: Database, workers: Collection[Unlisted]) -> list[str]:
    """Sessions whose workers were launched after the state that the database has now."""
    found: list[str] = []
    for worker in workers:
        session_id, _, epoch = (worker.cookie or "").partition(":")[2].rpartition(":")
        rows = await database.read(
            "SELECT epoch FROM acp_sessions WHERE acp_session_id = ?", (session_id,)
        )
        if rows and epoch.isdecimal() and int(epoch) > rows[0][0]:
            found.append(session_id)
    return found


def _is_of(cookie: str | None, name: str) -> bool:
    return cookie is not None and cookie.startswith(f"{name}:")


def _lives_elsewhere(places: Places, name: str, here: Site) -> bool:
    """Whether the instance's last known data directory still exists, and is not ours."""
    record = records.find(places.state, name)
    if record is None or not _is_another_with_database(record.site, here):
        return False
    with contextlib.suppress(OSError):
        return Site.of(record.site.path).may_be(record.site)
    return True


def _is_another_with_database(site: Site, here: Site) -> bool:
    """Whether another directory than ours is at this path, with a database; True if it cannot be
    read.
    """
    try:
        there = Site.of(site.path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True
    return not there.is_same(here) and there.has_database


def _new_id() -> str:
    return secrets.token_hex(8)
