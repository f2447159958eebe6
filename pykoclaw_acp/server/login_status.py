"""`auth/status`: whether a client's new sessions have a credential. Nobody is asked, and no program
is started; a credential that Claude's service refuses is found by the next prompt.
"""

from __future__ import annotations

import asyncio
from typing import Final

from pykoclaw_acp.model.session_environment import DaemonEnvironment, shown
from pykoclaw_acp.protocol.messages import AuthAccount, AuthStatusResult
from pykoclaw_acp.protocol.wire import Params
from pykoclaw_acp.server import accounts, authenticating
from pykoclaw_acp.server.acp_client import AcpClient
from pykoclaw_acp.server.call import Call

LOGIN: Final = "Claude, account {}"


async def status(call: Call, params: Params) -> AuthStatusResult:  # noqa: ARG001
    """The state, and the credentials that are known."""
    return await asyncio.to_thread(_status, call.sessions.daemon_environment, call.client)


def _status(daemon_environment: DaemonEnvironment, client: AcpClient) -> AuthStatusResult:
    found = authenticating.credential_of(daemon_environment, client)
    account = authenticating.account_of(daemon_environment, client)
    besides = found if found is not None and "/" not in found else None
    known = [] if besides is None else [AuthAccount(label=besides, active=True)]
    for one in accounts.every(daemon_environment):
        if one.credential == "login":
            used = besides is None and one.name == shown(account)
            known.append(AuthAccount(label=LOGIN.format(one.name), active=used))
    if client.logged_out:
        known = [AuthAccount(label=one.label, active=False) for one in known]
    there = found is not None and not client.logged_out
    return AuthStatusResult(
        state="authenticated" if there else "unauthenticated", accounts=tuple(known)
    )
