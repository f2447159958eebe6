from __future__ import annotations

import json
import subprocess
import sys

HEAVY = {
    "anyio",
    "claude_agent_sdk",
    "msgspec",
    "pydantic",
    "pydantic_settings",
    "rich",
    "structlog",
}


def imported(statement: str) -> set[str]:
    """The modules that `statement` imports in a fresh interpreter, beyond what its start did."""
    program = (
        f"import json, sys; before = set(sys.modules); {statement};"
        " print(json.dumps(list(set(sys.modules) - before)))"
    )
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    )
    return set(json.loads(result.stdout))


def test_importing_the_package_imports_nothing_else() -> None:
    assert imported("import pykoclaw_acp") == {"pykoclaw_acp"}


def test_the_command_line_imports_nothing_that_is_slow() -> None:
    modules = imported("import pykoclaw_acp.cli")
    assert {name.partition(".")[0] for name in modules} & HEAVY == set()
    assert {name for name in modules if name.startswith("pykoclaw_acp")} == {
        "pykoclaw_acp",
        "pykoclaw_acp.cli",
        "pykoclaw_acp.cli.deploy",
        "pykoclaw_acp.cli.accounts",
        "pykoclaw_acp.cli.mcp",
        "pykoclaw_acp.cli.options",
        "pykoclaw_acp.cli.program",
        "pykoclaw_acp.cli.prompt",
        "pykoclaw_acp.cli.rules",
        "pykoclaw_acp.cli.scripted",
        "pykoclaw_acp.cli.sessions",
        "pykoclaw_acp.cli.inspection",
        "pykoclaw_acp.cli.tasks",
        "pykoclaw_acp.cli.trust",
        "pykoclaw_acp.cli.workers",
        "pykoclaw_acp.error_kinds",
        "pykoclaw_acp.errors",
        "pykoclaw_acp.system",
        "pykoclaw_acp.system.machine",
    }


def test_the_plugin_imports_nothing_until_it_is_asked() -> None:
    assert {
        name for name in imported("import pykoclaw_acp.plugin") if name.startswith("pykoclaw_acp")
    } == {
        "pykoclaw_acp",
        "pykoclaw_acp.plugin",
    }


def test_settings_import_neither_the_server_nor_the_sdk() -> None:
    modules = imported("import pykoclaw_acp.config.loading")
    assert {name.partition(".")[0] for name in modules} & (
        HEAVY - {"pydantic", "pydantic_settings"}
    ) == set()
