"""The dispatch table: every ACP method that clients can call."""

from __future__ import annotations

from typing import Any, Final

from pykoclaw_acp.protocol import messages, session_meta
from pykoclaw_acp.protocol.replay import REPLAY
from pykoclaw_acp.protocol.wire import Params
from pykoclaw_acp.server import (
    authenticating,
    forks,
    initialize,
    lifecycle,
    listing,
    login_status,
    prompts,
    selection,
    steering,
    whole_prompts,
)
from pykoclaw_acp.server.call import Call
from pykoclaw_acp.server.dispatch import Method
from pykoclaw_acp.sessions import new_session, opening
from pykoclaw_acp.sessions.turns.deduplication import IDEMPOTENCY

_OPENING: Final = frozenset(
    {lifecycle.AWAY_POLICY, steering.STEERING, new_session.ACCOUNT, *session_meta.OWN_KEYS}
)

METHODS: Final[dict[str, Method[Call, Any]]] = {
    "initialize": Method(messages.InitializeParams, initialize.initialize, before_initialize=True),
    "authenticate": Method(messages.AuthenticateParams, authenticating.authenticate),
    "logout": Method(Params, authenticating.logout, slow=True),
    "auth/status": Method(Params, login_status.status),
    "session/new": Method(messages.NewSessionParams, lifecycle.new, slow=True, meta=_OPENING),
    "session/load": Method(
        messages.LoadSessionParams, lifecycle.load, opens=True, meta=_OPENING | {REPLAY}
    ),
    "session/resume": Method(
        messages.ResumeSessionParams, lifecycle.resume, opens=True, meta=_OPENING | {opening.AFTER}
    ),
    "session/fork": Method(
        messages.ForkSessionParams,
        forks.fork,
        opens=True,
        meta=frozenset({lifecycle.AWAY_POLICY, steering.STEERING, forks.MESSAGE}),
    ),
    "session/close": Method(messages.SessionParams, lifecycle.close, changes=True),
    "session/list": Method(messages.ListSessionsParams, listing.list_sessions, slow=True),
    "session/delete": Method(messages.SessionParams, listing.delete, changes=True),
    "session/archive": Method(messages.SessionParams, listing.archive, changes=True),
    "session/unarchive": Method(messages.SessionParams, listing.unarchive, changes=True),
    "session/set_title": Method(messages.SetTitleParams, listing.set_title, changes=True),
    "session/set_mode": Method(messages.SetModeParams, selection.set_mode, changes=True),
    "session/set_model": Method(messages.SetModelParams, selection.set_model, changes=True),
    "session/set_config_option": Method(
        messages.SetConfigOptionParams, selection.set_config_option, changes=True
    ),
    "session/prompt": Method(
        messages.PromptParams,
        prompts.prompt,
        answers_cancel=True,
        meta=frozenset({IDEMPOTENCY, steering.STEERING, whole_prompts.WHOLE}),
    ),
    "_session/steering": Method(messages.PromptParams, prompts.steer, takes_unseen=True),
    "session/cancel": Method(messages.SessionParams, prompts.cancel),
}
