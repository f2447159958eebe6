"""The documentation, held to account by the code."""

from __future__ import annotations

import ast
import inspect
import json
import os
import pwd
import re
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, get_args

import click
import pytest
from claude_agent_sdk.types import AssistantMessageError

import pykoclaw_acp.front.call  # noqa: F401  it has an exit status of its own
from pykoclaw_acp import __version__, config, errors
from pykoclaw_acp.channel import frames
from pykoclaw_acp.cli import cli
from pykoclaw_acp.front import dial, ledger, relay
from pykoclaw_acp.front import link as front_link
from pykoclaw_acp.link import framing, lines
from pykoclaw_acp.link.greeting import greeting
from pykoclaw_acp.link.places import Places
from pykoclaw_acp.model import choices, events, folding, turns
from pykoclaw_acp.model.away import AwayPolicy
from pykoclaw_acp.protocol import control, jsonrpc, long_lines, projection, prompt
from pykoclaw_acp.protocol import limits as ranges
from pykoclaw_acp.server import admission, health, lifecycle, line_room, link, reading, sockets
from pykoclaw_acp.server.asking import CANCEL
from pykoclaw_acp.server.connection import MAX_CALLS, MOST_OPEN
from pykoclaw_acp.server.methods import METHODS
from pykoclaw_acp.sessions.turns import deduplication, queue
from pykoclaw_acp.system import shortage
from pykoclaw_acp.worker import failures, tools, whole

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "pykoclaw_acp"
DOCUMENTS = (
    "README.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "docs/architecture.md",
    "docs/link.md",
    "docs/operating.md",
    "docs/performance.md",
    "docs/protocol.md",
    "docs/security.md",
    "deploy/README.md",
)
INTERNAL_VARIABLES = {"PYKOCLAW_WORKER", "PYKOCLAW_CRASH_AT"}
FRONT_VARIABLES = {"PYKOCLAW_DAEMON_TIMEOUT"}


def text(document: str) -> str:
    return (ROOT / document).read_text()


def table(document: str, header: str) -> list[list[str]]:
    """The rows of the table whose first header cell is `header`."""
    return rows_of(text(document), header)


def rows_of(markdown: str, header: str) -> list[list[str]]:
    lines = (line.strip() for line in markdown.splitlines())
    for line in lines:
        if line.startswith(f"| {header} |"):
            break
    else:
        raise AssertionError(f"there is no table that begins with {header!r}")
    next(lines)
    rows: list[list[str]] = []
    for line in lines:
        if not line.startswith("|"):
            break
        rows.append([cell.strip() for cell in line.strip().strip("|").split("|")])
    return rows


def codes(markdown: str) -> list[str]:
    """What stands in backticks, outside of blocks."""
    return re.findall(r"`([^`]+)`", re.sub(r"^ *```.*?^ *```$", "", markdown, flags=re.MULTILINE | re.DOTALL))


def section(document: str, heading: str) -> str:
    return text(document).split(f"\n## {heading}\n")[1].split("\n## ")[0]


# --- form ------------------------------------------------------------------------------------------------------------


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
            headings = re.findall(r"^#+ (.+)$", (folder / path if path else ROOT / document).read_text(), re.MULTILINE)
            assert anchor in {re.sub(r"[^\w -]", "", one).lower().replace(" ", "-") for one in headings}, target


@pytest.mark.parametrize("document", DOCUMENTS)
def test_variables_commands_and_make_targets_exist(document: str) -> None:
    known = {line.env for line in config.describe(config.load())} | INTERNAL_VARIABLES | FRONT_VARIABLES
    assert set(re.findall(r"PYKOCLAW_[A-Z_]+[A-Z]", text(document))) <= known
    assert set(re.findall(r"`pykoclaw-acp ([a-z][a-z-]*)", text(document))) <= set(cli.commands)
    targets = set(re.findall(r"^([a-z0-9-]+):", text("Makefile"), re.MULTILINE))
    assert set(re.findall(r"(?:^|`)make ([a-z][a-z-]*)", text(document), re.MULTILINE)) <= targets


