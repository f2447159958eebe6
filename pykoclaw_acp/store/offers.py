"""`acp_offers`: what Claude offers in a directory, as its last worker reported."""

from __future__ import annotations

import msgspec

from pykoclaw_acp.model.choices import Command, Model, Offer
from pykoclaw_acp.store.database import Database, Statement
from pykoclaw_acp.store.sessions import now_ms


def keep(cwd: str, offer: Offer) -> Statement:
    """Replace the directory's offer."""
    return Statement(
        "INSERT INTO acp_offers (cwd, commands, models, updated_at, position)"
        " VALUES (?, ?, ?, ?, (SELECT COALESCE(MAX(position), 0) + 1 FROM acp_offers)) ON CONFLICT (cwd) DO UPDATE"
        " SET commands = excluded.commands, models = excluded.models, updated_at = excluded.updated_at,"
        " position = excluded.position",
        (
            cwd,
            msgspec.json.encode(offer.commands).decode(),
            msgspec.json.encode(offer.models).decode(),
            now_ms(),
        ),
    )


async def of(database: Database, cwd: str) -> Offer | None:
    """The directory's offer; None if no worker ran there."""
    rows = await database.read("SELECT commands, models FROM acp_offers WHERE cwd = ?", (cwd,))
    return _offer(*rows[0]) if rows else None


async def newest(database: Database) -> Offer | None:
    """The newest offer of any directory: models belong to the account."""
    rows = await database.read(
        "SELECT commands, models FROM acp_offers ORDER BY position DESC LIMIT 1"
    )
    return _offer(*rows[0]) if rows else None


def _offer(commands: str, models: str) -> Offer | None:
    """Decode a row; one that is unreadable counts as none, and the next worker replaces it."""
    try:
        return Offer(
            msgspec.json.decode(commands, type=tuple[Command, ...]),
            msgspec.json.decode(models, type=tuple[Model, ...]),
        )
    except msgspec.MsgspecError:
        return None
