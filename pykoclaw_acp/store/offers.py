"""`acp_offers`: what Claude offers in a directory, as its last worker reported."""

from __future__ import annotations

from typing import Final

import msgspec

from pykoclaw_acp.model.choices import Command, Model, Offer
from pykoclaw_acp.store.database import Database, Statement
from pykoclaw_acp.store.sessions import now_ms

KEPT: Final = 300  # directories


def keep(cwd: str, offer: Offer, configuration: str) -> Statement:
    """Replace the directory's offer."""
    return Statement(
        "INSERT INTO acp_offers (cwd, commands, models, updated_at, configuration, position)"
        " VALUES (?, ?, ?, ?, ?, (SELECT COALESCE(MAX(position), 0) + 1 FROM acp_offers)) ON CONFLICT (cwd) DO UPDATE"
        " SET commands = excluded.commands, models = excluded.models, updated_at = excluded.updated_at,"
        " configuration = excluded.configuration, position = excluded.position",
        (
            cwd,
            msgspec.json.encode(offer.commands).decode(),
            msgspec.json.encode(offer.models).decode(),
            now_ms(),
            configuration,
        ),
    )


def drop_old() -> Statement:
    """Delete the offers of all but the newest directories, which use those of others then."""
    return Statement(
        "DELETE FROM acp_offers WHERE position < (SELECT position FROM acp_offers"
        " ORDER BY position DESC LIMIT 1 OFFSET ?)",
        (KEPT - 1,),
    )


async def of(database: Database, cwd: str) -> tuple[Offer | None, str | None]:
    """The directory's offer, None if no worker ran there; and its configuration, if that is known."""
    rows = await database.read(
        "SELECT commands, models, configuration FROM acp_offers WHERE cwd = ?", (cwd,)
    )
    return (_offer(*rows[0][:2]), rows[0][2]) if rows else (None, None)


async def newest(database: Database, configuration: str | None = None) -> Offer | None:
    """The newest offer of any directory, of this configuration if one is given: models belong to the
    account.
    """
    where, given = (
        ("", ()) if configuration is None else ("WHERE configuration = ?", (configuration,))
    )
    rows = await database.read(
        f"SELECT commands, models FROM acp_offers {where} ORDER BY position DESC LIMIT 1",  # noqa: S608
        given,
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