# --- README ----------------------------------------------------------------------------------------------------------


def test_the_settings_table_is_what_the_program_says(empty_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(empty_home)
    shown = []
    for line in config.describe(config.load()):
        value = ",".join(line.value) if isinstance(line.value, list) else line.value
        default = f"{value:g}" if isinstance(value, float) else str(value or "").replace(str(empty_home), "~")
        shown.append([f"`{line.env}`", default, line.description])
    assert table("README.md", "setting") == shown


def test_the_messages_of_the_troubleshooting_table_are_the_programs_own() -> None:
    said = list(said_in_code())
    for fragment in (code for row in table("README.md", "message") for code in codes(row[0])):
        wanted = re.compile(".*".join(map(re.escape, fragment.split("…"))), re.DOTALL)
        assert any(wanted.search(sentence) for sentence in said), fragment


def test_every_client_starts_the_front() -> None:
    (block,) = re.findall(r"```json\n(.*?)```", text("README.md"), re.DOTALL)
    server = json.loads(block)["agent_servers"]["pykoclaw"]
    assert [server["command"], *server["args"]] == ["pykoclaw-acp"]
    assert re.findall(r"^ *command: (.*)$", text("README.md"), re.MULTILINE) == ["pykoclaw-acp"]
    assert '\ntoad acp "pykoclaw-acp"\n' in text("README.md")


@pytest.mark.parametrize("document", ["README.md", "docs/operating.md"])
def test_the_exit_statuses_are_those_of_the_errors(document: str) -> None:
    (sentence,) = re.findall(r"Exit statuses: .*?\n\n", text(document), re.DOTALL)
    kinds: list[type[errors.StartupError]] = [errors.StartupError, *below(errors.StartupError)]
    statuses = {kind.exit_code for kind in kinds} | {dial.TEMPORARY}
    assert {int(number) for number in re.findall(r"\b\d+\b", sentence)} == statuses | {0, 2}


def test_how_long_a_front_tries_is_said() -> None:
    for document in ("README.md", "docs/operating.md"):
        assert f"`PYKOCLAW_DAEMON_TIMEOUT` ({dial.TIMEOUT:g}" in text(document)
    assert f"after {relay.GREET_AFTER:g} s" in text("docs/operating.md")
    assert f"after {relay.GREET_AFTER:g} s" in text("docs/architecture.md")


@pytest.mark.parametrize("document", ["README.md", "docs/operating.md"])
def test_the_away_policies_are_those_of_the_setting(document: str) -> None:
    rows = table(document, "policy")
    assert [codes(row[0])[0] for row in rows] == list(AwayPolicy)


# --- docs/operating.md -----------------------------------------------------------------------------------------------


def test_the_commands_are_those_of_the_program() -> None:
    written = {codes(row[0])[0] for row in table("docs/operating.md", "command")}
    assert written == {"pykoclaw-acp", "pykoclaw-acp serve --stdio", *commands(cli, "pykoclaw-acp")}


def test_things_are_where_it_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said = {code for row in table("docs/operating.md", "what") for code in codes(row[1])}
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    places = Places(tmp_path / "data", tmp_path / "state")
    default = Places(Path(pwd.getpwuid(os.getuid()).pw_dir) / ".local/share/pykoclaw", tmp_path / "state")
    monkeypatch.delenv("XDG_RUNTIME_DIR")
    without = Places(tmp_path / "data", tmp_path / "state")
    assert Path(places.lock).name in said
    assert default.socket.replace(str(tmp_path), "$XDG_RUNTIME_DIR") in said
    assert Path(places.socket).name.replace(places.hash, "<hash>") in said
    for path in (without.socket, places.log):
        assert f"<hash>/{Path(path).relative_to(places.directory)}" in said


# --- docs/link.md ----------------------------------------------------------------------------------------------------


def test_the_lines_of_the_link_are_those_that_are_written_and_read() -> None:
    for heading, kinds in (("From the front", lines.FROM_FRONT), ("From the daemon", lines.FROM_DAEMON)):
        rows = table_in("docs/link.md", heading, "line")
        assert [codes(row[0]) for row in rows] == [[str(kind)] for kind in kinds]
    assert set(front_link.HANDLERS) == set(lines.FROM_DAEMON)
    assert {lines.HELLO, *link.HANDLERS} == set(lines.FROM_FRONT)


def test_the_introduction_of_a_front_has_these_fields() -> None:
    rows = table("docs/link.md", "field of `front {…}`")
    hello = json.loads(ledger.Ledger().hello({}).removeprefix(lines.GREETING))
    assert {name for row in rows for name in codes(row[0])} == set(hello) == set(link.FrontHello.__struct_fields__)
    (row,) = (row for row in rows if codes(row[0]) == ["sessions"])
    assert codes(row[1]) == list(link.Followed.__struct_fields__)
    assert f"of this vocabulary ({lines.LINK})" in text("docs/link.md")


# --- docs/protocol.md ------------------------------------------------------------------------------------------------


def test_the_methods_are_those_of_the_dispatch_table() -> None:
    rows = table("docs/protocol.md", "method")
    supported = {name for row in rows if row[1] == "yes" for name in codes(row[0])}
    assert supported == {*METHODS, CANCEL}
    assert {row[1] for row in rows} == {"yes", "no"}


def test_every_method_of_the_protocol_is_listed() -> None:
    from acp.meta import AGENT_METHODS

    stable = {name for row in table("docs/protocol.md", "method") for name in codes(row[0])}
    unstable = set(codes(text("docs/protocol.md").split("unstable in ACP")[1].split("\n\n")[0]))
    experimental = {name for name in AGENT_METHODS.values() if name.startswith(("nes/", "document/", "mcp/"))}
    assert set(AGENT_METHODS.values()) - experimental <= stable | unstable


def test_the_methods_of_clients_are_listed_and_only_those_marked_so_are_called() -> None:
    from acp.meta import CLIENT_METHODS

    rows = table("docs/protocol.md", "method | used")
    said = set(said_in_code())
    assert {name for row in rows for name in codes(row[0])} >= {
        name for name in CLIENT_METHODS.values() if not name.startswith("mcp/")
    }
    for row in rows:
        assert {name in said for name in codes(row[0])} == {row[1] == "yes"}


def test_the_capabilities_are_what_initialize_answers() -> None:
    answered = dict(flat(greeting()["agentCapabilities"]))
    rows = table("docs/protocol.md", "`agentCapabilities`")
    assert {codes(row[0])[0]: json.loads(codes(row[1])[0]) for row in rows} == answered


def test_the_updates_are_those_that_events_become() -> None:
    made = {projection.update(1, event).__struct_config__.tag for event in one_of_each_event()}
    made.add(projection.commands(()).__struct_config__.tag)  # no event of the log
    rows = table("docs/protocol.md", "`sessionUpdate`")
    assert {name for row in rows if row[1] == "yes" for name in codes(row[0])} == made


def test_every_update_of_the_protocol_is_listed() -> None:
    import acp.schema

    fields = [getattr(kind, "model_fields", {}) for kind in vars(acp.schema).values()]
    known = {get_args(field["session_update"].annotation)[0] for field in fields if "session_update" in field}
    listed = {name for row in table("docs/protocol.md", "`sessionUpdate`") for name in codes(row[0])}
    assert {name for name in known if not name.startswith("plan_")} <= listed


def test_the_meta_keys_are_those_of_the_code() -> None:
    keys = {code for row in table("docs/protocol.md", "`_meta` key") for code in codes(row[0])}
    assert keys == {
        projection.SEQ,
        projection.PARENT,
        lifecycle.AFTER,
        lifecycle.AWAY_POLICY,
        deduplication.IDEMPOTENCY,
    }
    assert keys == {one for one in said_in_code() if re.fullmatch(r"pykoclaw\.dev/\w+", one)}


def test_the_modes_are_those_that_can_be_chosen() -> None:
    rows = [(codes(row[0])[0], row[1]) for row in table("docs/protocol.md", "mode")]
    for (name, said), mode in zip(rows, (*choices.MODES, choices.BYPASS), strict=True):
        assert name == mode.id
        assert said.startswith(mode.description)
    models = codes(section("docs/protocol.md", "Methods that clients call").split("before the first one they are")[1])
    assert models[: len(choices.MODELS)] == [one.id for one in choices.MODELS]


def test_our_own_methods_are_those_of_the_daemon() -> None:
    rows = table("docs/protocol.md", "own method")
    own = {one for one in said_in_code() if re.fullmatch(r"_pykoclaw\.dev/[a-z/]+[a-z]", one)}
    told = set(codes(section("docs/protocol.md", "Our own methods").split("sends notifications")[1])) & own
    assert {codes(row[0])[0] for row in rows} | told == own
    assert told == {control.EVENT, control.QUESTION, control.SETTLED}


def test_the_error_codes_are_those_of_the_exceptions() -> None:
    rows = {(int(row[0]), codes(row[1])[0]) for row in table("docs/protocol.md", "code")}
    assert rows == {(error.code, error.__name__) for error in errors.AcpError.__subclasses__()}


def test_the_error_kinds_are_those_of_the_code() -> None:
    documented = [codes(row[0])[0] for row in table("docs/protocol.md", "`errorKind`")]
    named = set(get_args(AssistantMessageError)) - {"unknown"}
    starts = {error.kind for error in every(errors.StartupError)}
    starts |= {kind for kind, _ in (shortage.DESCRIPTORS, shortage.MEMORY, shortage.PROCESSES)}
    assert (
        set(documented)
        == starts | set(error_kinds()) | set(failures._BY_STATUS.values()) | set(failures._ADVICE) | named
    )
    assert len(documented) == len(set(documented))


def test_the_stop_reasons_are_those_of_the_protocol() -> None:
    import acp.schema

    documented = {codes(row[0])[0] for row in table("docs/protocol.md", "`stopReason`")}
    assert documented == set(get_args(acp.schema.PromptResponse.model_fields["stop_reason"].annotation))


def test_the_limits_are_those_of_the_code() -> None:
    limits = section("docs/protocol.md", "Limits")
    assert f"| {framing.MAX_LINE_IN >> 20} MiB; a longer" in limits
    assert f"| a line to the client | {framing.MAX_LINE_OUT >> 20} MiB; an update" in limits
    assert f"| calls that are open at a time | {MAX_CALLS:,};" in limits
    assert f"above {MOST_OPEN:,} the client is not read" in limits
    assert f"| {queue.MOST_WAITING}, with {queue.MOST_TEXT:,} characters; -32012 |" in limits
    assert f"| {queue.MOST_WAITING_ALL:,}, with {queue.MOST_TEXT_ALL:,} characters; -32012 |" in limits
    assert f"| within {admission.HELLO:g} s |" in limits
    assert f"| what all clients have not read | {sockets.MOST_UNREAD >> 20} MiB" in limits
    assert f"| a request's `id` | {jsonrpc.MAX_ID:,} bytes |" in limits
    assert f"| content blocks of a prompt | {prompt.MAX_BLOCKS:,} |" in limits
    assert f"| a line before `initialize`, and any message but a prompt | {framing.MAX_LINE_EARLY >> 20} MiB" in limits
    assert reading.MAX_OTHER == framing.MAX_LINE_EARLY
    assert f"| values in a message | {long_lines.MOST_VALUES:,}; at most {long_lines.MOST_DEPTH} of them" in limits
    assert f"{long_lines.MOST_BYTES / 2**20:g} MiB outside of texts above {long_lines.KEPT:,} bytes" in limits
    assert f"| {lifecycle.MAX_SERVERS}, {lifecycle.MAX_DIRECTORIES:,}; -32602 |" in limits
    assert f"| {ranges.MAX_NAME} characters |" in limits
    assert lines.MAX_NUMBER == 2**53
    assert f"| unfinished lines of all clients | {line_room.MOST >> 20} MiB; one that has not grown" in limits
    assert f"for {line_room.PATIENCE:g} s gives way" in limits
    assert f"| a link in a prompt | {prompt.MAX_LINK:,} characters |" in limits
    assert f"| {folding.PART:,} bytes as JSON; longer" in limits
    assert events.MAX_TEXT * 6 < folding.PART
    assert f"| {tools.MAX_SHOWN:,} characters; beginning" in limits
    assert f"| {tools.MAX_IMAGE >> 20} MiB of base64" in limits
    assert f"| {tools.MAX_TITLE} characters |" in limits
    assert f"is asked about | {whole.MOST >> 20} MiB as JSON |" in limits


# --- docs/architecture.md --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("document", ["docs/architecture.md", "CONTRIBUTING.md"])
def test_modules_that_are_named_exist(document: str) -> None:
    named = {name for code in codes(text(document)) for name in re.findall(r"^[a-z_]+/?[a-z_-]+(?:\.py|-exec)$", code)}
    assert named
    for name in named - {"scripted-model.md"}:
        assert (PACKAGE / name).is_file() or (ROOT / name).is_file(), name


def test_every_package_and_every_module_beside_them_is_in_the_layout() -> None:
    layout = section("docs/architecture.md", "Layout")
    folders = {path.parent.relative_to(PACKAGE).as_posix() for path in PACKAGE.glob("**/__init__.py")} - {"."}
    assert {name.strip("/") for name in re.findall(r"\*\*`([a-z_/]+/)`\*\*", layout)} == folders
    for path in PACKAGE.glob("*.py"):
        assert path.name.startswith("__") or f"`{path.name}`" in layout, path.name


def test_the_tables_are_those_of_the_migrations() -> None:
    sql = "".join(path.read_text() for path in (ROOT / "migrations").glob("*.sql"))
    made = set(re.findall(r"CREATE TABLE (?:IF NOT EXISTS )?(\w+)", sql)) | {"acp_migrations"}
    assert {codes(row[0])[0] for row in table("docs/architecture.md", "table")} == made


def test_the_states_of_a_turn_are_named_where_users_look() -> None:
    for document in ("README.md", "docs/architecture.md"):
        assert set(turns.TurnState) <= set(codes(text(document)))


def test_the_frames_are_those_of_the_channel() -> None:
    rows = table("docs/architecture.md", "to the worker")
    both = (get_args(frames.ToWorker), get_args(frames.FromWorker))
    for column, kinds in enumerate(both):
        assert {code for row in rows for code in codes(row[column])} == {kind.__struct_config__.tag for kind in kinds}


# --- CHANGELOG and deploy/ -------------------------------------------------------------------------------------------


def test_the_changelog_knows_this_version() -> None:
    versions = re.findall(r"^## \[([^\]]+)\](?: - (\d{4}-\d{2}-\d{2}))?$", text("CHANGELOG.md"), re.MULTILINE)
    assert versions[0] == ("Unreleased", "")
    assert __version__ in [version for version, date in versions if date]


def test_the_files_of_deploy_are_named_and_there() -> None:
    links = set(re.findall(r"\]\(([a-z][^)#:]*)\)", text("deploy/README.md")))
    files = {str(path.relative_to(ROOT / "deploy")) for path in (ROOT / "deploy").rglob("*") if path.is_file()}
    assert links == files - {"README.md"}


def test_the_deploy_recipe_is_that_of_the_units() -> None:
    service = text("deploy/user/pykoclaw-acp.service")
    readme = " ".join(text("deploy/README.md").split())
    assert "WatchdogSec=30" in service
    assert "StartLimitBurst=10" in service
    assert f"Every {30 / 4:g} s" in readme
    assert f"for {health.ANSWER_WAIT:g} s" in readme


def test_mitto_needs_no_settings() -> None:
    assert re.findall(r"^ *command: (.*)$", text("deploy/mitto.yaml"), re.MULTILINE) == ["pykoclaw-acp"]


# --- the code, as the documents speak of it --------------------------------------------------------------------------


@cache
def trees() -> list[ast.Module]:
    return [ast.parse(path.read_text()) for path in PACKAGE.rglob("*.py")]


def said_in_code() -> Iterator[str]:
    """Every text of the program; what is put in at run time is a blank space."""
    for node in (node for tree in trees() for node in ast.walk(tree)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value
        elif isinstance(node, ast.JoinedStr):
            yield "".join(str(part.value) if isinstance(part, ast.Constant) else " " for part in node.values)


def every(base: type[errors.StartupError]) -> Iterator[type[errors.StartupError]]:
    """The class and all that are made from it."""
    yield base
    for one in base.__subclasses__():
        yield from every(one)


def error_kinds() -> Iterator[str]:
    """Every kind with which the program itself makes an error: where it stands among the arguments, or by its name."""
    positions = {"StartFailure": 0, "WorkerFailed": 0, "TurnFault": 0, "TurnError": 0, "_lose": 0}
    positions |= {"lost": 1, "not_started": 1}
    by_name = {"Lost", "TurnError", "TurnFault", "interrupted"}
    for node in (node for tree in trees() for node in ast.walk(tree)):
        if isinstance(node, ast.Call):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            at = positions.get(name)
            if at is not None and len(node.args) > at:
                yield from constants([node.args[at]])
            if name in by_name:
                yield from constants(keyword.value for keyword in node.keywords if keyword.arg == "kind")
        elif isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "(kind, message)":
            assert isinstance(node.value, ast.Tuple)
            yield from constants(node.value.elts[:1])
        elif isinstance(node, ast.Dict):
            pairs = zip(constants_or_none(node.keys), node.values, strict=True)
            yield from constants(value for name, value in pairs if name == "errorKind")
    source = ast.parse(inspect.getsource(failures.turn_error))
    for node in ast.walk(source):
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "kind":
            values = [node.value.body, node.value.orelse] if isinstance(node.value, ast.IfExp) else [node.value]
            yield from constants(values)


def constants(nodes: Iterable[ast.expr]) -> Iterator[str]:
    return (node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str))


def constants_or_none(nodes: Iterable[ast.expr | None]) -> Iterator[object]:
    return (node.value if isinstance(node, ast.Constant) else None for node in nodes)


def below(kind: type[errors.StartupError]) -> Iterator[type[errors.StartupError]]:
    for one in kind.__subclasses__():
        yield one
        yield from below(one)


def commands(group: click.Group, name: str) -> Iterator[str]:
    for one in group.commands.values():
        if isinstance(one, click.Group):
            yield from commands(one, f"{name} {one.name}")
        else:
            yield f"{name} {one.name}"


def table_in(document: str, heading: str, header: str) -> list[list[str]]:
    return rows_of(section(document, heading), header)


def flat(tree: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, object]]:
    for name, value in tree.items():
        if isinstance(value, dict) and value:
            yield from flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def one_of_each_event() -> list[events.Event]:
    made: list[events.Event] = [
        events.UserMessage("m", {"type": "text", "text": "t"}),
        events.Text("m", "t"),
        events.Thinking("m", "t"),
        events.ToolStarted("c", "Bash", "Bash: ls", "execute"),
        events.ToolProgressed("c"),
        events.ToolEnded("c", "completed"),
        events.Usage(1, 2),
        events.Plan(()),
        events.ModeChanged("plan"),
        events.ConfigChanged(choices.selection("plan", None, None, bypass=False)),
        events.TitleChanged("t"),
        events.Failure("m", "t", "k"),
    ]
    assert {type(event) for event in made} == set(get_args(events.Event))
    return made
