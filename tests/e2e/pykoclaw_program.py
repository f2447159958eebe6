"""A `pykoclaw` with our plugin: it imports the standard `sqlite3`, opens its database, lets a plugin
print, and then looks for commands, as the real one does.
"""

from __future__ import annotations

import sys
from pathlib import Path

PRINTED = "a plugin says hello"
SOURCE = f"""\
import os
import sqlite3
from importlib.metadata import entry_points

import click


class Plugins(click.Group):
    loaded = False

    def load(self):
        if self.loaded:
            return
        self.loaded = True
        data = os.environ.get("PYKOCLAW_DATA") or os.path.expanduser("~/.local/share/pykoclaw")
        os.makedirs(data, exist_ok=True)
        self.db = sqlite3.connect(data + "/pykoclaw.db", check_same_thread=False)
        self.db.execute(
            "CREATE TABLE IF NOT EXISTS conversations (name TEXT PRIMARY KEY, session_id TEXT,"
            " cwd TEXT, created_at TEXT NOT NULL, system_prompt_hash TEXT)"
        )
        print({PRINTED!r})
        for point in entry_points(group="pykoclaw.plugins"):
            point.load()().register_commands(self)

    def list_commands(self, ctx):
        self.load()
        return super().list_commands(ctx)

    def get_command(self, ctx, name):
        self.load()
        return super().get_command(ctx, name)


@click.group(cls=Plugins)
def main():
    pass


main(prog_name="pykoclaw")
"""


def install(folder: Path) -> tuple[str, ...]:
    """Make the program in `folder`; returns the command `pykoclaw acp`."""
    folder.mkdir()
    program = folder / "pykoclaw"
    program.write_text(f"#!{sys.executable}\n{SOURCE}")
    program.chmod(0o755)
    return str(program), "acp"
