"""A start that lacks something says in one sentence what, with the way out and a kind, and changes
nothing.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

PROGRAM = [sys.executable, "-m", "pykoclaw_acp"]
# Root without the right to pass over modes: what an ordinary user has.
UNPRIVILEGED = (
    ["setpriv", "--bounding-set=-dac_override,-dac_read_search"] if os.geteuid() == 0 else []
)
LINES = [
    {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": 1}},
    {"jsonrpc": "2.0", "id": 2, "method": "session/new", "params": {"cwd": "/", "mcpServers": []}},
]


@pytest.fixture(scope="session")
def used(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home with a database that was used; one for all tests of this process."""
    if UNPRIVILEGED and shutil.which("setpriv") is None:
        pytest.skip("root can read everything, and there is no setpriv")
    home = tmp_path_factory.mktemp("used")
    made = run(home, "serve", "--stdio")
    assert made.returncode == 0, made.stderr
    return home


@pytest.fixture
def home(tmp_path: Path, used: Path) -> Iterator[Path]:
    """A copy of that home; afterwards it can be removed."""
    home = tmp_path / "home"
    shutil.copytree(used, home)
    yield home
    for path in [home, *home.rglob("*")]:
        if path.is_dir() and not path.is_symlink():
            path.chmod(0o700)
            for inner in path.iterdir():
                if inner.is_dir():
                    inner.chmod(0o700)


def run(
    home: Path, *arguments: str, limit: Any = None, given: str = "", **variables: str
) -> subprocess.CompletedProcess[str]:
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PYKOCLAW", "XDG"))
    }
    return subprocess.run(
        [*UNPRIVILEGED, *PROGRAM, *arguments], input=given, capture_output=True, text=True, timeout=120, cwd="/",
        env={**environment, "HOME": str(home), **variables}, preexec_fn=limit, check=False,
    )  # fmt: skip


def said(result: subprocess.CompletedProcess[str]) -> tuple[str, str]:
    """What the daemon's last line says for people, and the kind that its log has."""
    *log, last = result.stderr.splitlines()
    assert not any(line.startswith("Traceback") for line in log), result.stderr
    kinds = [json.loads(line)["kind"] for line in log if '"kind"' in line]
    return last.removeprefix("pykoclaw-acp: "), kinds[-1] if kinds else ""


def database(home: Path) -> bytes:
    return (home / ".local/share/pykoclaw/pykoclaw.db").read_bytes()


@pytest.mark.parametrize(
    ("where", "setting", "logged"),
    [
        (".local/share/pykoclaw", "chmod u+", ""),  # before the settings are known, there is no log
        (".local/state/pykoclaw", "PYKOCLAW_STATE", "directory_unusable"),
    ],
)
def test_unreadable_directory_is_named_with_remedy(
    where: str, setting: str, logged: str, home: Path
) -> None:
    before = database(home)
    with ExitStack() as undo:
        (home / where).chmod(0)
        undo.callback((home / where).chmod, 0o700)
        result = run(home, "serve")
    words, kind = said(result)
    assert result.returncode == 78
    assert (f"{home / where}" in words, "Permission denied" in words, setting in words) == (
        True,
        True,
        True,
    )
    assert kind == logged
    assert database(home) == before


def test_a_client_gets_the_sentence_and_the_kind(home: Path) -> None:
    (home / ".local/state/pykoclaw").chmod(0)
    result = run(home, given="".join(json.dumps(line) + "\n" for line in LINES))
    errors = [json.loads(line)["error"] for line in result.stdout.splitlines()]
    assert [error["data"] for error in errors] == [{"errorKind": "directory_unusable"}] * 2
    assert "chmod u+rwx" in errors[0]["message"]
    assert result.returncode == 78


@pytest.mark.parametrize("command", [["serve"], ["serve", "--stdio"], ["adopt"]])
def test_no_server_starts_from_inside_a_session(command: list[str], home: Path) -> None:
    """A tool of a worker whose daemon is gone: as the server, it would have every session."""
    (known,) = (home / ".local/state/pykoclaw").glob("*/instance.json")
    inside = f"{known.parent.name}:the:session:3"
    record = json.loads(known.read_text())
    known.write_text(json.dumps(record | {"data": str(home / ".local/share/pykoclaw")}))
    before = database(home)
    given = "".join(json.dumps(line) + "\n" for line in LINES)
    result = run(home, *command, given=given, PYKOCLAW_WORKER=inside)
    words, _ = said(result)
    assert (result.returncode, result.stdout) == (1, "")
    assert "inside of session the:session: " in words
    assert "PYKOCLAW_NESTED_ACCESS=clients" in words
    assert database(home) == before


