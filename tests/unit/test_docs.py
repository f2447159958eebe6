"""The documents: their form, and those for developers, compared with the program."""

from __future__ import annotations

import json
import re
import tomllib
from typing import get_args

import pytest

from pykoclaw_acp import __version__
from pykoclaw_acp.channel import frames
from pykoclaw_acp.cli import cli
from pykoclaw_acp.config import listing, loading
from pykoclaw_acp.front import ledger
from pykoclaw_acp.front import link as front_link
from pykoclaw_acp.link import lines
from pykoclaw_acp.model import turns
from pykoclaw_acp.protocol import long_lines
from pykoclaw_acp.server import health, introduction, link
from pykoclaw_acp.sessions.session import Session
from tests.unit.documents import (
    DOCUMENTS,
    PACKAGE,
    ROOT,
    anchors,
    codes,
    rows_of,
    section,
    table,
    text,
)

MOST_MODULES = 30  # that a reader can follow, on the main path of a prompt
INTERNAL_VARIABLES = {"PYKOCLAW_WORKER", "PYKOCLAW_CRASH_AT"}
FRONT_VARIABLES = {"PYKOCLAW_DAEMON_TIMEOUT", "PYKOCLAW_ACP_LOG_LEVEL"}


def defined(module: str) -> set[str]:
    """The names of a module's functions and variables, and those of its classes."""
    source = (PACKAGE / module).read_text()
    named = r"^ *(?:async )?(?:def|class) (\w+)|^ *(?:self\.)?(\w+)(?:: .*)? = |^    (\w+): "
    return {name for names in re.findall(named, source, re.MULTILINE) for name in names}


# --- form


@pytest.mark.parametrize("document", DOCUMENTS)
def test_lines_can_be_read_in_any_editor(document: str) -> None:
    assert [line for line in text(document).splitlines() if len(line) > 140] == []


@pytest.mark.parametrize("document", DOCUMENTS)
def test_links_lead_somewhere(document: str) -> None:
    folder = (ROOT / document).parent
    for target in re.findall(r"\]\(([^)]+)\)", text(document)):
        path, _, anchor = target.partition("#")
        if "://" in target:
            continue
        assert (folder / path).exists(), target
        if anchor:
            assert anchor in anchors((folder / path if path else ROOT / document).read_text()), (
                target
            )


@pytest.mark.parametrize("document", DOCUMENTS)
def test_variables_commands_and_make_targets_exist(document: str) -> None:
    known = (
        {line.env for line in listing.describe(loading.load())}
        | INTERNAL_VARIABLES
        | FRONT_VARIABLES
    )
    assert set(re.findall(r"PYKOCLAW_[A-Z_]+[A-Z]", text(document))) <= known
    command = r"`pykoclaw-acp ([a-z][a-z-]*)(?![^`]*\.`)"  # a message ends with a full stop
    assert set(re.findall(command, text(document))) <= set(cli.commands)
    targets = set(re.findall(r"^([a-z0-9-]+):", text("Makefile"), re.MULTILINE))
    assert (
        set(re.findall(r"(?:^|`)make ([a-z][a-z0-9-]*)", text(document), re.MULTILINE)) <= targets
    )


# --- docs/link.md


def test_link_lines_match_those_written_and_read() -> None:
    for heading, kinds in (
        ("From the front", lines.FROM_FRONT),
        ("From the daemon", lines.FROM_DAEMON),
    ):
        rows = table_in("docs/link.md", heading, "line")
        assert [codes(row[0]) for row in rows] == [[str(kind)] for kind in kinds]
    assert set(front_link.HANDLERS) == set(lines.FROM_DAEMON)
    assert {lines.HELLO, *link.HANDLERS} == set(lines.FROM_FRONT)


def test_the_introduction_of_a_front_has_these_fields() -> None:
    rows = table("docs/link.md", "field of `front {…}`")
    hello = json.loads(ledger.Ledger().hello({}).removeprefix(lines.GREETING))
    assert (
        {name for row in rows for name in codes(row[0])}
        == set(hello)
        == set(introduction.FrontHello.__struct_encode_fields__)
    )
    (row,) = (row for row in rows if codes(row[0]) == ["sessions"])
    assert codes(row[1]) == list(introduction.ReportedSession.__struct_fields__)
    assert f"of this vocabulary ({lines.LINK})" in text("docs/link.md")
    values = long_lines.MOST_VALUES * introduction.MESSAGES
    assert f"{values:,} values in {long_lines.MOST_DEPTH} levels" in text("docs/link.md")


# --- docs/architecture.md


@pytest.mark.parametrize("document", ["docs/architecture.md", "CONTRIBUTING.md"])
def test_modules_that_are_named_exist(document: str) -> None:
    named = {
        name
        for code in codes(text(document))
        for name in re.findall(r"^[a-z_]+/?[a-z_-]+(?:\.py|-exec)$", code)
    }
    assert named
    for name in named - {"scripted-model.md"}:
        assert (PACKAGE / name).is_file() or (ROOT / name).is_file(), name


def test_the_glossary_leads_to_modules_that_exist() -> None:
    rows = table("CONTRIBUTING.md", "term")
    assert len({row[0] for row in rows}) == len(rows)
    for place in (code for row in rows for code in codes(row[2])):
        assert (PACKAGE / place).exists(), place


