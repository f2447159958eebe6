"""Who of a session's clients can be asked a permission request."""

from __future__ import annotations

from collections.abc import Sequence

from pykoclaw_acp.model.permissions import Decision, Form, PermissionRequest
from pykoclaw_acp.sessions.permissions.pending import PendingRequest
from pykoclaw_acp.sessions.ports import Client
from pykoclaw_acp.sessions.subscription import Subscription


def can_ask(
    subscriptions: Sequence[Subscription], one: Subscription, request: PermissionRequest
) -> bool:
    """Whether the request goes to this subscription; a client with several, under several ids, gets
    it on the first.
    """
    client = one.client
    first = next(other for other in subscriptions if other.client is client)
    return client.present and _shows(client, request.form) and first.session_id == one.session_id


def _shows(client: Client, form: Form | None) -> bool:
    return form is None or (client.forms if form.url is None else client.pages)


def _counts(client: Client, form: Form | None) -> bool:
    """Whether it makes a difference that the client is there: not for a form that can only be declined
    in it.
    """
    return client.present and (form is None or not client.only_declines)


def is_attended(subscriptions: Sequence[Subscription], pending: PendingRequest) -> bool:
    """Whether a client is there that can be asked, has not passed, and has somebody before it."""
    return any(
        one.alive
        and can_ask(subscriptions, one, pending.request)
        and _counts(one.client, pending.request.form)
        and one not in pending.passed
        and one not in pending.absent
        for one in subscriptions
    )


def is_unsupported(subscriptions: Sequence[Subscription], pending: PendingRequest) -> bool:
    """Whether it is a form, clients are there, and none of them can show it."""
    form = pending.request.form
    there = [one for one in subscriptions if one.alive and _counts(one.client, form)]
    return form is not None and bool(there) and not any(_shows(one.client, form) for one in there)


def passed(subscriptions: Sequence[Subscription], pending: PendingRequest) -> Decision | None:
    """What a client that is there said instead of choosing; it counts if nobody else comes."""
    return next((said for one, said in pending.passed.items() if one in subscriptions), None)
