"""A `pykoclaw` distribution that tests put on PYTHONPATH: a package, its metadata with entry
points, and a program `pykoclaw`. Its command group, its order of imports and its plugin protocol
are those of the real one.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from tests.double.roles import CHECKOUT

INIT: Final = ""
DB: Final = "from tests.double.handle import Handle as ThreadSafeConnection, init_db\n"
CONFIG: Final = """\
from pathlib import Path

from pydantic import AliasChoices, Field
from pydantic_settings import BaseSettings


class Settings(BaseSettings):
    model_config = {
        "extra": "ignore", "env_prefix": "PYKOCLAW_", "env_file_encoding": "utf-8",
        "env_file": (str(Path.home() / ".local/share/pykoclaw/.env"), ".env"),
    }
    data: Path = Path.home() / ".local/share/pykoclaw"
    model: str = "claude-opus-4-6"
    cli_path: Path | None = None
    idle_timeout: int = 1800
    brave_api_key: str | None = Field(
        default=None, validation_alias=AliasChoices("BRAVE_API_KEY", "PYKOCLAW_BRAVE_API_KEY")
    )


settings = Settings()  # at import: one bad value is a traceback for every command
"""
PLUGINS: Final = """\
import logging
from importlib.metadata import entry_points

log = logging.getLogger(__name__)


class PykoClawPluginBase:
    def register_commands(self, group):
        pass

    def get_mcp_servers(self, db, conversation):
        return {}

    def get_db_migrations(self):
        return []

    def get_config_class(self):
        return None


def load_plugins():
    found = []
    for point in entry_points(group="pykoclaw.plugins"):
        try:
            found.append(point.load()())
        except Exception:
            log.exception("Failed to load plugin %r", point.name)
    return found


def run_db_migrations(db, plugins):
    for plugin in plugins:
        for sql in plugin.get_db_migrations():  # a failure of the method itself ends every command
            try:
                db.executescript(sql)
            except Exception:
                log.exception("Failed to run migration from %s", type(plugin).__name__)
"""
MAIN: Final = '''\
import asyncio
import os

import click

from pykoclaw.config import settings
import sqlite3  # the standard one, before any plugin can choose another
from pykoclaw.db import init_db
from pykoclaw.plugins import load_plugins, run_db_migrations
from tests.double import scheduler as scheduling
from tests.double.agent import Claude
from tests.double.messaging import send as sending
from tests.double.tables import get_all_tasks, list_conversations
import claude_agent_sdk


def database():
    return init_db(settings.data / "pykoclaw.db")


class PluginGroup(click.Group):
    loaded = False

    def ensure(self):
        if not self.loaded:
            self.loaded = True
            plugins = load_plugins()
            db = database()
            run_db_migrations(db, plugins)
            for plugin in plugins:
                plugin.register_commands(self)

    def list_commands(self, ctx):
        self.ensure()
        return super().list_commands(ctx)

    def get_command(self, ctx, name):
        self.ensure()
        return super().get_command(ctx, name)


@click.group(cls=PluginGroup, invoke_without_command=True)
@click.pass_context
def main(ctx):
    """pykoclaw (a double)"""
    if not ctx.invoked_subcommand:
        click.echo(ctx.get_help())


@main.command()
def scheduler():
    """Run the task scheduler."""
    click.echo("Scheduler started", err=True)
    every = float(os.environ.get("DOUBLE_EVERY", scheduling.EVERY))
    asyncio.run(scheduling.run_scheduler(database(), settings.data, Claude(), every))


@main.command()
def conversations():
    """View conversations."""
    for one in list_conversations(database()):
        click.echo(f"{one.name} | {one.session_id} | {one.created_at}")


@main.command()
def tasks():
    """List scheduled tasks."""
    found = get_all_tasks(database())
    if not found:
        click.echo("No scheduled tasks.")
        return
    click.echo(f"{'ID':<10} {'Conversation':<30} {'Prompt':<50} {'Status':<10} {'Next Run'}")
    click.echo("-" * 110)
    for one in found:
        click.echo(f"{one.id:<10} {one.conversation:<30} {one.prompt[:50]:<50} {one.status:<10} {one.next_run}")


@main.command()
@click.argument("conversation")
@click.argument("prompt")
@click.option("--no-deliver", is_flag=True)
@click.option("--model")
def send(conversation, prompt, no_deliver, model):
    """Send a prompt, deliver its answer."""
    engine = Claude(model or settings.model)
    click.echo(
        asyncio.run(sending(conversation, prompt, database(), settings.data, engine, deliver=not no_deliver))
    )


if __name__ == "__main__":
    main()
'''

_BASE: Final = "from pykoclaw.plugins import PykoClawPluginBase\n\n\n"
PLUGIN_SOURCES: Final = {
    # what works
    "hello": _BASE
    + '''\
from claude_agent_sdk import create_sdk_mcp_server, tool


class Plugin(PykoClawPluginBase):

    def register_commands(self, group):
        import click

        @group.command()
        def hello():
            """Say hello."""
            click.echo("hello")

    def get_mcp_servers(self, db, conversation):
        @tool("greet", "Greets.", {"name": str})
        async def greet(arguments):
            return {"content": [{"type": "text", "text": f"Hello {arguments['name']} in {conversation}."}]}

        @tool("count", "Counts conversations through the database.", {})
        async def count(arguments):
            db.execute("INSERT INTO hello_calls (conversation) VALUES (?)", (conversation,))
            db.commit()
            calls = db.execute("SELECT COUNT(*) AS calls FROM hello_calls").fetchone()["calls"]
            return {"content": [{"type": "text", "text": f"{calls} calls"}]}

        return {"hello": create_sdk_mcp_server("hello", tools=[greet, count])}

    def get_db_migrations(self):
        return ["CREATE TABLE IF NOT EXISTS hello_calls (id INTEGER PRIMARY KEY, conversation TEXT)"]
''',
    # what uses pykoclaw itself, as real ones do
    "uses": _BASE
    + """\
