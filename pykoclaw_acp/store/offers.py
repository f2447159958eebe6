"""`acp_offers`: what Claude offers in a directory, as the last worker there said."""

from __future__ import annotations

import msgspec

from pykoclaw_acp.model.choices import Choice, Command, Offer
from pykoclaw_acp.store.database import Database, Statement
from pykoclaw_acp.store.sessions import now_ms


def keep(cwd: str, offer: Offer) -> Statement:
    """A worker said it."""
    return Statement(
        "INSERT INTO acp_offers (cwd, commands, models, updated_at, position)"
        " VALUES (?, ?, ?, ?, (SELECT COALESCE(MAX(position), 0) + 1 FROM acp_offers)) ON CONFLICT (cwd) DO UPDATE"
        " SET commands = excluded.commands, models = excluded.models, updated_at = excluded.updated_at,"
        " position = excluded.position",
        (cwd, msgspec.json.encode(offer.commands).decode(), msgspec.json.encode(offer.models).decode(), now_ms()),
    )


async def of(database: Database, cwd: str) -> Offer | None:
    """What is offered in this directory; None if no worker ran there."""
    rows = await database.read("SELECT commands, models FROM acp_offers WHERE cwd = ?", (cwd,))
    return _offer(*rows[0]) if rows else None


async def newest(database: Database) -> Offer | None:
    """What was offered last, wherever that was: models are those of the account."""
    rows = await database.read("SELECT commands, models FROM acp_offers ORDER BY position DESC LIMIT 1")
    return _offer(*rows[0]) if rows else None


def _offer(commands: str, models: str) -> Offer | None:
    """A row that cannot be read counts as none: the next worker replaces it."""
    try:
        return Offer(
            msgspec.json.decode(commands, type=tuple[Command, ...]),
            msgspec.json.decode(models, type=tuple[Choice, ...]),
        )
    except msgspec.MsgspecError:
        return None
