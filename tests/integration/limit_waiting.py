"""Sessions that wait for the end of a usage limit."""

from __future__ import annotations

from pykoclaw_acp.model.limit_waits import LimitWait
from pykoclaw_acp.model.session_environment import StoredEnvironment
from pykoclaw_acp.sessions.session import Session
from pykoclaw_acp.store import limit_waits
from pykoclaw_acp.store.units import Unit
from tests.integration.rig import Rig
from tests.waiting import eventually

TOKEN = "CLAUDE_CODE_OAUTH_TOKEN"


async def waiting(r: Rig, tries: int = 0) -> Session:
    """A session that is to go on, without the client that gives its credential."""
    session = await r.session()
    await r.run(session, "say 1")
    session.record.environment = StoredEnvironment(secrets=(TOKEN,))
    for subscription in list(session.subscriptions):
        subscription.close()
    r.pool.retire(session.id)
    await eventually(lambda: not r.launcher.live)
    newest = "SELECT turn_id FROM acp_turns ORDER BY rowid DESC LIMIT 1"
    ((turn_id,),) = await r.database.read(newest)
    wait = LimitWait(session.id, turn_id, 1, tries)
    await r.database.commit(Unit((limit_waits.add(wait),)))
    return session
