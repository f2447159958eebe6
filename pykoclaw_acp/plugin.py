"""What pykoclaw finds under its entry point group `pykoclaw.plugins`: the command `pykoclaw acp`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import click

    from pykoclaw_acp.config import Settings


class AcpPlugin:
    """A pykoclaw plugin; pykoclaw itself is neither needed nor imported."""

    def register_commands(self, group: click.Group) -> None:
        """Add our commands to pykoclaw's, as `acp`."""
        from pykoclaw_acp.cli import cli

        group.add_command(cli, "acp")

    def get_mcp_servers(self, db: Any, conversation: str) -> dict[str, Any]:  # noqa: ARG002  pykoclaw's signature
        """None: an ACP session's MCP servers come from its client."""
        return {}

    def get_db_migrations(self) -> list[str]:
        """None: our server migrates the database itself, while it holds the data directory's lock."""
        return []

    def get_config_class(self) -> type[Settings]:
        """The settings, which read their own environment and files."""
        from pykoclaw_acp.config import Settings

        return Settings