def test_each_prompt_step_names_function_of_its_module() -> None:
    rows = table("docs/architecture.md", "step | where")
    assert [row[0] for row in rows] == [str(number) for number in range(1, 21)]
    for row in rows:
        assert re.match(r"`[a-z_/]+\.py` `[a-z_]+`$", row[1]), row
    named = {code for row in rows for code in codes(" ".join(row)) if code.endswith(".py")}
    assert len(named) <= MOST_MODULES
    introduction = section("docs/architecture.md", "The life of a prompt").split("\n\n")[0]
    assert f"the {len(named)} modules to open" in introduction


def test_names_after_modules_are_defined_there() -> None:
    named = re.findall(r"`([a-z_/]+\.py)`\s`(\w+)`", text("docs/architecture.md"))
    assert named
    for module, name in named:
        assert name in defined(module), (module, name)


def test_members_that_are_named_exist() -> None:
    modules = [str(path.relative_to(PACKAGE)) for path in sorted(PACKAGE.rglob("*.py"))]
    known = {module: defined(module) for module in modules}
    named = re.findall(r"`([A-Z]\w*[a-z]\w*)\.([a-z_]+)`", text("docs/architecture.md"))
    assert named
    for owner, name in named:
        assert any({owner, name} <= names for names in known.values()), (owner, name)


def test_session_methods_that_are_named_exist() -> None:
    (said,) = re.findall(r"\*\*Who decides\*\*.*?\n\n", text("docs/architecture.md"), re.DOTALL)
    alone = re.findall(r"`[\w/]+\.py`\s`\w+`|`(\w+)`", said)
    methods = {name for name in alone if name}
    assert "_settle" in methods
    assert methods <= vars(Session).keys()


def test_layout_lists_every_package_and_top_module() -> None:
    layout = section("docs/architecture.md", "Layout")
    folders = {
        path.parent.relative_to(PACKAGE).as_posix() for path in PACKAGE.glob("**/__init__.py")
    } - {"."}
    assert {name.strip("/") for name in re.findall(r"\*\*`([a-z_/]+/)`\*\*", layout)} == folders
    for path in PACKAGE.glob("*.py"):
        assert path.name.startswith("__") or f"`{path.name}`" in layout, path.name


def test_lines_of_layout_are_layers_of_contract() -> None:
    (layers,) = (
        [set(layer.split(" | ")) for layer in contract["layers"]]
        for contract in tomllib.loads(text("pyproject.toml"))["tool"]["importlinter"]["contracts"]
        if contract["type"] == "layers"
    )
    lines: list[set[str]] = []
    for row in table("docs/architecture.md", "layer"):
        names = {name.removesuffix("/").removesuffix(".py") for name in codes(row[0])}
        above = {name.partition("/")[0] for name in names if "/" in name}
        if above:  # inside of another package
            assert above <= lines[-1], row
        else:
            lines.append(names)
    assert lines == layers


def test_the_tables_are_those_of_the_migrations() -> None:
    sql = "".join(path.read_text() for path in (ROOT / "migrations").glob("*.sql"))
    made = set(re.findall(r"CREATE TABLE (?:IF NOT EXISTS )?(\w+)", sql)) | {"acp_migrations"}
    assert {codes(row[0])[0] for row in table("docs/architecture.md", "table")} == made


def test_the_states_of_a_turn_are_named() -> None:
    assert set(turns.TurnState) <= set(codes(text("docs/architecture.md")))


def test_the_frames_are_those_of_the_channel() -> None:
    rows = table("docs/architecture.md", "to the worker")
    both = (get_args(frames.ToWorker), get_args(frames.FromWorker))
    for column, kinds in enumerate(both):
        assert {code for row in rows for code in codes(row[column])} == {
            kind.__struct_config__.tag for kind in kinds
        }


# --- CHANGELOG and deploy/


def test_the_changelog_knows_this_version() -> None:
    versions = re.findall(
        r"^## \[([^\]]+)\](?: - (\d{4}-\d{2}-\d{2}))?$", text("CHANGELOG.md"), re.MULTILINE
    )
    assert versions[0] == ("Unreleased", "")
    assert __version__ in [version for version, date in versions if date]


def test_the_files_of_deploy_are_named_and_there() -> None:
    links = set(re.findall(r"\]\(([a-z][^)#:]*)\)", text("deploy/README.md")))
    files = {
        str(path.relative_to(ROOT / "deploy"))
        for path in (ROOT / "deploy").rglob("*")
        if path.is_file()
    }
    assert links == files - {"README.md"}


def test_the_deploy_recipe_is_that_of_the_units() -> None:
    service = text("deploy/user/pykoclaw-acp.service")
    readme = " ".join(text("deploy/README.md").split())
    assert "WatchdogSec=30" in service
    assert "StartLimitBurst=10" in service
    assert f"Every {30 / 4:g} s" in readme
    assert f"for {health.ANSWER_WAIT:g} s" in readme


def test_mitto_needs_no_settings() -> None:
    assert re.findall(r"^ *command: (.*)$", text("deploy/mitto.yaml"), re.MULTILINE) == [
        "pykoclaw-acp"
    ]


# --- parts


def table_in(document: str, heading: str, header: str) -> list[list[str]]:
    return rows_of(section(document, heading), header)
