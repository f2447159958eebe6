"""Asking one client one permission request: once, and again if nobody was there to see it.

Mitto answers `cancelled` within milliseconds while none of its windows shows the session, and again
when a request has been open for 5 minutes. That is no decision, and no later message says that a
window was opened: so it is asked again, at the client's next request about the session and after
pauses that grow. Only a request that stays open counts as seen.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Final

import structlog

from pykoclaw_acp.model.away import AwayPolicy
from pykoclaw_acp.model.permissions import Decision, PermissionRequest, RequestOutcome
from pykoclaw_acp.sessions.permissions import decisions
from pykoclaw_acp.sessions.permissions.away import Away
from pykoclaw_acp.sessions.permissions.pending import PendingRequest
from pykoclaw_acp.sessions.subscription import Subscription

FIRST: Final = 10.0  # s until it is asked again
LONGEST: Final = 300.0  # s
SEEN_AFTER: Final = 2.0  # s that a request which is sent again stays open if somebody is there

log: Final = structlog.get_logger()


def pause(times: int) -> float:
    """How long (s) to wait after the client was absent so many times in a row."""
    return float(min(FIRST * 2.0 ** min(times - 1, 10), LONGEST))


async def ask(
    one: PendingRequest, request: PermissionRequest, subscription: Subscription, away: Away
) -> None:
    """Take a client's choice, which is asked this `request`; that it does not choose counts if
    nobody else can be asked, unless it went away.
    """
    absences = 0
    while (decision := await _ask_once(one, request, subscription, away)) is not None:
        if decisions.is_choice(request, decision):
            one.decide(decision)
            return
        if not _is_absent(one, subscription, decision, away):
            break
        absences = 1 if subscription not in one.absent else absences + 1
        one.absent.add(subscription)
        subscription.client.close_request(one.request.ask_id)  # else its front keeps that answer
        if not away.is_attended(one) and not one.clock.runs:
            away.start(one)
        subscription.noticed.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(pause(absences)):
                await subscription.noticed.wait()
        if not subscription.alive:
            return
    else:
        return
    one.passed[subscription] = decision
    if not one.parking and not away.is_attended(one):
        one.decide(decision)
    else:
        # for this client: it will be asked again when it comes back
        subscription.client.close_request(one.request.ask_id)


async def _ask_once(
    one: PendingRequest, request: PermissionRequest, subscription: Subscription, away: Away
) -> Decision | None:
    """What the client says; None if it is gone."""
    client = subscription.client
    seen: asyncio.TimerHandle | None = None
    try:
        async with subscription.asking:
            await subscription.reached(one.seq)
            if not subscription.alive:
                return None
            if subscription in one.absent:
                loop = asyncio.get_running_loop()
                seen = loop.call_later(SEEN_AFTER, _see, one, subscription, away)
            outcome = await client.request_permission(subscription.session_id, request)
        return decisions.by_client(request, outcome, client.name)
    except ConnectionError:
        return None
    except Exception as error:  # noqa: BLE001  whatever a client does, the request is settled
        log.info("A client could not answer", action="permission_unanswered", error=repr(error))
        return decisions.UNANSWERED
    finally:
        if seen is not None:
            seen.cancel()


def _see(one: PendingRequest, subscription: Subscription, away: Away) -> None:
    """Somebody is there: the request is open."""
    one.absent.discard(subscription)
    away.stop(one)


def _is_absent(
    one: PendingRequest, subscription: Subscription, decision: Decision, away: Away
) -> bool:
    """Whether the answer says that nobody is there. Trust in a directory waits for somebody under the
    policy `park` alone, and a form was seen.
    """
    cancelled = decision.outcome in (RequestOutcome.CANCELLED, RequestOutcome.CANCEL)
    waits = not one.request.workspaces or away.policy == AwayPolicy.PARK
    kind = one.request.form is None and waits
    return cancelled and kind and subscription.client.cancels_when_absent
