from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pykoclaw_acp import __version__
from pykoclaw_acp.doctor import checks, claude, machine, mitto, notices, wal
from pykoclaw_acp.doctor import database as doctor_database
from pykoclaw_acp.doctor.report import Context, Finding
from pykoclaw_acp.link import records
from pykoclaw_acp.link.places import Places
from pykoclaw_acp.model.session_environment import DaemonEnvironment
from pykoclaw_acp.pool import leftovers
from pykoclaw_acp.store import engine
from pykoclaw_acp.store.sqlite import sqlite3
from pykoclaw_acp.system import credentials, trusted_path
from tests.groups import shared_with
from tests.waiting import eventually_sync


@pytest.fixture
def context(tmp_path: Path) -> Context:
    """Of a home in which nothing was ever done."""
    environment = {"PATH": str(tmp_path / "bin"), "HOME": str(tmp_path)}
    return Context(Places(tmp_path / "data", tmp_path / "state"), environment, tmp_path)


def status(**daemon: Any) -> dict[str, Any]:
    """What a daemon answers."""
    return {
        "daemon": {"pid": os.getpid(), "version": __version__, "socket": "/run/acp.sock", **daemon},
        "workers": [],
        "database": {"engine": "pysqlite3", "engineVersion": "3.53.0", "atRisk": False},
    }


def program(path: Path, body: str = "echo 2.1.0 ") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o700)
    return path


def database(context: Context, mode: str = "DELETE") -> Path:
    path = Path(context.places.data) / "pykoclaw.db"
    path.parent.mkdir(mode=0o700, exist_ok=True)
    with sqlite3.connect(path) as connection:
        connection.execute(f"PRAGMA journal_mode={mode}")
        connection.execute(
            "CREATE TABLE conversations (name TEXT PRIMARY KEY, session_id, cwd, created_at)"
        )
        connection.execute("CREATE TABLE t (x)")
    connection.close()
    path.chmod(0o600)
    return path


def test_new_home_lacks_only_credential(context: Context) -> None:
    findings = checks.examine(context, checks.every())
    assert [(one.check, one.level) for one in findings if one.level != "ok"] == [
        ("credential", "problem")
    ]
    assert len({one.check for one in findings}) == len(findings)


def test_whatever_is_not_well_says_what_to_do(context: Context) -> None:
    for finding in checks.examine(replace(context, bad_settings="x"), checks.every()):
        assert bool(finding.advice) == (finding.level != "ok"), finding


def test_failing_check_does_not_stop_other_checks(context: Context) -> None:
    def broken_thing(context: Context) -> Finding:
        raise PermissionError("no entry")

    found = checks.examine(context, [broken_thing, machine.settings])
    assert [(one.check, one.level) for one in found] == [
        ("broken thing", "warning"),
        ("settings", "ok"),
    ]
    assert "no entry" in found[0].found


# --- machine


def test_responding_daemon_ok_but_other_version_needs_restart(context: Context) -> None:
    assert machine.daemon(replace(context, status=status())).level == "ok"
    other = machine.daemon(replace(context, status=status(version="0.0.9")))
    assert (other.level, "0.0.9" in other.found, "Restart" in other.advice) == (
        "warning",
        True,
        True,
    )


def test_unresponsive_daemon_is_problem(context: Context) -> None:
    found = machine.daemon(replace(context, unreachable="The daemon has not answered within 10 s."))
    assert (found.level, found.found) == ("problem", "The daemon has not answered within 10 s.")


def test_lock_holder_of_unresponsive_daemon_is_named(context: Context) -> None:
    from pykoclaw_acp.store.lock import DataLock

    lock = DataLock.acquire(Path(context.places.data), "/run/other.sock")
    try:
        found = machine.daemon(replace(context, unreachable="It has not answered within 10 s."))
    finally:
        lock.release()
    assert found.level == "problem"
    assert f"pid {os.getpid()} uses the data directory" in found.found
    assert "has not answered" in found.found
    assert (f"`kill {os.getpid()}`" in found.advice, "/run/other.sock" in found.advice) == (
        True,
        True,
    )


def test_missing_database_that_once_existed_is_problem(context: Context) -> None:
    assert doctor_database.database(context).level == "ok"
    data = Path(context.places.data)
    data.mkdir()
    seen = data.stat()
    directory = Path(context.places.state, "ab" * 8)
    directory.mkdir(parents=True)
    site = records.Site(str(data), seen.st_dev, seen.st_ino, "b")
    records.write(context.places.state, records.InstanceRecord(directory.name, site))
    found = doctor_database.database(context)
    assert (found.level, found.found) == (
        "problem",
        "it is missing, and no daemon starts without it",
    )
    assert str(records.path_of(context.places.state, directory.name)) in found.advice


