"""Plugins of pykoclaw, as distributions on PYTHONPATH: what `pip install` would leave behind."""

from __future__ import annotations

import os
from pathlib import Path
from textwrap import dedent

GREETER = """
    from claude_agent_sdk import create_sdk_mcp_server, tool

    class Plugin:
        def register_commands(self, group): pass
        def get_db_migrations(self):
            return ["CREATE TABLE IF NOT EXISTS hello_greeted (name TEXT PRIMARY KEY, times INTEGER)"]
        def get_config_class(self): return None
        def get_mcp_servers(self, db, conversation):
            @tool("greet", "Greets.", {"name": str})
            async def greet(given):
                db.execute(
                    "INSERT INTO hello_greeted VALUES (?, 1) ON CONFLICT (name) DO UPDATE SET times = times + 1",
                    (given["name"],),
                )
                db.commit()
                row = db.execute("SELECT * FROM hello_greeted WHERE name = ?", (given["name"],)).fetchone()
                words = f"Hello {row['name']} of {conversation}, {row['times']}."
                return {"content": [{"type": "text", "text": words}]}
            return {"hello": create_sdk_mcp_server("hello", tools=[greet])}
"""


def install(root: Path, name: str, code: str, value: str = "Plugin") -> None:
    """A distribution `name` with one module and one entry point of pykoclaw's plugins."""
    root.mkdir(exist_ok=True)
    (root / f"{name}_plugin.py").write_text(dedent(code))
    info = root / f"{name}-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1\n")
    (info / "entry_points.txt").write_text(f"[pykoclaw.plugins]\n{name} = {name}_plugin:{value}\n")


def path(root: Path) -> dict[str, str]:
    """The environment in which these plugins are found."""
    return {"PYTHONPATH": os.fspath(root), "PYTHONDONTWRITEBYTECODE": "1"}
