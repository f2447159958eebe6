"""Reconnects of clients to a new daemon: subscriptions continue where they were."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final

import structlog

from pykoclaw_acp.channel.options import McpServer
from pykoclaw_acp.errors import StoreClosed, StoreUnavailable
from pykoclaw_acp.sessions.subscriber import Subscriber

log: Final = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class LastPlace:
    """Position of a client in a session, as its front reports it.

    `seq` is the last update that the front was sent, `seen` the last that has arrived at the
    client; None: the front does not say it. `load` is the number of the `session/load` whose replay
    goes on, or 0. `answered`: the request that opened the session was; `opened`: its directories
    and MCP servers, None if they cannot be read. `earlier`: the position was given by another daemon
    than this one.
    """

    seq: int
    seen: int | None
    load: int
    answered: bool
    opened: tuple[tuple[str, ...], tuple[McpServer, ...]] | None
    earlier: bool


async def come_back(
    subscriber: Subscriber,
    front: str,
    places: Mapping[str, LastPlace],
    unanswered: Collection[str | None],
) -> None:
    """Subscribe the client to the sessions it had open, under the ids it uses: to one that is closed for
    what was left there, to one that is gone no longer. One that cannot be read is left out: what the
    client asks of it is answered with the reason.

    `unanswered`: request keys of prompts that come again, and whose turns are in the journal.
    """
    subscriber.sessions.fronts.speak(front, subscriber)
    owners = Counter(subscriber.sessions.owner(session_id) for session_id in places)
    for session_id, place in places.items():
        # Under which of several ids it prompted is unknown: rather show its own message than
        # nothing.
        is_only = owners[subscriber.sessions.owner(session_id)] == 1
        try:
            await _go_on(subscriber, front, session_id, place, unanswered, is_only=is_only)
        except (ConnectionError, StoreClosed):  # it comes again
            raise
        except Exception as error:
            if isinstance(error, StoreUnavailable) and error.retryable:  # so does this one
                raise
            log.exception(
                "A client's session cannot be followed",
                action="session_not_followed",
                session=session_id,
            )


async def _go_on(
    subscriber: Subscriber,
    front: str,
    session_id: str,
    place: LastPlace,
    unanswered: Collection[str | None],
    *,
    is_only: bool,
) -> None:
    sessions = subscriber.sessions
    session = await sessions.find(session_id)
    if session is None:
        await subscriber.client.start_updates(session_id, place.seq, 0)
        subscriber.client.stop_updates(session_id)
        return
    # A load that comes again opens a closed session, as the one before may not have been stored.
    closed = session.record.closed and not place.load
    if place.opened is not None and not closed:
        sessions.take_options(session, *place.opened)
    subscriber.loading[session_id] = place.load
    turns = await sessions.turns_of_front(session.id, front)
    subscriber.expect_prompts(turn for turn, key in turns.items() if key in unanswered)
    own = set(turns) if is_only else set()
    # A replay includes the client's own messages; after the answer to a resume the client gets ready.
    hold = subscriber.traits.catch_up_pause if not place.answered and not place.load else 0
    # Beyond what the earlier daemon has left the place is one of a log that was put back since.
    end = await sessions.end_of_earlier(session) if place.earlier else session.last_seq
    seen = place.seen
    if seen is not None:
        seen = min(await sessions.current_seq(session, session_id, seen), end)
    seq = min(await sessions.current_seq(session, session_id, place.seq), end)
    # What was sent to the front may be in transit: use what was confirmed, or what the front
    # reports.
    known = await subscriber.claim(session, session_id, upto=seq)
    certain = min((one for one in (known, seen) if one is not None), default=None)
    if session.log.open_tools.titles:
        for one in await session.log.in_effect(seq):
            subscriber.client.recall(session_id, one)
    subscription = subscriber.subscribe(session, session_id, seq, place.load, hold, seen=certain)
    subscription.own |= session.untold(own) if place.load else own
    if place.load or not place.answered:
        # What opened the session comes again: a load says what of the log it wants, and updates must not
        # overtake the answer.
        subscription.hold_back()
    if closed:
        # The daemon before may have died before it told so; the client would follow the session again
        # once another one has opened it.
        subscriber.leave_at_end(session, subscription)
    elif place.answered:
        await subscriber.claim_prompts_again(session, session_id)