def test_foreign_database_is_problem_with_adopt_command(context: Context) -> None:
    with closing(sqlite3.connect(database(context))) as connection:
        connection.execute("DROP TABLE conversations")
        connection.execute("CREATE TABLE photos (x)")
    found = doctor_database.database(context)
    assert (found.level, "`pykoclaw-acp adopt`" in found.advice) == ("problem", True)


def test_a_server_without_a_socket_is_named(context: Context) -> None:
    from pykoclaw_acp.store.lock import DataLock

    lock = DataLock.acquire(Path(context.places.data), None)
    try:
        found = machine.daemon(context)
    finally:
        lock.release()
    assert (found.level, f"pid {os.getpid()}" in found.found) == ("warning", True)


def test_socket_path_unusable_for_others_is_warning(context: Context, tmp_path: Path) -> None:
    long = replace(context, places=Places(tmp_path, tmp_path, tmp_path / ("x" * 100) / "acp.sock"))
    assert machine.socket(long).level == "warning"
    assert machine.socket(context).level == "ok"


@pytest.mark.parametrize(
    ("check", "place", "mode", "closed", "settings"),
    [
        (machine.directories, "data", 0o757, "755", "PYKOCLAW_DATA or PYKOCLAW_STATE"),
        (machine.instance, "directory", 0o755, "700", "PYKOCLAW_STATE"),
        (machine.socket, "directory", 0o750, "700", "PYKOCLAW_SOCKET"),
    ],
)
def test_what_others_may_use_is_to_be_closed(
    check: checks.Check, place: str, mode: int, closed: str, settings: str, context: Context
) -> None:
    directory = Path(getattr(context.places, place))
    directory.mkdir(parents=True)
    directory.chmod(mode)
    found = check(context)
    another = f"set {settings} to a place in another directory."
    assert (found.level, found.advice) == (
        "problem",
        f"Restrict it with `chmod {closed} {directory}`; if others need it, {another}",
    )
    directory.chmod(0o1777)
    assert check(context).advice == f"It is meant for everybody: {another}"
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(os, "geteuid", lambda: os.getuid() + 1)
        assert check(context).advice == "Choose another place in the settings."
    directory.chmod(int(closed, 8))
    assert check(context).level == "ok"


@pytest.mark.parametrize(("closed", "level"), [(False, "problem"), (True, "warning")])
def test_parent_directory_writable_by_others_is_named(
    closed: bool, level: str, context: Context, tmp_path: Path
) -> None:
    above = tmp_path / "above"
    (above / "data").mkdir(parents=True)
    found = trusted_path.Weakness(
        str(above), f"Everybody can write to {above}.", "Close it.", certain=not closed
    )
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(
            trusted_path, "examine", lambda path, group=None: [found] if "above" in path else []
        )
        context = replace(context, places=Places(above / "data", tmp_path / "state"))
        finding = machine.directories(context)
    assert (finding.level, finding.found, finding.advice) == (level, found.words, "Close it.")


