"""Opening a session for a client: anew, with its whole log, or where the client goes on. At most a
worker is started for what the client will ask.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from pykoclaw_acp.channel.options import McpServer
from pykoclaw_acp.errors import InvalidParams, InvalidRequest
from pykoclaw_acp.model.away import AwayPolicy
from pykoclaw_acp.model.branches import ForkedAt
from pykoclaw_acp.model.choices import Selection
from pykoclaw_acp.model.log import TurnsPlace
from pykoclaw_acp.model.seams import Left
from pykoclaw_acp.model.session_options import NOTHING_REQUESTED, RequestedOptions
from pykoclaw_acp.sessions import closing, directories, follow_ups
from pykoclaw_acp.sessions.adopting import has_moved
from pykoclaw_acp.sessions.follow_ups import FollowUp
from pykoclaw_acp.sessions.registry import Sessions
from pykoclaw_acp.sessions.seams import SeamInserter, left_at
from pykoclaw_acp.sessions.session import Session
from pykoclaw_acp.sessions.subscriber import Subscriber

AFTER: Final = "pykoclaw.dev/after"
# s; for a client's place in the session to be kept, if the database takes it
PLACE_WAIT: Final = 0.2


@dataclass(frozen=True, slots=True)
class OpenOptions:
    """What a client says of a session that it opens; without an `away_policy`, or `steers`, these
    stay as they are. `account`: None if it names none.
    """

    cwd: str
    directories: tuple[str, ...]
    servers: tuple[McpServer, ...]
    away_policy: AwayPolicy | None = None
    steers: bool | None = None
    requested: RequestedOptions = NOTHING_REQUESTED
    account: str | None = None


@dataclass(frozen=True, slots=True)
class OpenedSession:
    """An opened session, and what can be chosen in it. The follow-ups begin when the client was
    sent the answer.
    """

    session_id: str
    selection: Selection
    follow_ups: list[FollowUp]
    forked_at: ForkedAt | None = None
    """Where a fork was made."""
    place: TurnsPlace | None = None
    """Where the newest turns begin, if only these are loaded."""


async def create(
    subscriber: Subscriber, options: OpenOptions, request_key: str | None
) -> OpenedSession:
    """A new session, in the database before this returns; the same one for a request that comes
    again.
    """
    sessions = subscriber.sessions
    await directories.require_own(options.cwd)
    await directories.require_added(options.directories)
    begun = await sessions.beginnings.begin(subscriber.given, options.account)
    session = await sessions.create(
        options.cwd,
        options.directories,
        options.servers,
        request_key=request_key,
        client=subscriber.name,
        requested=options.requested,
        begun=begun,
    )
    await _set(sessions, session, options)
    subscriber.subscription(session, session.id)
    start_early = partial(follow_ups.start_early, subscriber, session)
    return await _opened(subscriber, session, session.id, start_early)


async def load(
    subscriber: Subscriber,
    session_id: str,
    options: OpenOptions,
    *,
    number: int,
    again: bool = False,
    last: int | None = None,
) -> OpenedSession:
    """Open a session and send its whole log, or the `last` turns of it. Request `number` comes
    `again` from a front that has lost its daemon.

    A client that drops a replay is shown after it what it has not been shown before.
    """
    session = await _reopen(subscriber, session_id, options)
    left: Left | None = None
    sessions = subscriber.sessions
    runs = session.busy or session.background or sessions.workers.is_live(session.id)
    if not (runs or sessions.awaits_recovery):
        await session.log.close_lost()
    end = session.last_seq
    place = None if last is None else await session.log.last_turns(last)
    before = subscriber.subscriptions.get(session_id)
    if again and subscriber.loading.get(session_id) == number:
        # Its front may have a part of the log already.
        subscription = subscriber.subscription(session, session_id)
        start = subscription.cursor
        if place is not None and await session.log.is_before_window(start, place):
            subscription = subscriber.subscribe(session, session_id, start, number, opens=True)
            subscription.window = place
    else:
        if subscriber.traits.drops_replay:
            left = await _left(subscriber, session, session_id)
        await subscriber.claim(session, session_id, upto=session.last_seq)
        subscription = subscriber.subscribe(session, session_id, 0, number, opens=True)
        subscription.window = place
    subscription.replays_upto = end
    subscription.answered.set()
    try:
        await subscription.reached(end, patient=False)
    except BaseException:
        subscriber.give_up_replay(session, session_id, subscription, before)
        raise
    if subscription.cursor < end and not subscriber.is_subscribed(session_id):
        await sessions.get(session_id)  # refused if it was deleted
        raise InvalidRequest(closing.CUT_SHORT)
    more: list[FollowUp] = []
    if not again:
        more.append(partial(follow_ups.start_early, subscriber, session, soon=True))
    if left is not None:
        more.append(partial(_show_again, subscriber, session, session_id, left))
    return replace(await _opened(subscriber, session, session_id, *more), place=place)


async def resume(
    subscriber: Subscriber,
    session_id: str,
    options: OpenOptions,
    *,
    after: int | None = None,
    again: bool = False,
) -> OpenedSession:
    """Open a session without its log: what the client has not seen yet follows the answer.

    That is what comes after `after`, or else after what this client's process has confirmed,
    or one of its name that has ended.
    """
    session = await _reopen(subscriber, session_id, options)
    more: list[FollowUp] = []
    before = subscriber.subscriptions.get(session_id)
    is_subscribed = subscriber.is_subscribed(session_id)
    if again and is_subscribed:
        pass  # its front stands further on already
    elif after is not None:
        if after > session.last_seq:
            raise InvalidParams(
                f"`_meta.{AFTER}`: the session's log ends before that.",
                {"lastSeq": session.last_seq},
            )
        start = await subscriber.sessions.current_seq(session, session_id, after)
        await subscriber.claim(session, session_id, upto=start)
        missed = start < session.last_seq or session.busy
        hold = subscriber.traits.catch_up_pause if missed else 0
        subscriber.subscribe(session, session_id, start, hold=hold, opens=True)
    elif before is not None and is_subscribed:
        before.left = Left(before.cursor)
        certain = subscriber.certain(session, before)
        if certain < before.cursor:
            left = await left_at(session.log, certain)
            more = _go_on(subscriber, session, session_id, left)
    else:
        left = await _left(subscriber, session, session_id)
        more = _go_on(subscriber, session, session_id, left)
    if not again:
        more.append(partial(follow_ups.start_early, subscriber, session, soon=True))
    subscription = subscriber.subscriptions[session_id]
    if subscription is not before:
        subscription.hold_back()
    else:  # it is not asked as a client that comes
        more.append(partial(follow_ups.repeat_requests, subscriber, session_id))
    try:
        return await _opened(subscriber, session, session_id, *more)
    except BaseException:
        subscription.answered.set()
        raise


async def fork(
    subscriber: Subscriber,
    session_id: str,
    options: OpenOptions,
    request_key: str | None,
    *,
    message_id: str | None = None,
) -> OpenedSession:
    """A new session with the history of another one up to the turn of a message, or without one up
    to its last complete turn. The client has it open from there on.
    """
    sessions = subscriber.sessions
    # One that no client has opened has no directory, and no client, from this either.
    source = await sessions.catalogue.open(session_id, account=options.account)
    await directories.require_own(options.cwd)
    await directories.require_added(options.directories, source.record.additional_directories)
    if not source.busy:
        await source.others.look_if_possible()
    made, at = await sessions.forks.fork(
        source,
        options.cwd,
        options.directories,
        options.servers,
        message_id=message_id,
        request_key=request_key,
        client=subscriber.name,
    )
    await sessions.reopen(
        made,
        options.cwd,
        options.directories,
        options.servers,
        options.requested,
        given=subscriber.given,
    )
    await _set(sessions, made, options)
    subscriber.subscription(made, made.id)
    opened = await _opened(subscriber, made, made.id)
    return replace(opened, forked_at=at)


async def _left(subscriber: Subscriber, session: Session, session_id: str) -> Left:
    """Return up to where this client was shown the session, by any of its processes."""
    known = subscriber.subscriptions.get(session_id)
    if known is not None and known.alive and known.left is not None:
        return known.left  # it did not wait for the answer to its resume, and loads instead
    # A resume that was cancelled has made the place its own, too.
    lives = subscriber.lives.setdefault(session_id, await subscriber.is_known(session_id))
    seen = await subscriber.claim(session, session_id)
    if seen is None:
        return Left(session.last_seq)
    lacks_block = subscriber.traits.keeps_blocks and not lives
    return await left_at(session.log, seen, lacks_block=lacks_block)


def _go_on(subscriber: Subscriber, session: Session, session_id: str, left: Left) -> list[FollowUp]:
    """Show the client what follows the place that it has left, after the answer."""
    subscriber.lives.pop(session_id, None)
    seam = left.seam()
    missed = left.seq < session.last_seq or session.busy or (seam is not None and seam.lacks_block)
    hold = subscriber.traits.catch_up_pause if missed else 0
    subscription = subscriber.subscribe(session, session_id, left.seq, hold=hold, opens=True)
    ends = missed and subscriber.traits.ends_lines
    subscription.inserter, subscription.left = SeamInserter(seam, ends_line=ends), left
    return [partial(follow_ups.end_line, session, subscription)] if ends else []


async def _show_again(
    subscriber: Subscriber, session: Session, session_id: str, left: Left
) -> None:
    """Show the client again what it was sent before the answer, which it has dropped."""
    if subscriber.is_subscribed(session_id):
        for follow_up in _go_on(subscriber, session, session_id, left):
            await follow_up()


async def _reopen(subscriber: Subscriber, session_id: str, options: OpenOptions) -> Session:
    sessions = subscriber.sessions
    session = await sessions.catalogue.open(
        session_id, options.cwd, subscriber.name, account=options.account
    )
    if session.record.cwd is None:
        await directories.require_own(options.cwd)
    else:
        await has_moved(session.record.cwd, options.cwd)
    await directories.require_added(options.directories, session.record.additional_directories)
    if not session.busy:  # else when its turn has ended
        await session.others.look_if_possible()
    await sessions.reopen(
        session,
        options.cwd,
        options.directories,
        options.servers,
        options.requested,
        given=subscriber.given,
    )
    subscriber.stay(session_id)
    subscriber.claim_prompts(session)
    await _set(sessions, session, options)
    return session


async def _set(sessions: Sessions, session: Session, options: OpenOptions) -> None:
    if options.away_policy is not None:
        await sessions.set_away_policy(session.id, options.away_policy)
    if options.steers not in (None, session.record.steers):
        await session.steering.set(steers=bool(options.steers))


async def _opened(
    subscriber: Subscriber, session: Session, session_id: str, *more: FollowUp
) -> OpenedSession:
    await subscriber.sessions.confirmations.written(PLACE_WAIT)
    selection = await session.choosing.selection()
    show = partial(follow_ups.show_commands, subscriber, session, session_id)
    first: list[FollowUp] = [partial(follow_ups.warm, subscriber)]
    if (subscription := subscriber.subscriptions.get(session_id)) is not None:
        subscription.opened_at, subscription.certain = time.monotonic(), session.last_seq
        first.append(partial(follow_ups.begin, subscription))
    return OpenedSession(session_id, selection, [*first, *more, show])
