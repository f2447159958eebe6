"""Clients that come back after the daemon was away: each is put where it was in its sessions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from pykoclaw_acp.channel.options import McpStdio
from pykoclaw_acp.sessions.subscriber import Subscriber


@dataclass(frozen=True, slots=True)
class LastPlace:
    """Where a client was in a session, as its front says.

    `seq` is the last update that the front was sent, `seen` the last that has arrived at the client; None: the front
    does not say it. `load` is the number of the `session/load` whose replay goes on, or 0. `answered`: the request that
    opened the session was; `opened`: its directories and MCP servers, None if they cannot be read.
    """

    seq: int
    seen: int | None
    load: int
    answered: bool
    opened: tuple[tuple[str, ...], tuple[McpStdio, ...]] | None


async def come_back(subscriber: Subscriber, front: str, places: Mapping[str, LastPlace]) -> None:
    """Subscribe the client of this front to the sessions that it followed, by the ids that it uses."""
    owners = Counter(subscriber.sessions.owner(session_id) for session_id in places)
    for session_id, place in places.items():
        # Under which of several ids it has prompted is not known: it is rather shown its own words than not at all.
        is_only = owners[subscriber.sessions.owner(session_id)] == 1
        await _go_on(subscriber, front if is_only else None, session_id, place)


async def _go_on(subscriber: Subscriber, front: str | None, session_id: str, place: LastPlace) -> None:
    sessions = subscriber.sessions
    session = await sessions.find(session_id)
    if session is None or session.record.closed:
        return
    if place.opened is not None:
        sessions.remember(session, *place.opened)
    subscriber.loading[session_id] = place.load
    own = set() if front is None else await sessions.asked_by(session.id, front)
    # In the middle of a replay the client is told its own messages, too; updates must not overtake a resume's answer.
    hold = subscriber.traits.catch_up_pause if not place.answered and not place.load else 0
    seen = place.seen
    if seen is not None:
        seen = min(await sessions.place(session, session_id, seen), session.last_seq)
    seq = min(await sessions.place(session, session_id, place.seq), session.last_seq)
    # What its front was told may be on its way to it: where it stands is what was confirmed, or what the front says.
    known = await subscriber.claim(session, session_id, upto=seq)
    certain = min((one for one in (known, seen) if one is not None), default=None)
    subscription = subscriber.subscribe(session, session_id, seq, place.load, hold, seen=certain)
    subscription.own |= session.still_queued(own) if place.load else own