def test_all_weak_parent_directories_named_most_dangerous_first(
    context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    weak = [
        trusted_path.Weakness(
            name, f"Everybody can write to {name}.", f"Close {name}.", certain=name == "/b"
        )
        for name in ("/a", "/b", "/c")
    ]
    monkeypatch.setattr(trusted_path, "examine", lambda *_: weak)
    finding = machine.directories(context)
    assert finding.level == "problem"
    assert (
        finding.found
        == "Everybody can write to /b. Everybody can write to /a. Everybody can write to /c."
    )
    assert finding.advice == "Close /b. Close /a. Close /c."


def test_intended_group_sharing_is_ok(context: Context, monkeypatch: pytest.MonkeyPatch) -> None:
    shared_with(monkeypatch, "colleague")
    path = database(context)
    path.chmod(0o660)
    path.parent.chmod(0o2770)
    assert (
        machine.directories(context).level == doctor_database.database(context).level == "warning"
    )
    shared = replace(context, group=path.parent.stat().st_gid)
    assert machine.directories(shared).level == doctor_database.database(shared).level == "ok"


def test_what_belongs_to_somebody_else_is_a_problem(
    context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path(context.places.data).mkdir()
    monkeypatch.setattr("os.geteuid", lambda: 4242)
    assert "belongs to user" in machine.directories(context).found


@pytest.mark.parametrize(
    ("free", "level"), [(10**12, "ok"), (500 * 1024**2, "warning"), (10**6, "problem")]
)
def test_low_disk_space_is_reported_before_full(
    free: int, level: str, context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda path: type("Usage", (), {"free": free}))
    assert machine.disk(context).level == level


def test_processes_of_workers_that_nobody_knows_are_found(context: Context) -> None:
    cookie = f"{context.places.hash}:s1:3"
    left = subprocess.Popen(
        ["sleep", "600"], env={"PYKOCLAW_WORKER": cookie, "PATH": os.environ["PATH"]}
    )
    try:
        eventually_sync(lambda: machine.processes(context).level == "warning")
        found = machine.processes(context)
        assert "without a daemon: 1 (" in found.found
        assert "adopts" in found.advice
        known = {**status(), "workers": [{"session": "s1", "epoch": 3}]}
        assert machine.processes(replace(context, status=known)).level == "ok"
        stray = machine.processes(replace(context, status=status()))
        assert (stray.level, "s1:3" in stray.found) == ("warning", True)
    finally:
        left.kill()
        left.wait()


@pytest.mark.parametrize(
    ("states", "level", "words"),
    [
        ("LoadState=not-found\nActiveState=inactive", "ok", "not installed"),
        ("LoadState=loaded\nActiveState=active", "ok", "pykoclaw-acp.service (user) is active"),
        ("LoadState=loaded\nActiveState=failed", "problem", "failed: --user pykoclaw-acp.service"),
        ("LoadState=bad-setting\nActiveState=inactive", "problem", "cannot be loaded"),
    ],
)
def test_the_units_state_is_shown(
    states: str, level: str, words: str, context: Context, tmp_path: Path
) -> None:
    program(tmp_path / "bin/systemctl", f"printf '%s\\n' 'Id=pykoclaw-acp.service' '{states}'")
    found = machine.units(context)
    assert (found.level, words in found.found) == (level, True)


def test_units_are_no_problem_without_responding_systemd(context: Context, tmp_path: Path) -> None:
    program(tmp_path / "bin/systemctl", "exit 1")
    assert machine.units(context).level == "ok"


# --- database


def test_engine_that_can_corrupt_database_is_warning(
    context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = {**status(), "database": {"engine": "sqlite3", "engineVersion": "3.45.1", "atRisk": True}}
    found = doctor_database.engine(replace(context, status=old))
    assert (found.level, "3.45.1" in found.found, "pysqlite3" in found.advice) == (
        "warning",
        True,
        True,
    )
    monkeypatch.setattr(
        "pykoclaw_acp.store.sqlite.ENGINE", engine.Engine("sqlite3", (3, 40, 1), affected=True)
    )
    assert doctor_database.engine(context).level == "warning"


def test_a_database_is_shown_with_its_journal(context: Context) -> None:
    database(context, "WAL")
    assert "WAL" in doctor_database.database(context).found
    shutil.rmtree(context.places.data)
    database(context)
    assert "rollback journal" in doctor_database.database(context).found


def test_a_damaged_database_is_a_problem(context: Context) -> None:
    path = database(context)
    path.write_bytes(path.read_bytes()[:4096] + b"x" * 4096)
    found = doctor_database.database(context)
    assert (found.level, "damaged" in found.advice) == ("problem", True)


def test_database_readable_by_others_should_be_closed(context: Context) -> None:
    path = database(context)
    path.chmod(0o644)
    assert doctor_database.database(context).level == "ok"  # nobody else gets into its directory
    path.parent.chmod(0o755)
    found = doctor_database.database(context)
    assert (found.level, found.advice) == ("warning", f"Restrict it with `chmod 600 {path}`.")


def test_other_program_using_database_named_with_its_library(context: Context) -> None:
    path = database(context, "WAL")
    assert doctor_database.other_programs(context).found == "no other program has the database open"
    code = "import sqlite3, sys; c = sqlite3.connect(sys.argv[1]); c.execute('SELECT 1 FROM t'); print('', flush=True)"
    other = subprocess.Popen(
        [sys.executable, "-c", f"{code}; input()", str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert other.stdout is not None
        other.stdout.readline()
        found = doctor_database.other_programs(context)
        version = subprocess.run(
            [sys.executable, "-c", "import sqlite3; print(sqlite3.sqlite_version)"],
            capture_output=True, text=True, check=True,
        ).stdout.strip()  # fmt: skip
    finally:
        other.communicate("\n")
    assert f"pid {other.pid}" in found.found
    if "of an unknown version" not in found.found:
        assert f"SQLite {version}" in found.found
        affected = engine.wal_reset_affected(tuple(map(int, version.split("."))))  # type: ignore[arg-type]
        assert found.level == ("warning" if affected else "ok")


def test_worker_holding_database_is_named_with_reason(context: Context, tmp_path: Path) -> None:
    path = database(context, "WAL")
    process = tmp_path / "proc/17"
    (process / "fd").mkdir(parents=True)
    (process / "fd/5").symlink_to(path)
    (process / "comm").write_text("pykoclaw-worker\n")
    found = doctor_database.other_programs(replace(context, proc=tmp_path / "proc"))
    assert "pid 17 (pykoclaw-worker: a plugin of pykoclaw opened it in a session)" in found.found


def test_program_with_other_bytes_in_names_is_reported(context: Context, tmp_path: Path) -> None:
    """Its name may be cut inside of a character, its files may lie anywhere."""
    path = database(context, "WAL")
    process, library = tmp_path / "proc/17", tmp_path / "d\udcff/libsqlite3.so.0"
    (process / "fd").mkdir(parents=True)
    (process / "fd/5").symlink_to(path)
    (process / "comm").write_bytes("резервн".encode() + b"\xd0\n")
    library.parent.mkdir()
    library.write_bytes(b"\x003.53.0\x00")
    (process / "maps").write_bytes(b"0-1 r--p 0 08:01 1 " + os.fsencode(library) + b"\n")
    found = doctor_database.other_programs(replace(context, proc=tmp_path / "proc"))
    assert found.found == "pid 17 (резервн\ufffd) with SQLite 3.53.0"


READER = """
import sqlite3, sys
c = sqlite3.connect(sys.argv[1], isolation_level=None)
c.execute("BEGIN" + sys.argv[2]); c.execute("SELECT * FROM t").fetchall()
print("", flush=True); input()
"""


@pytest.mark.parametrize(("begin", "does"), [("", "reads"), (" IMMEDIATE", "writes")])
def test_process_keeping_large_wal_is_named(
    context: Context, monkeypatch: pytest.MonkeyPatch, begin: str, does: str
) -> None:
    path = database(context, "WAL")
    assert wal.write_ahead_log(context) == Finding("write-ahead log", "ok", "0 KiB")
    with closing(sqlite3.connect(path, isolation_level=None)) as writer:
        writer.execute("INSERT INTO t VALUES (zeroblob(100000))")
        other = subprocess.Popen(
            [sys.executable, "-c", READER, str(path), begin],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            assert other.stdout is not None
            other.stdout.readline()
            small = wal.write_ahead_log(context)
            monkeypatch.setattr(wal, "LARGE", 50_000)
            large = wal.write_ahead_log(context)
        finally:
            other.communicate("\n")
        free = wal.write_ahead_log(context)
    named = f"; pid {other.pid} (python"
    assert small.level == "ok"
    assert named in small.found
    assert small.found.endswith(f") {does}")
    assert (large.level, large.found) == ("warning", small.found)
    assert large.advice.startswith("The log grows until that transaction ends")
    assert (free.level, named in free.found) == ("warning", False)
    assert free.advice.startswith("A running daemon empties it")


# --- Claude and clients


def test_working_cli_is_shown_with_version(context: Context, tmp_path: Path) -> None:
    cli = program(tmp_path / "claude")
    assert claude.claude_cli(replace(context, cli_path=str(cli))).found == f"version 2.1.0 at {cli}"
    program(cli, "exit 3")
    assert "ends with 3" in claude.claude_cli(replace(context, cli_path=str(cli))).found
    gone = claude.claude_cli(replace(context, cli_path=str(tmp_path / "none")))
    assert (gone.level, "PYKOCLAW_CLI_PATH" in gone.advice) == ("problem", True)


def test_credential_is_found_everywhere_and_never_shown(context: Context, tmp_path: Path) -> None:
    def found(**environment: str) -> Finding:
        return claude.credential(
            replace(context, environment={**context.environment, **environment})
        )

    assert found().level == "problem"
    for name in (
        "ANTHROPIC_API_KEY",
        "ANTHROPIC_AUTH_TOKEN",
        "CLAUDE_CODE_OAUTH_TOKEN",
        "CLAUDE_CODE_USE_BEDROCK",
    ):
        assert (found(**{name: "sk-very-secret"}).level, name in found(**{name: "x"}).found) == (
            "ok",
            True,
        )
        assert "sk-very-secret" not in repr(found(**{name: "sk-very-secret"}))
    handed = tmp_path / "handed"
    assert found(CREDENTIALS_DIRECTORY=str(handed)).level == "problem"
    handed.mkdir()
    for name, value in (("github_token", "x"), ("anthropic-api-key", "x"), (credentials.KEY, "\n")):
        (handed / name).write_text(value)
        assert found(CREDENTIALS_DIRECTORY=str(handed)).level == "problem"
    (handed / credentials.KEY).write_text("sk-very-secret")
    assert f"{credentials.KEY} from systemd" in found(CREDENTIALS_DIRECTORY=str(handed)).found
    (tmp_path / "claude").mkdir()
    (tmp_path / "claude/settings.json").write_text('{"apiKeyHelper": "/bin/key"}')
    assert "helper" in found(CLAUDE_CONFIG_DIR=str(tmp_path / "claude")).found
    file = tmp_path / "claude/.credentials.json"
    settings = tmp_path / "claude/settings.json"
    settings.unlink()
    file.write_text('{"mcpOAuth": {"server": {}}}')  # a login at an MCP server is none at Claude
    assert found(CLAUDE_CONFIG_DIR=str(tmp_path / "claude")).level == "problem"
    file.write_text('{"claudeAiOauth": {}}')
    file.chmod(0o600)
    assert found(CLAUDE_CONFIG_DIR=str(tmp_path / "claude")).level == "ok"
    file.chmod(0o644)
    assert found(CLAUDE_CONFIG_DIR=str(tmp_path / "claude")).level == "problem"


def test_key_in_the_home_directorys_env_file_counts(context: Context) -> None:
    file = context.home / ".local/share/pykoclaw/.env"
    file.parent.mkdir(parents=True)
    file.write_text("ANTHROPIC_API_KEY=sk-very-secret\n")
    found = claude.credential(context)
    assert (found.level, found.found) == ("ok", f"ANTHROPIC_API_KEY in {file}")


def test_users_settings_that_claude_leaves_out_are_named(context: Context) -> None:
    path = context.home / ".claude/settings.json"
    path.parent.mkdir()
    for data, level in ((None, "ok"), ("{}", "ok"), ('{"permissions":\n {},}', "warning")):
        if data is not None:
            path.write_text(data)
        found = claude.user_settings(context)
        assert found.level == level
    assert f"{path} is not valid JSON (line 2, column " in found.found


def test_accounts_without_login_and_clients_settings_are_named(context: Context) -> None:
    known = [
        {"name": "default", "credential": None},
        {"name": "home", "credential": "login"},
        {"name": "work", "credential": None},
    ]
    others = [{"client": "Zed", "settings": ["PYKOCLAW_MAX_WORKERS"]}]
    running = status() | {"accounts": known, "otherSettings": others}
    found = claude.accounts(replace(context, status=running))
    assert (found.level, "--account work" in found.advice) == ("warning", True)
    found = claude.environment(replace(context, status=running))
    assert (found.level, "Zed sets PYKOCLAW_MAX_WORKERS" in found.found) == ("warning", True)
    for before in (None, status()):  # of an older daemon
        assert claude.accounts(replace(context, status=before)).level == "ok"
        assert claude.environment(replace(context, status=before)).level == "ok"


def test_new_sessions_account_is_looked_at(context: Context) -> None:
    work = context.home / "accounts/work"
    work.mkdir(parents=True)
    own = context.home / ".claude"
    own.mkdir()
    (own / ".credentials.json").write_text('{"claudeAiOauth": {}}')
    (own / ".credentials.json").chmod(0o600)
    (work / "settings.json").write_text("{")
    folder = str(context.home / "accounts")
    chosen = {"name": "work", "directory": str(work), "chosen": True, "credential": None}
    theirs = replace(context, daemon_environment=DaemonEnvironment("work", folder))
    process = context.home / "proc" / str(os.getpid())
    process.mkdir(parents=True)
    (process / "environ").write_text("")
    running = replace(context, status=status() | {"accounts": [chosen]}, proc=process.parent)
    for one in (theirs, running):
        found = claude.credential(one)
        assert (found.level, "login --account work" in found.advice) == ("problem", True)
        assert str(work) in claude.user_settings(one).found
        assert claude.accounts(one).found == "no login for work"
    shutil.move(own / ".credentials.json", work)
    assert claude.credential(theirs).level == "ok"
    assert (claude.accounts(theirs).level, claude.accounts(theirs).found) == ("ok", "work")
    assert (
        claude.credential(replace(context, daemon_environment=DaemonEnvironment("", folder))).level
        == "problem"
    )


def test_login_is_for_the_account_that_lacks_it(context: Context) -> None:
    """Also where the settings of this shell name another one than those of the daemon."""
    process = context.home / "proc" / str(os.getpid())
    process.mkdir(parents=True)
    (process / "environ").write_text("")
    chosen = {"name": "default", "directory": str(context.home), "chosen": True, "credential": None}
    running = replace(context, status=status() | {"accounts": [chosen]}, proc=process.parent)
    for account, command in (("", "login`"), ("work", "login --account default`")):
        one = replace(running, daemon_environment=DaemonEnvironment(account, "/none"))
        assert f"pykoclaw-acp {command}" in claude.credential(one).advice


def test_account_with_key_needs_no_login(context: Context) -> None:
    (context.home / "accounts/work").mkdir(parents=True)
    folder = str(context.home / "accounts")
    one = replace(context, daemon_environment=DaemonEnvironment("work", folder))
    assert claude.accounts(one).level == "warning"
    key = {"ANTHROPIC_API_KEY": "sk-1"}
    with_key = replace(one, environment={**context.environment, **key})
    assert claude.accounts(with_key).level == "ok"
    others = replace(with_key, daemon_environment=DaemonEnvironment("", folder))
    assert claude.accounts(others).found == "no login for work"
    file = context.home / ".local/share/pykoclaw/.env"
    file.parent.mkdir(parents=True)
    file.write_text("ANTHROPIC_API_KEY=sk-1\n")
    assert claude.accounts(one).level == "ok"


def test_this_shells_key_is_for_its_clients(context: Context) -> None:
    daemon = subprocess.Popen(["sleep", "600"], env={"PATH": os.environ["PATH"]})
    try:
        running = replace(context, status=status(pid=daemon.pid))
        assert claude.credential(running).level == "problem"
        shell = {**context.environment, "ANTHROPIC_API_KEY": "sk-1"}
        found = claude.credential(replace(running, environment=shell))
        assert (found.level, "sk-1" in repr(found)) == ("ok", False)
    finally:
        daemon.kill()
        daemon.wait()


def test_with_a_daemon_its_own_environment_counts(context: Context) -> None:
    daemon = subprocess.Popen(
        ["sleep", "600"], env={"ANTHROPIC_API_KEY": "sk-1", "PATH": os.environ["PATH"]}
    )
    try:
        running = replace(context, status=status(pid=daemon.pid))
        eventually_sync(lambda: b"sk-1" in Path(f"/proc/{daemon.pid}/environ").read_bytes())
        assert (
            claude.credential(running).found == "ANTHROPIC_API_KEY in the environment of the daemon"
        )
    finally:
        daemon.send_signal(signal.SIGKILL)
        daemon.wait()


ZED = """// Zed's settings may have comments,
{
  "theme": "One // Dark", /* of both kinds, */
  "agent_servers": {
    "pykoclaw": {"command": %s, "args": %s,},
  },  // and trailing commas
}
"""


@pytest.mark.parametrize(
    ("command", "args", "level"),
    [
        ("pykoclaw-acp", [], "ok"),
        ("pykoclaw-acp", ["serve", "--stdio"], "warning"),
        ("pykoclaw-acp", ["serve"], "problem"),
        ("pykoclaw-acpp", [], "problem"),
        ("/opt/pykoclaw-acp", [], "problem"),
    ],
)
def test_zeds_configuration_is_looked_at(
    command: str, args: list[str], level: str, context: Context, tmp_path: Path
) -> None:
    assert claude.zed(context).level == "ok"
    program(tmp_path / "bin/pykoclaw-acp")
    path = tmp_path / ".config/zed/settings.json"
    path.parent.mkdir(parents=True)
    path.write_text(ZED % (json.dumps(command), json.dumps(args)))
    found = claude.zed(context)
    assert (found.level, str(path) in found.found) == (level, True)
    path.write_text("{")
    assert "cannot be read" in claude.zed(context).found


@pytest.mark.parametrize(
    ("command", "level"),
    [
        ("pykoclaw-acp", "ok"),
        ("sh -c 'PYKOCLAW_DATA=\"$HOME/x\" exec pykoclaw-acp serve --stdio'", "warning"),
        ("/nowhere/pykoclaw-acp", "problem"),
        ("claude-agent-acp", "ok"),
        ("env -i pykoclaw-acp", "ok"),
        ("env A=b /nowhere/pykoclaw-acp", "problem"),
        ("bash -lc 'exec /nowhere/pykoclaw-acp'", "problem"),
        ("ssh me@host env A=b /nowhere/pykoclaw-acp", "ok"),
        ("ssh me@host /nowhere/pykoclaw-acp serve --stdio", "warning"),
        ("sh -c 'ssh me@host /nowhere/pykoclaw-acp'", "ok"),
        ("docker exec -i name /nowhere/pykoclaw-acp", "ok"),
        ("ssh me@host /nowhere/pykoclaw-acp serve", "problem"),
        ("env PYKOCLAW_DATA=/nowhere/pykoclaw-acp pykoclaw-acp", "ok"),
        ("/nowhere/pykoclaw-acp-work.sh", "problem"),
        ("pykoclaw acp", "problem"),
        ("pykoclaw chat", "ok"),
    ],
)
def test_mittos_configuration_is_looked_at(
    command: str, level: str, context: Context, tmp_path: Path
) -> None:
    program(tmp_path / "bin/pykoclaw-acp")
    (tmp_path / ".mittorc").write_text(f"acp:\n  - pykoclaw:\n      command: {command}\n")
    assert claude.mitto(context).level == level


@pytest.mark.parametrize(
    ("command", "how"), [("{}/pykoclaw-acp-work.sh", "starts"), ("uvx pykoclaw-acp", "names")]
)
def test_what_starts_us_is_not_sought_as_us(
    command: str, how: str, context: Context, tmp_path: Path
) -> None:
    program(tmp_path / "pykoclaw-acp-work.sh")
    command = command.format(tmp_path)
    (tmp_path / ".mittorc").write_text(f"acp:\n  - pykoclaw:\n      command: {command}\n")
    found = claude.mitto(context)
    assert (found.level, found.found) == ("ok", f"{tmp_path}/.mittorc {how} pykoclaw-acp")


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("/nowhere/pykoclaw-acp", "does not exist or cannot be executed"),
        ("pykoclaw-acp", "is not on PATH here"),
    ],
)
def test_missing_program_is_called_what_it_is(
    command: str, said: str, context: Context, tmp_path: Path
) -> None:
    (tmp_path / ".mittorc").write_text(f"acp:\n  - pykoclaw:\n      command: {command}\n")
    found = claude.mitto(context)
    assert found.found == f"{tmp_path}/.mittorc starts {command}, which {said}"


SERVER = {"mcpServers": {"mitto": {"url": "http://127.0.0.1:5757/mcp"}}}


@pytest.mark.parametrize(
    ("files", "level", "found"),
    [
        ({}, "ok", "not set up"),
        ({".claude.json": SERVER}, "ok", "is in"),
        ({".claude/settings.json": SERVER}, "warning", ".claude/settings.json only"),
        ({".claude/settings.json": SERVER, ".claude.json": SERVER}, "ok", "is in"),
        ({"w/.claude/settings.local.json": SERVER}, "warning", "settings.local.json only"),
        ({"w/.claude/settings.json": SERVER, "w/.mcp.json": SERVER}, "ok", "each of its"),
        ({".claude/settings.json": SERVER, "w/.mcp.json": SERVER}, "ok", "each of its"),
        ({".claude/settings.json": {"mcpServers": {"other": {}}}}, "ok", "not set up"),
        ({".claude/settings.json": ["mitto"], ".claude.json": "x"}, "ok", "not set up"),
    ],
)
def test_mittos_server_outside_claudes_view_is_named(
    files: dict[str, Any], level: str, found: str, context: Context, tmp_path: Path
) -> None:
    assert mitto.mitto_tools(context).found == "no configuration of it here"
    workspaces = {"workspaces": [{"working_dir": str(tmp_path / "w")}, {"working_dir": 1}, 2]}
    for name, value in {".local/share/mitto/workspaces.json": workspaces, **files}.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(json.dumps(value))
    said = mitto.mitto_tools(context)
    assert (said.level, found in said.found) == (level, True), said
    assert (level == "warning") == ("mcp add --scope user" in said.advice)
    elsewhere = replace(context, environment={"CLAUDE_CONFIG_DIR": str(tmp_path / "c")})
    assert (".claude.json" in files) <= ("is in" not in mitto.mitto_tools(elsewhere).found)


@pytest.mark.parametrize(
    ("files", "sources", "trusted", "found", "advice"),
    [
        (
            {".claude.json": SERVER},
            ("project",),
            True,
            ".claude.json, which PYKOCLAW_",
            "Add `user`",
        ),
        ({"w/.mcp.json": SERVER}, ("user",), True, ".mcp.json, which PYKOCLAW_", "Add `project`"),
        ({"w/.mcp.json": SERVER}, ("project",), False, "is not trusted", "trust add "),
        ({"w/.mcp.json": SERVER}, ("project",), True, "each of its", ""),
        ({"w/.mcp.json": SERVER}, ("project",), None, "each of its", ""),
        ({".claude.json": SERVER, "w/.mcp.json": SERVER}, ("project",), True, "each of its", ""),
        (
            {".claude.json": {"projects": {"w": SERVER}}},
            ("user",),
            True,
            "which PYKO",
            "Add `local`",
        ),
        ({".claude.json": {"projects": {"w": SERVER}}}, ("local",), True, "each of its", ""),
    ],
)
def test_useless_way_of_mittos_server_is_named(
    files: dict[str, Any], sources: tuple[str, ...], trusted: bool | None, found: str, advice: str,
    context: Context, tmp_path: Path,
) -> None:  # fmt: skip
    """By the settings, or as its directory is not trusted."""
    workspaces = {"workspaces": [{"working_dir": str(tmp_path / "w")}]}
    for name, value in {".local/share/mitto/workspaces.json": workspaces, **files}.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        text = json.dumps(value).replace('"w":', f"{json.dumps(str(tmp_path / 'w'))}:")
        (tmp_path / name).write_text(text)
    known = None if trusted is None else [(str(tmp_path), True)] if trusted else [("/", False)]
    said = mitto.mitto_tools(replace(context, setting_sources=sources, trusted=known))
    assert (found in said.found, advice in said.advice) == (True, True), said
    assert said.level == ("warning" if advice else "ok")


def test_a_copy_is_named(context: Context) -> None:
    assert "copy of" not in machine.copy(context).found
    assert "copy of" not in machine.copy(replace(context, status=status(copiedFrom=None))).found
    copied = machine.copy(replace(context, status=status(copiedFrom="/home/me/before")))
    assert (copied.level, "is a copy of /home/me/before" in copied.found) == ("ok", True)


def test_damaged_spools_are_named_until_they_are_deleted(context: Context) -> None:
    assert machine.spools(context).level == "ok"
    os.makedirs(context.places.data)
    directory = Path(context.places.state, "0123456789ab")
    spool = directory / "spool" / "worker-1.ndjson"
    directory.mkdir(parents=True)
    records.write(
        context.places.state,
        records.InstanceRecord(directory.name, records.Site.of(context.places.data)),
    )
    spool.parent.mkdir(parents=True)
    spool.write_bytes(b"?")
    kept = leftovers.keep(spool)
    finding = machine.spools(context)
    assert (finding.level, kept in finding.found) == ("warning", True)
    assert "delete it" in finding.advice
    told = replace(context, status={**status(), "damaged": ["elsewhere:/damaged/1"]})
    assert "the newest is elsewhere:/damaged/1" in machine.spools(told).found
    Path(kept).unlink()
    assert machine.spools(context).level == "ok"


def test_profile_and_claudes_refusals_to_root_are_told(
    context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = claude.profile(context)
    assert (found.level, found.found) == (
        "ok", "editor; permission mode of new sessions: default",
    )  # fmt: skip
    bypassing = replace(context, profile="pykoclaw", permission_mode="bypassPermissions")
    monkeypatch.setattr("os.geteuid", lambda: 0)
    found = claude.profile(bypassing)
    assert (found.level, "IS_SANDBOX=1" in found.advice) == ("problem", True)
    environment = {**context.environment, "IS_SANDBOX": "1"}
    assert claude.profile(replace(bypassing, environment=environment)).level == "ok"
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    assert claude.profile(bypassing).level == "ok"


def test_mistyped_settings_are_told_with_near_name(context: Context) -> None:
    names = [("PYKOCLAW_MODLE", "PYKOCLAW_MODEL"), ("PYKOCLAW_TYPO", None)]
    finding = machine.unknown_settings(replace(context, unknown_settings=names))
    assert finding.level == "warning"
    assert finding.found.endswith("PYKOCLAW_MODLE (is PYKOCLAW_MODEL meant?), PYKOCLAW_TYPO")
    assert machine.unknown_settings(context).level == "ok"


def test_settings_pykoclaw_reads_differently_are_told(context: Context) -> None:
    unread = replace(context, why_unread="/x/.env", unread_settings=["PYKOCLAW_DATA"])
    found = machine.settings(unread)
    assert (found.level, found.found) == ("warning", "/x/.env")
    assert "pykoclaw itself reads that file" in found.advice
    empty = replace(context, environment={**context.environment, "PYKOCLAW_DATA": ""})
    assert machine.settings(empty).level == "warning"
    here = machine.settings(replace(context, here_settings=["PYKOCLAW_MODEL"]))
    assert (here.level, "not for clients: PYKOCLAW_MODEL" in here.found) == ("ok", True)


# --- notices


def test_doctor_names_targets_that_cannot_be_told(context: Context) -> None:
    told = notices.notices(replace(context, notify="wa-andy-1@g.us, https://example.com/…"))
    assert told.level == "ok"
    assert "wa-andy-1@g.us, https://example.com/…" in told.found
    missing = notices.notices(replace(context, notify=f"{context.home}/tell --now"))
    assert missing.level == "problem"
    path = program(context.home / "bin/tell")
    assert notices.notices(replace(context, notify=f"{path} --now")).level == "ok"


def test_doctor_names_program_that_others_can_change(
    context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = program(context.home / "bin/tell")
    path.chmod(0o777)
    told = replace(context, notify=f"{path} --now")
    assert notices.notices(told).level == "ok", "nobody else can reach it"
    is_closed = "pykoclaw_acp.system.trusted_path._Directory.is_closed"
    monkeypatch.setattr(is_closed, lambda self: False)
    found = notices.notices(told)
    assert (found.level, found.advice) == ("warning", f"Restrict it with `chmod o-w {path}`.")


def test_doctor_says_why_notices_were_not_accepted(context: Context) -> None:
    reason = {"target": "webhook:1", "notices": 3, "reason": "HTTP status 500"}
    answered = {**status(), "unaccepted": [{**reason, "name": "https://example.com/…"}]}
    there = replace(context, notify="https://example.com/…, wa-andy-1@g.us", status=answered)
    found = notices.notices(there)
    assert found.level == "warning"
    assert found.found == "https://example.com/… has not accepted 3 notices: HTTP status 500"
    answered["unaccepted"] = [reason]  # of an older daemon, whose settings are unknown
    assert notices.notices(replace(there, notify=None)).level == "warning"
    assert notices.notices(there).found.startswith("a target of PYKOCLAW_NOTIFY has not accepted 3")
    answered["unaccepted"] = []
    assert notices.notices(there).level == "ok"
