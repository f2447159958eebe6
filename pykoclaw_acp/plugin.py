"""pykoclaw's plugin (entry point group `pykoclaw.plugins`): the command `pykoclaw acp`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import click

    from pykoclaw_acp.config.settings import Settings


class AcpPlugin:
    """The plugin; pykoclaw itself is not imported."""

    def register_commands(self, group: click.Group) -> None:
        """Register our commands below `acp`."""
        from pykoclaw_acp.cli import cli

        group.add_command(cli, "acp")

    def get_mcp_servers(self, db: Any, conversation: str) -> dict[str, Any]:  # noqa: ARG002  pykoclaw's signature
        """No servers: those of an ACP session come from its client."""
        return {}

    def get_db_migrations(self) -> list[str]:
        """No migrations: the daemon applies its own, under the data directory's lock."""
        return []

    def get_config_class(self) -> type[Settings]:
        """Class of the settings."""
        from pykoclaw_acp.config.settings import Settings

        return Settings
