"""`acp_offers`: what Claude offers in a directory under a configuration, as the last worker reported."""

from __future__ import annotations

import json
from typing import Final

import msgspec

from pykoclaw_acp.model.choices import Command, Configuration, Model, Offer
from pykoclaw_acp.store.database import Database, Statement
from pykoclaw_acp.store.sessions import now_ms

KEPT: Final = 300  # offers


def keep(cwd: str, offer: Offer, configuration: Configuration) -> Statement:
    """Replace the directory's offer under this configuration."""
    return Statement(
        "INSERT INTO acp_offers (cwd, account, configuration, commands, models, updated_at, position)"
        " VALUES (?, ?, ?, ?, ?, ?, (SELECT COALESCE(MAX(position), 0) + 1 FROM acp_offers))"
        " ON CONFLICT (cwd, configuration) DO UPDATE SET commands = excluded.commands, models = excluded.models,"
        " updated_at = excluded.updated_at, position = excluded.position",
        (
            cwd,
            configuration.models_of,
            _text(configuration),
            msgspec.json.encode(offer.commands).decode(),
            msgspec.json.encode(offer.models).decode(),
            now_ms(),
        ),
    )


def drop_old() -> Statement:
    """Delete all but the newest offers; their directories use those of others then."""
    return Statement(
        "DELETE FROM acp_offers WHERE position < (SELECT position FROM acp_offers"
        " ORDER BY position DESC LIMIT 1 OFFSET ?)",
        (KEPT - 1,),
    )


async def of(database: Database, cwd: str, configuration: Configuration) -> Offer | None:
    """The directory's offer under this configuration; None if no worker ran there with it."""
    rows = await database.read(
        "SELECT commands, models FROM acp_offers WHERE cwd = ? AND configuration = ?",
        (cwd, _text(configuration)),
    )
    return _offer(*rows[0]) if rows else None


async def newest(database: Database, configuration: Configuration) -> Offer | None:
    """The newest offer of any directory under this configuration."""
    rows = await database.read(
        "SELECT commands, models FROM acp_offers WHERE configuration = ? ORDER BY position DESC LIMIT 1",
        (_text(configuration),),
    )
    return _offer(*rows[0]) if rows else None


async def newest_alike(database: Database, configuration: Configuration) -> Offer | None:
    """The newest offer of any directory whose models belong to the same account and service."""
    rows = await database.read(
        "SELECT commands, models FROM acp_offers WHERE account = ? ORDER BY position DESC LIMIT 1",
        (configuration.models_of,),
    )
    return _offer(*rows[0]) if rows else None


def _text(configuration: Configuration) -> str:
    """A configuration as rows have it, also those of earlier versions."""
    told = [configuration.account, configuration.setting_sources, configuration.cli_path]
    return json.dumps([*told, configuration.service] if configuration.service else told)


def _offer(commands: str, models: str) -> Offer | None:
    """Decode a row; one that is unreadable counts as none, and the next worker replaces it."""
    try:
        return Offer(
            msgspec.json.decode(commands, type=tuple[Command, ...]),
            msgspec.json.decode(models, type=tuple[Model, ...]),
        )
    except msgspec.MsgspecError:
        return None
