"""README and the documents for users, compared with the program's own objects and output."""

from __future__ import annotations

import json
import os
import pwd
import re
import struct
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any, get_args
from xml.etree import ElementTree

import click
import msgspec
import pytest
from click.testing import CliRunner, Result

import hatch_build
import pykoclaw_acp.front.call  # noqa: F401  it has an exit status of its own
from docs import manual
from docs.pictures.page import PICTURE, WIDTH
from pykoclaw_acp import errors
from pykoclaw_acp.cli import cli
from pykoclaw_acp.commands import prompt
from pykoclaw_acp.config import listing, loading
from pykoclaw_acp.doctor import report
from pykoclaw_acp.front import call as front
from pykoclaw_acp.front import dial, relay
from pykoclaw_acp.link.places import Places
from pykoclaw_acp.model import turns
from pykoclaw_acp.model.away import AwayPolicy
from pykoclaw_acp.protocol.control.daemon import ConversionInfo, DatabaseInfo, Status
from pykoclaw_acp.protocol.control.permissions import QuestionInfo
from pykoclaw_acp.protocol.control.sessions import SessionDetails, SessionSummary
from pykoclaw_acp.protocol.control.trust import Looked, TrustedDirectory
from pykoclaw_acp.protocol.control.workers import WorkerInfo
from pykoclaw_acp.scripted_model import __main__ as scripted_model
from tests.unit.documents import blocks, codes, commands, program_texts, section, table, text

PROGRAM = "pykoclaw-acp"
REFERENCES = (WorkerInfo, QuestionInfo, SessionSummary, ConversionInfo)
"""What other keys of the JSON output only refer to."""