@pytest.mark.parametrize("by", ["file", "variable"])
def test_only_file_lets_session_start_server(by: str, home: Path) -> None:
    """A tool can set a variable for whatever it runs."""
    (known,) = (home / ".local/state/pykoclaw").glob("*/instance.json")
    record = json.loads(known.read_text())
    known.write_text(json.dumps(record | {"data": str(home / ".local/share/pykoclaw")}))
    given = json.dumps(LINES[0]) + "\n"
    if by == "file":
        (home / ".local/share/pykoclaw/.env").write_text("PYKOCLAW_NESTED_ACCESS=clients\n")
    result = run(
        home, "serve", "--stdio", given=given, PYKOCLAW_WORKER=f"{known.parent.name}:the:session:3",
        **({"PYKOCLAW_NESTED_ACCESS": "clients"} if by == "variable" else {}),
    )  # fmt: skip
    if by == "file":
        assert "result" in json.loads(result.stdout)
    else:
        assert (result.returncode, result.stdout) == (1, "")
        assert "PYKOCLAW_NESTED_ACCESS=clients in ~/.local" in said(result)[0]


def test_client_of_foreign_database_gets_command_and_kind(home: Path) -> None:
    path = home / ".local/share/pykoclaw/pykoclaw.db"
    path.unlink()
    shutil.rmtree(home / ".local/state/pykoclaw")
    subprocess.run(
        [
            sys.executable,
            "-c",
            f"import sqlite3; sqlite3.connect({str(path)!r}).execute('CREATE TABLE photos (x)')",
        ],
        check=True,
    )
    before = database(home)
    with subprocess.Popen(
        [*UNPRIVILEGED, *PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd="/",
        env={**os.environ, "HOME": str(home)},
    ) as front:  # fmt: skip
        assert front.stdin is not None
        assert front.stdout is not None
        front.stdin.write(json.dumps(LINES[1]).encode() + b"\n")
        front.stdin.flush()
        error = json.loads(front.stdout.readline())["error"]
        front.stdin.close()
        assert front.wait(60) == 78
    assert error["data"] == {"errorKind": "database_foreign"}
    assert "`pykoclaw-acp adopt`" in error["message"]
    assert database(home) == before


@pytest.mark.parametrize(
    "count", [12, *(pytest.param(one, marks=pytest.mark.long) for one in (6, 20, 47))]
)
def test_a_start_without_descriptors_says_so(count: int, home: Path) -> None:
    before = database(home)
    result = run(
        home,
        "serve",
        "--stdio",
        limit=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (count, count)),
    )
    assert (result.returncode, "`ulimit -n`" in result.stderr, "Traceback" in result.stderr) == (
        1,
        True,
        False,
    )
    assert said(result)[1] == "out_of_descriptors" or count < 20  # too few for settings and a log
    assert database(home) == before


def test_soft_descriptor_limit_is_raised_as_needed(home: Path) -> None:
    result = run(
        home,
        "serve",
        "--stdio",
        limit=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (20, 4096)),
    )
    assert result.returncode == 0, result.stderr


@pytest.mark.parametrize("size", [24, 40, 64, 80, 100])
def test_a_start_without_memory_says_so(size: int, home: Path) -> None:
    before = database(home)
    limit = size * 1024 * 1024
    result = run(
        home,
        "serve",
        "--stdio",
        limit=lambda: resource.setrlimit(resource.RLIMIT_AS, (limit, limit)),
    )
    assert "Traceback" not in result.stderr
    enough = size > 64 and result.returncode == 0  # how much is differs between machines
    assert enough or (result.returncode == 1 and "`ulimit -v`" in result.stderr)
    assert database(home)[:100] == before[:100]


FAILING = """
from pykoclaw_acp import __main__ as program

def run():
    try:
        raise MemoryError
    except MemoryError:
        raise ValueError("what Python's compiler says without memory")

program._run = run
program.main()
"""


def test_error_that_shortage_leads_to_names_it() -> None:
    result = subprocess.run(
        [sys.executable, "-c", FAILING], capture_output=True, text=True, timeout=60, check=False
    )
    assert (result.returncode, "`ulimit -v`" in result.stderr) == (1, True)
    assert "Traceback" not in result.stderr