from claude_agent_sdk import create_sdk_mcp_server, tool
from pykoclaw.config import settings
from pykoclaw.db import ThreadSafeConnection


class Plugin(PykoClawPluginBase):

    def get_mcp_servers(self, db, conversation):
        @tool("where", "Says where the data is.", {})
        async def where(arguments):
            pending = db.execute("SELECT COUNT(*) AS found FROM delivery_queue").fetchone()["found"]
            theirs = isinstance(db, ThreadSafeConnection)
            words = f"{settings.data}, {pending} pending, their own handle: {theirs}"
            return {"content": [{"type": "text", "text": words}]}

        return {"uses": create_sdk_mcp_server("uses", tools=[where])}
""",
    # the five failures
    "fails_to_load": "raise ImportError('a library of this plugin is missing')\n",
    "fails_to_construct": _BASE
    + "class Plugin(PykoClawPluginBase):\n"
    + "    def __init__(self):\n        raise RuntimeError('cannot be made')\n",
    "fails_to_migrate": _BASE
    + "class Plugin(PykoClawPluginBase):\n"
    + "    def get_db_migrations(self):\n"
    + "        return ['CREATE TABLE IF NOT EXISTS half (id INTEGER); CREATE NONSENSE', "
    + "'CREATE TABLE IF NOT EXISTS whole (id INTEGER)']\n",
    "fails_to_register": _BASE
    + "class Plugin(PykoClawPluginBase):\n"
    + "    def register_commands(self, group):\n        raise RuntimeError('no commands')\n",
    "fails_to_serve": _BASE
    + "class Plugin(PykoClawPluginBase):\n"
    + "    def get_mcp_servers(self, db, conversation):\n        raise RuntimeError('no servers')\n",
}
"""Plugins by name: what works, and the five failures."""


def install(
    root: Path, plugins: Iterable[str] = (), *, acp: bool = False, python: str = sys.executable
) -> Path:
    """Make the distribution below `root`, with plugins of `PLUGIN_SOURCES`; the directory to put on
    PYTHONPATH.

    `root/bin/pykoclaw` is the program; its scheduler looks every `DOUBLE_EVERY` seconds. Our own
    plugin is found already, where it is installed; with `acp` it is declared here as well.
    `python`: of the environment in which it runs.
    """
    site = root / "site"
    package = site / "pykoclaw"
    package.mkdir(parents=True)
    sources = {
        "__init__": INIT,
        "db": DB,
        "config": CONFIG,
        "plugins": PLUGINS,
        "__main__": MAIN,
    }
    for name, source in sources.items():
        (package / f"{name}.py").write_text(source)
    points = ["acp = pykoclaw_acp.plugin:AcpPlugin"] if acp else []
    for name in plugins:
        (site / f"double_{name}.py").write_text(PLUGIN_SOURCES[name])
        points.append(f"{name} = double_{name}:Plugin")
    _metadata(site, "pykoclaw", "0.1.0", "[console_scripts]\npykoclaw = pykoclaw.__main__:main\n")
    if points:
        lines = "\n".join(["[pykoclaw.plugins]", *points, ""])
        _metadata(site, "pykoclaw-double-plugins", "1", lines)
    program = root / "bin" / "pykoclaw"
    program.parent.mkdir(exist_ok=True)
    program.write_text(
        f"#!{python}\nimport sys\n\nfrom pykoclaw.__main__ import main\n\nsys.exit(main())\n"
    )
    program.chmod(0o755)
    return site


def environment(site: Path, base: dict[str, str], checkout: Path = CHECKOUT) -> dict[str, str]:
    """An environment in which `pykoclaw` is installed: PYTHONPATH and PATH. `checkout`: where these
    tests are found.
    """
    paths = [os.fspath(site), os.fspath(checkout), base.get("PYTHONPATH", "")]
    return {
        **base,
        "PYTHONPATH": os.pathsep.join(filter(None, paths)),
        "PATH": os.pathsep.join([os.fspath(site.parent / "bin"), base.get("PATH", os.defpath)]),
        "IS_SANDBOX": "1",
    }


def _metadata(site: Path, name: str, version: str, entry_points: str) -> None:
    folder = site / f"{name.replace('-', '_')}-{version}.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    (folder / "entry_points.txt").write_text(entry_points)
    (folder / "INSTALLER").write_text("double\n")
    (folder / "RECORD").write_text("")
