"""`acp_instance`: the instance's id, and the last known place of its data directory."""

from __future__ import annotations

from dataclasses import dataclass

from pykoclaw_acp.link.records import Site
from pykoclaw_acp.store.database import Database, Statement
from pykoclaw_acp.store.sessions import now_ms


@dataclass(frozen=True, slots=True)
class InstanceRow:
    """The one row. `formerly`: the name used by workers launched before instances had ids."""

    instance: str
    formerly: str | None
    site: Site
    copied_from: str | None = None
    copied_at: int | None = None  # ms since 1970


async def read(database: Database) -> InstanceRow | None:
    """The row; None if the database has no id yet, or none that can be read."""
    rows = await database.read(
        "SELECT instance, formerly, data, device, inode, boot_id, copied_from, copied_at FROM acp_instance"
    )
    if not rows:
        return None
    instance, formerly, data, device, inode, boot_id, copied_from, copied_at = rows[0]
    try:
        site = Site(data, int(device), int(inode), boot_id)
    except (ValueError, TypeError):
        return None
    return InstanceRow(instance, formerly, site, copied_from, copied_at)


def save(row: InstanceRow) -> Statement:
    """Replace the row."""
    site = row.site
    return Statement(
        "INSERT INTO acp_instance"
        " (single, instance, formerly, data, device, inode, boot_id, copied_from, copied_at, created_at)"
        " VALUES (1, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
        " ON CONFLICT (single) DO UPDATE SET instance = excluded.instance, formerly = excluded.formerly,"
        " data = excluded.data, device = excluded.device, inode = excluded.inode, boot_id = excluded.boot_id,"
        " copied_from = excluded.copied_from, copied_at = excluded.copied_at",
        (
            row.instance,
            row.formerly,
            site.path,
            str(site.device),
            str(site.inode),
            site.boot_id,
            row.copied_from,
            row.copied_at,
            now_ms(),
        ),
    )