@pytest.fixture(autouse=True)
def empty_directory(empty_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(empty_home)


def run(*arguments: str) -> Result:
    return CliRunner().invoke(cli, arguments, prog_name=PROGRAM)


def options(command: click.Command) -> Iterator[tuple[set[str], str]]:
    for one in command.params:
        if isinstance(one, click.Option):
            yield set(one.opts), one.help or ""


# --- README


def test_the_times_in_the_readme_are_the_defaults() -> None:
    defaults = loading.load()
    rows = {row[0]: row[1] for row in table("README.md", "when")}
    for setting, when, said in (
        (defaults.orphan_grace / 3600 == 2, "no daemon comes back", "two hours"),
        (
            defaults.away_timeout == 86400,
            "a permission is requested while no client is connected",
            "a day",
        ),
        (defaults.stall_timeout == 30, "a worker hangs", "30 s"),
        (defaults.cancel_grace == 10, "you press stop", "10 s"),
        (
            defaults.rejoin_window == 120,
            "everything is killed while a prompt is queued",
            "two minutes",
        ),
    ):
        assert setting, when
        assert said in rows[when]
    assert defaults.client_stall == 60
    assert "stops reading** is disconnected after 60 s" in text("docs/operating.md")


def test_every_client_starts_the_front() -> None:
    for document in ("README.md", "docs/clients.md"):
        settings = blocks(text(document), "json")
        assert settings
        for block in settings:
            server = json.loads(block)["agent_servers"]["pykoclaw"]
            assert (Path(server["command"]).name, server["args"]) == (PROGRAM, [])
        (mitto,) = blocks(text(document), "yaml")
        assert re.findall(r"^ *command: (.*)$", mitto, re.MULTILINE) == [PROGRAM]
    for client in ("Mitto", "Zed", "JetBrains", "Toad", "acpx", "Neovim", "Emacs"):
        assert PROGRAM in section("docs/clients.md", client)


@pytest.mark.parametrize("source", [None, "https://code.example/pykoclaw-acp/blob/main"])
def test_no_link_of_the_package_page_is_relative(source: str | None) -> None:
    page = hatch_build.packaged(text("README.md"), source)
    targets = re.findall(r"\]\(([^)]+)\)", page)
    assert targets
    assert all(target.startswith("https://") for target in targets)
    assert (f"]({source}/docs/settings.md#credentials)" in page) is (source is not None)
    assert ("/docs/pictures/demo.svg?raw=true)" in page) is (source is not None)


@pytest.mark.parametrize(
    ("title", "words"),
    [
        ("pykoclaw-acp demo", ["SIGKILL"]),
        (
            "pykoclaw-acp attach",
            ["• Plan: ", "? ", "✓ Edit app.py", "claude: ", "in the background"],
        ),
    ],
)
def test_pictures_show_their_subject_without_external_resources(
    title: str, words: list[str]
) -> None:
    pictures = [text(path) for path in re.findall(r"!\[.*\]\((.*\.svg)\)", text("README.md"))]
    (picture,) = [one for one in pictures if title in one.replace("&#160;", " ")]
    assert len(picture) < 100_000
    lines = [
        line.replace("\xa0", " ").strip() for line in ElementTree.fromstring(picture).itertext()
    ]
    assert title in lines
    for one in words:
        assert any(one.strip() in line for line in lines), one
    assert (
        re.findall(
            r"https?://", picture.replace("http://www.w3.org/2000/svg", "").partition("<style>")[2]
        )
        == []
    )


def test_exports_picture_shows_its_page() -> None:
    assert "](pictures/session.png)" in text("docs/commands.md")
    picture = PICTURE.read_bytes()
    width, height = struct.unpack(">II", picture[16:24])
    assert (picture[:8], width, height > 1000) == (b"\x89PNG\r\n\x1a\n", WIDTH, True)
    assert len(picture) < 200_000
    page = text("docs/pictures/session.html")
    for words in ("Plan: Greet politely", "Ask: ", "Edit app.py", "Agent: ", "Exit code 3"):
        assert words in page
    assert "[[script" not in page


# --- docs/settings.md


def test_the_settings_are_those_of_the_program(empty_home: Path) -> None:
    shown = []
    for line in listing.describe(loading.load()):
        value = ",".join(line.value) if isinstance(line.value, list) else line.value
        default = (
            f"{value:g}"
            if isinstance(value, float)
            else str(value or "").replace(str(empty_home), "~")
        )
        shown.append([f"`{line.env}`", default, line.description])
    assert table("docs/settings.md", "setting") == shown


def test_how_long_a_front_tries_is_said() -> None:
    for document in ("docs/settings.md", "docs/operating.md"):
        assert f"`PYKOCLAW_DAEMON_TIMEOUT` ({dial.TIMEOUT:g}" in text(document)
    for document in ("docs/operating.md", "docs/architecture.md"):
        assert f"after {relay.GREET_AFTER:g} s" in text(document)


# --- docs/commands.md


def test_the_commands_are_those_of_the_program() -> None:
    written = {
        codes(row[0])[0]: row[1]
        for row in table("docs/commands.md", "command | | without a daemon")
    }
    written = {name: re.sub(r" \(\[.*\)$", "", said) for name, said in written.items()}
    helps = {name: one.get_short_help_str(1000).rstrip(".") for name, one in commands(cli, PROGRAM)}
    assert written.pop(PROGRAM)
    assert written == helps


def test_commands_needing_daemon_exit_with_documented_status() -> None:
    rows = table("docs/commands.md", "command | | without a daemon")
    needing = [codes(row[0])[0].split()[1:] for row in rows if row[2] == "exit status 3"]
    assert needing
    assert [run(*words).exit_code for words in needing] == [3] * len(needing)


def test_the_options_are_those_of_the_commands() -> None:
    written: dict[str, list[tuple[set[str], str]]] = {}
    name = ""
    for row in table("docs/commands.md", "command | option"):
        name = codes(row[0])[0] if row[0] else name
        written.setdefault(name, []).append((set(codes(row[1])), row[2]))
    (said,) = re.findall(
        r"^`--json` \((.*?)\) is an option of (.*?);",
        text("docs/commands.md"),
        re.MULTILINE | re.DOTALL,
    )
    for name in codes(said[1]):
        written.setdefault(name, []).append(({"--json"}, f"{said[0]}."))
    known = {
        name.removeprefix(f"{PROGRAM} "): list(options(one)) for name, one in commands(cli, PROGRAM)
    }
    assert written == {name: found for name, found in known.items() if found}


def test_the_options_of_the_scripted_model_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        scripted_model.main(["--help"])
    known = set(re.findall(r"^  (--[a-z-]+)", capsys.readouterr().out, re.MULTILINE))
    assert known
    assert known <= set(re.findall(r"--[a-z-]+", text("docs/scripted-model.md")))


def test_the_exit_statuses_are_those_of_the_errors() -> None:
    kinds: list[type[errors.StartupError]] = [errors.StartupError, *below(errors.StartupError)]
    statuses = {kind.exit_code for kind in kinds} | {dial.TEMPORARY}
    known = statuses | {0, 2} | set(prompt.STATUS.values()) | {prompt.BLOCKED, prompt.INTERRUPTED}
    assert {int(row[0]) for row in table("docs/commands.md", "status")} == known
    assert {int(status) for status, _ in manual.EXITS} == known
    assert run("status", "--unknown").exit_code == 2


def test_documented_session_states_match_those_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    nothing = dict.fromkeys(field.encode_name for field in msgspec.structs.fields(SessionSummary))
    unused: dict[str, object] = {**nothing, "id": "5e55", "updatedAt": 0, "title": "T"}
    used = unused | {"promptedAt": 1}
    helper: dict[str, object] = {"auxiliary": True}
    kinds: list[dict[str, object]] = [
        {"busy": True},
        {"background": True},
        {},
        {"closedAt": 2},
        {"closedAt": 2, "archivedAt": 3},
        {"elsewhere": True},
        helper,
        {**helper, "prunedAt": 3},
    ]
    asks: dict[str, object] = {**used, "id": "a5c5"}
    sessions = [asks, unused, *({**used, **kind} for kind in kinds)]
    answers: dict[str, object] = {
        "_pykoclaw.dev/sessions/list": {"sessions": sessions, "more": False},
        "_pykoclaw.dev/questions/list": [{"id": "q", "session": "a5c5", "title": "mkdir"}],
    }

    monkeypatch.setattr(front, "call", lambda _, method, *__, **___: answers[method])
    shown = {line.split()[3] for line in run("sessions", "list").stdout.splitlines()[2:]}
    assert shown == {codes(row[0])[0] for row in table("docs/commands.md", "state of a session")}


def test_documented_turn_states_match_journal() -> None:
    assert {codes(row[0])[0] for row in table("docs/commands.md", "state of a turn")} == set(
        turns.TurnState
    )


@pytest.mark.parametrize(
    ("command", "answer"),
    [
        ("status", Status),
        ("sessions list", SessionSummary),
        ("sessions show", SessionDetails),
        ("approve", QuestionInfo),
        ("trust list", TrustedDirectory),
        ("trust show", Looked),
        ("workers list", WorkerInfo),
    ],
)
def test_documented_json_keys_match_answers(command: str, answer: type[msgspec.Struct]) -> None:
    assert documented_keys(command) == set(keys(answer))


def test_documented_keys_of_other_json_match_output() -> None:
    for row in json.loads(run("config", "--json").stdout):
        assert set(row) == documented_keys("config")
    assert {field.name for field in fields(report.Finding)} == documented_keys("doctor")


def documented_keys(command: str) -> set[str]:
    return {
        key for row in table("docs/commands.md", f"keys of `{command}`") for key in codes(row[0])
    }


def keys(answer: type[msgspec.Struct], prefix: str = "") -> Iterator[str]:
    """All keys of its JSON; those of another answer of its own are that one's."""
    for field in msgspec.structs.fields(answer):
        nested = [
            one
            for one in (field.type, *get_args(field.type))
            if is_struct(one) and one not in REFERENCES
        ]
        if nested:
            yield from keys(nested[0], f"{prefix}{field.encode_name}.")
        else:
            yield f"{prefix}{field.encode_name}"


def is_struct(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, msgspec.Struct)


def below(kind: type[errors.StartupError]) -> Iterator[type[errors.StartupError]]:
    for one in kind.__subclasses__():
        yield one
        yield from below(one)


# --- docs/troubleshooting.md


def test_the_messages_are_the_programs_own() -> None:
    said = program_texts()
    rows = [line for line in text("docs/troubleshooting.md").splitlines() if line.startswith("| `")]
    fragments = [code for row in rows for code in codes(row.split(" | ")[0])]
    assert len(fragments) > 40
    for fragment in fragments:
        wanted = ".{0,200}".join(map(re.escape, re.split(" ?…", fragment.strip("…"))))
        assert any(re.search(wanted, one, re.DOTALL) for one in said), fragment


# --- docs/operating.md


def test_the_away_policies_are_those_of_the_setting() -> None:
    rows = table("docs/operating.md", "policy")
    assert [codes(row[0])[0] for row in rows] == list(AwayPolicy)


def test_documented_database_conditions_match_status() -> None:
    rows = table("docs/operating.md", "condition")
    conditions = set(msgspec.structs.fields(DatabaseInfo)[1].type)
    assert {codes(row[0])[0] for row in rows} == conditions - {"writable"}


def test_things_are_where_it_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said = {code for row in table("docs/operating.md", "what") for code in codes(row[1])}
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    places = Places(tmp_path / "data", tmp_path / "state")
    default = Places(
        Path(pwd.getpwuid(os.getuid()).pw_dir) / ".local/share/pykoclaw", tmp_path / "state"
    )
    monkeypatch.delenv("XDG_RUNTIME_DIR")
    without = Places(tmp_path / "data", tmp_path / "state")
    assert Path(places.lock).name in said
    assert default.socket.replace(str(tmp_path), "$XDG_RUNTIME_DIR") in said
    assert Path(places.socket).name.replace(places.hash, "<hash>") in said
    for path in (without.socket, places.log):
        assert f"<hash>/{Path(path).relative_to(places.directory)}" in said
