"""The systemd units: what systemd says of them, what a service is handed, and what the installer
does and undoes.
"""

from __future__ import annotations

import json
import os
import pty
import re
import shutil
import socket
import stat
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
INSTALL = DEPLOY / "install.sh"
UNITS = ("pykoclaw-acp.socket", "pykoclaw-acp.service")

needs_systemd = pytest.mark.skipif(
    shutil.which("systemd-analyze") is None, reason="systemd is not installed"
)


def settings(scope: str, unit: str) -> dict[str, list[str]]:
    """The settings of a unit of deploy/."""
    found: dict[str, list[str]] = {}
    for line in (DEPLOY / scope / unit).read_text().splitlines():
        if "=" in line and not line.startswith("#"):
            name, value = line.split("=", 1)
            found.setdefault(name, []).append(value)
    return found


# --- the units


@needs_systemd
@pytest.mark.parametrize("scope", ["user", "system"])
def test_systemd_has_no_complaint(scope: str, tmp_path: Path) -> None:
    """Its exit status does not tell of an unknown setting; only stderr does."""
    for unit in UNITS:
        shutil.copy(DEPLOY / scope / unit, tmp_path)
    result = analyze(tmp_path, "verify", f"--{scope}", "--man=no", *(f"./{unit}" for unit in UNITS))
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")


@needs_systemd
@pytest.mark.parametrize(
    ("scope", "more", "figure"),
    [
        ("system", "", 36),
        ("user", "", 77),  # taken for root's
        # as it is: a user's manager has none to give; 5.1 if it is analyzed without --user
        ("user", "CapabilityBoundingSet=\n", 52),
    ],
)
def test_service_is_sandboxed_as_far_as_agent_allows(
    scope: str, more: str, figure: int, tmp_path: Path
) -> None:
    """The figures (tenths) that the units tell."""
    unit = (DEPLOY / scope / UNITS[1]).read_text()
    assert f"{figure / 10}" in comments(unit)
    (tmp_path / UNITS[1]).write_text(unit.replace("[Service]\n", f"[Service]\n{more}"))
    how = ("--offline=true", "--no-pager", f"--threshold={figure}")
    result = analyze(tmp_path, "security", f"--{scope}", *how, f"./{UNITS[1]}")
    assert (result.returncode, result.stderr) == (0, ""), result.stdout[-200:]


def analyze(directory: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["systemd-analyze", *arguments],
        cwd=directory,
        env={**os.environ, "XDG_RUNTIME_DIR": str(directory)},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


@pytest.mark.parametrize("scope", ["user", "system"])
def test_restart_loses_no_turn_and_claude_can_run(scope: str) -> None:
    service = settings(scope, "pykoclaw-acp.service")
    assert service["KillMode"] == ["process"]
    assert service["OOMPolicy"] == ["continue"]
    assert service["RuntimeDirectoryPreserve"] == ["yes"]
    assert service["RestartForceExitStatus"] == ["75"]
    assert not {"PrivateTmp", "PrivateUsers", "MemoryDenyWriteExecute", "RestrictNamespaces"} & set(
        service
    )


def test_user_unit_asks_for_nothing_that_needs_root() -> None:
    """A user's manager that cannot drop a capability ends the service with status 218."""
    asked = set(settings("user", "pykoclaw-acp.service"))
    assert not {name for name in asked if "Capabilit" in name}
    assert not {"User", "Group", "ProtectSystem", "PrivateDevices", "ProtectHome"} & asked


def test_the_sockets_are_for_their_user_alone() -> None:
    """Root gives the machine's socket to nobody: it would do so by its path, in a directory of the
    service user's.
    """
    assert settings("user", "pykoclaw-acp.socket")["SocketMode"] == ["0600"]
    system = settings("system", "pykoclaw-acp.socket")
    assert not {"SocketUser", "SocketGroup"} & set(system)
    assert system["SocketMode"] == ["0666"]
    assert (
        system["DirectoryMode"]
        == settings("system", "pykoclaw-acp.service")["RuntimeDirectoryMode"]
        == ["0700"]
    )
    assert (
        "d /run/pykoclaw 0700 pykoclaw pykoclaw\n" in (DEPLOY / "system/tmpfiles.conf").read_text()
    )


@needs_systemd
@pytest.mark.parametrize("scope", ["user", "system"])
def test_each_relaxation_has_its_reason_in_the_unit(scope: str, tmp_path: Path) -> None:
    """What `systemd-analyze security` counts is named in a comment."""
    shutil.copy(DEPLOY / scope / UNITS[1], tmp_path)
    how = ("--offline=true", "--no-pager", "--json=short")
    result = analyze(tmp_path, "security", f"--{scope}", *how, f"./{UNITS[1]}")
    counted = [one["name"] for one in json.loads(result.stdout) if float(one["exposure"] or 0)]
    assert len(counted) > 20
    told = set(re.findall(r"\w+", comments((DEPLOY / scope / UNITS[1]).read_text())))
    for name in counted:
        assert {one.partition("=")[0] for one in name.split("/")} & told, name
        if name.startswith("SystemCallFilter"):
            assert name.partition("@")[2] in told, name


def comments(unit: str) -> str:
    return "\n".join(line for line in unit.splitlines() if line.startswith("#"))


# --- what systemd hands over

CHILD = """
import fcntl, os, sys
handed = [fcntl.fcntl(int(descriptor), fcntl.F_DUPFD, 20) for descriptor in sys.argv[2:]]
for target, descriptor in enumerate(handed, 3):
    os.dup2(descriptor, target)
os.environ.update(LISTEN_PID=str(os.getpid() + int(sys.argv[1])), LISTEN_FDS="2", LISTEN_FDNAMES="acp:other")
from pykoclaw_acp.system.systemd import inherited_sockets
found = inherited_sockets()
left = [name for name in os.environ if name.startswith("LISTEN_")]
print([one.getsockname() for one in found], [one.get_inheritable() for one in found], left, os.path.exists("/dev/fd/4"))
"""


@pytest.mark.parametrize(("offset", "ours"), [(0, True), (1, False)])
def test_the_sockets_of_this_process_are_taken(offset: int, ours: bool, tmp_path: Path) -> None:
    """Descriptor 3 is a socket, 4 is none; both are handed over, to this process or to another."""
    path = str(tmp_path / "s")
    with socket.socket(socket.AF_UNIX) as listener, open(os.devnull) as nothing:
        listener.bind(path)
        listener.listen()
        handed = (listener.fileno(), nothing.fileno())
        child = subprocess.run(
            [sys.executable, "-c", CHILD, str(offset), *map(str, handed)],
            pass_fds=handed,
            capture_output=True,
            text=True,
            check=True,
        )
    assert child.stdout == (f"['{path}'] [False] [] False\n" if ours else "[] [] [] True\n")


# --- the installer


@pytest.fixture
def program(tmp_path: Path) -> Path:
    """A pykoclaw-acp that is on PATH, and not where the units look."""
    found = tmp_path / "bin" / "pykoclaw-acp"
    found.parent.mkdir()
    found.write_text("#!/bin/sh\n")
    found.chmod(0o755)
    return found


def install(program: Path, *arguments: str, **environment: str) -> str:
    """What it says; there is no manager that it could talk to."""
    path = f"{program.parent}:{os.environ['PATH']}"
    result = subprocess.run(
        [str(INSTALL), *arguments],
        env={**os.environ, "PATH": path, "XDG_RUNTIME_DIR": str(program.parent), **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (result.returncode, result.stderr) == (0, "")
    return result.stdout


def tree(root: Path) -> dict[str, tuple[int, int]]:
    """The files and links below `root`, with their modes and times."""
    return {
        str(path.relative_to(root)): (stat.S_IMODE(path.lstat().st_mode), path.lstat().st_mtime_ns)
        for path in sorted(root.rglob("*"))
        if not path.is_dir()
    }


@needs_systemd
def test_installed_twice_and_taken_away_for_a_user(program: Path, empty_home: Path) -> None:
    units = empty_home / ".config/systemd/user"
    install(program)
    first = tree(empty_home)
    assert set(first) == {
        ".config/pykoclaw/environment",
        ".config/systemd/user/pykoclaw-acp.service",
        ".config/systemd/user/pykoclaw-acp.service.d/program.conf",
        ".config/systemd/user/pykoclaw-acp.socket",
        ".config/systemd/user/sockets.target.wants/pykoclaw-acp.socket",
    }
    assert first[".config/pykoclaw/environment"][0] == 0o600
    assert (
        f'ExecStart="{program}" serve'
        in (units / "pykoclaw-acp.service.d/program.conf").read_text()
    )
    assert "wrote" not in install(program)
    assert tree(empty_home) == first
    install(program, "--uninstall")
    assert tree(empty_home) == {}


@needs_systemd
def test_removal_of_nothing_says_so(program: Path, empty_home: Path) -> None:
    said = install(program, "--uninstall")
    assert said == (
        "nothing is removed: there were no units of pykoclaw-acp in"
        f" {empty_home / '.config/systemd/user'}\n"
    )
    install(program)
    assert "nothing" not in install(program, "--uninstall")


@needs_systemd
def test_what_users_wrote_themselves_stays(program: Path, empty_home: Path) -> None:
    install(program)
    key = empty_home / ".config/pykoclaw/environment"
    key.write_text("ANTHROPIC_API_KEY=mine\n")
    own = empty_home / ".config/systemd/user/pykoclaw-acp.service.d/override.conf"
    own.write_text("[Service]\nMemoryHigh=4G\n")
    install(program)
    install(program, "--uninstall")
    assert set(tree(empty_home)) == {str(path.relative_to(empty_home)) for path in (key, own)}
    assert key.read_text() == "ANTHROPIC_API_KEY=mine\n"


@needs_systemd
def test_changed_unit_is_replaced_and_program_is_selectable(
    program: Path, empty_home: Path
) -> None:
    other = program.with_name("pykoclaw-acp-2")
    shutil.copy(program, other)
    install(program)
    unit = empty_home / ".config/systemd/user/pykoclaw-acp.service"
    unit.write_text("[Service]\nExecStart=/bin/false\n")
    install(program, "--program", str(other))
    assert unit.read_text() == (DEPLOY / "user/pykoclaw-acp.service").read_text()
    assert (
        f'ExecStart="{other}" serve'
        in (unit.parent / "pykoclaw-acp.service.d/program.conf").read_text()
    )


def manager(program: Path, script: str) -> Path:
    """A systemctl that does this."""
    made = program.with_name("systemctl")
    made.write_text(f"#!/bin/sh\n{script}\n")
    made.chmod(0o755)
    return made


def refused(program: Path, *arguments: str) -> str:
    """Why it does nothing."""
    result = subprocess.run(
        [str(INSTALL), *arguments],
        env={
            **os.environ,
            "PATH": f"{program.parent}:{os.environ['PATH']}",
            "XDG_RUNTIME_DIR": str(program.parent),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert (result.returncode, result.stdout) == (1, "")
    return result.stderr


@pytest.mark.parametrize("arguments", [(), ("--uninstall",)])
def test_silent_manager_is_not_taken_for_none(
    program: Path, empty_home: Path, arguments: tuple[str, ...]
) -> None:
    systemctl = manager(program, "case $* in *show-environment*) exit 1 ;; esac")
    install(program)
    installed = tree(empty_home)
    (program.parent / "systemd").mkdir()
    with socket.socket(socket.AF_UNIX) as private:
        private.bind(str(program.parent / "systemd/private"))
        assert "does not answer" in refused(program, *arguments)
    assert tree(empty_home) == installed
    systemctl.write_text("#!/bin/sh\n")
    install(program, *arguments)


def test_service_that_does_not_stop_is_not_removed(program: Path, empty_home: Path) -> None:
    systemctl = manager(program, "case $* in *' stop '*) exit 1 ;; esac")
    install(program)
    installed = tree(empty_home)
    assert "does not stop" in refused(program, "--uninstall")
    assert tree(empty_home) == installed
    systemctl.write_text(
        "#!/bin/sh\ncase $* in *' stop '*) exit 5 ;; *is-active*) exit 3 ;; esac\n"
    )
    install(program, "--uninstall")
    assert tree(empty_home) == {}


def test_directory_is_no_program_of_a_service(program: Path, empty_home: Path) -> None:
    manager(program, "")
    assert "is not an executable program" in refused(program, "--program", str(program.parent))
    assert tree(empty_home) == {}


def test_settings_are_read_as_systemd_reads_them(program: Path, empty_home: Path) -> None:
    manager(program, "")
    install(program)
    program.write_text('#!/bin/sh\necho "[$PYKOCLAW_DATA][$PYKOCLAW_STATE]" >"$HOME/seen"\n')
    file = empty_home / ".config/pykoclaw/environment"
    lines = ' PYKOCLAW_DATA="/srv/a b " \n\tPYKOCLAW_STATE = /state\t\r\n'
    file.write_text(f"{lines} PYKOCLAW_PROFILE = 'pykoclaw' \n")
    assert "PYKOCLAW_PROFILE" not in install(program, "--profile", "pykoclaw")
    assert (empty_home / "seen").read_text() == "[/srv/a b ][/state]\n"
    install(program, "--profile", "editor")
    assert file.read_text() == f"{lines}PYKOCLAW_PROFILE=editor\n".replace("\r\n", "\n")


def test_relative_paths_are_taken_from_here(program: Path, empty_home: Path) -> None:
    """Whatever CDPATH says, with which the shell prints where it goes."""
    manager(program, "case $* in *show-environment*) exit 1 ;; esac")
    shutil.copytree(DEPLOY, empty_home / "x/deploy")
    (empty_home / "x/own").mkdir()
    shutil.copy(program, empty_home / "x/own/pykoclaw-acp")
    result = subprocess.run(
        ["deploy/install.sh", "--program", "own/pykoclaw-acp"],
        env={
            **os.environ,
            "PATH": f"{program.parent}:{os.environ['PATH']}",
            "XDG_RUNTIME_DIR": str(program.parent),
            "CDPATH": ".",
        },
        cwd=empty_home / "x",
        capture_output=True,
        text=True,
        check=False,
    )
    assert (result.returncode, result.stderr) == (0, "")
    dropin = empty_home / ".config/systemd/user/pykoclaw-acp.service.d/program.conf"
    assert f'ExecStart="{empty_home}/x/own/pykoclaw-acp" serve\n' in dropin.read_text()


@needs_systemd
def test_profile_is_set_and_kept(program: Path, empty_home: Path) -> None:
    file = empty_home / ".config/pykoclaw/environment"
    install(program)
    assert file.read_text() == ""  # nobody was there to be asked
    file.write_text("ANTHROPIC_API_KEY=mine")
    assert f"set PYKOCLAW_PROFILE=pykoclaw in {file}" in install(program, "--profile", "pykoclaw")
    install(program)
    assert file.read_text() == "ANTHROPIC_API_KEY=mine\nPYKOCLAW_PROFILE=pykoclaw\n"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    install(program, "--profile", "editor")
    assert file.read_text() == "ANTHROPIC_API_KEY=mine\nPYKOCLAW_PROFILE=editor\n"
    with pytest.raises(AssertionError):
        install(program, "--profile", "whatsapp")


@needs_systemd
def test_person_at_terminal_is_asked_for_profile_once(program: Path, empty_home: Path) -> None:
    file = empty_home / ".config/pykoclaw/environment"
    said = install_at_terminal(program, "whatsapp\npykoclaw\n")
    assert said.count("Profile [editor]: ") == 2
    assert file.read_text() == "PYKOCLAW_PROFILE=pykoclaw\n"
    assert "Profile" not in install_at_terminal(program, "")
    file.write_text("")
    install_at_terminal(program, "\n")
    assert file.read_text() == "PYKOCLAW_PROFILE=editor\n"


def install_at_terminal(program: Path, typed: str) -> str:
    """What it says to a person that types this."""
    ours, terminal = pty.openpty()
    os.write(ours, typed.encode())
    path = f"{program.parent}:{os.environ['PATH']}"
    process = subprocess.Popen(
        [str(INSTALL)], stdin=terminal, stdout=terminal, stderr=terminal,
        env={**os.environ, "PATH": path, "XDG_RUNTIME_DIR": str(program.parent)},
    )  # fmt: skip
    os.close(terminal)
    said = b""
    try:
        while data := os.read(ours, 4096):
            said += data
    except OSError:  # EIO: the other end is closed
        pass
    finally:
        os.close(ours)
    assert process.wait(60) == 0, said
    return said.decode()


@needs_systemd
def test_no_drop_in_where_unit_finds_program(program: Path, empty_home: Path) -> None:
    found = empty_home / ".local/bin/pykoclaw-acp"
    found.parent.mkdir(parents=True)
    shutil.copy(program, found)
    install(program)
    assert not (empty_home / ".config/systemd/user/pykoclaw-acp.service.d/program.conf").exists()


@needs_systemd
def test_selected_program_is_kept_until_it_is_gone(program: Path, empty_home: Path) -> None:
    dropin = empty_home / ".config/systemd/user/pykoclaw-acp.service.d/program.conf"
    found = empty_home / ".local/bin/pykoclaw-acp"
    found.parent.mkdir(parents=True)
    shutil.copy(program, found)
    other = program.with_name("pykoclaw-acp-2")
    shutil.copy(program, other)
    install(program, "--program", str(other))
    install(program)
    assert f'ExecStart="{other}" serve' in dropin.read_text()
    other.unlink()
    assert "is gone" in install(program)
    assert not dropin.exists()


@needs_systemd
def test_profile_of_all_clients_is_not_asked_for(program: Path, empty_home: Path) -> None:
    file = empty_home / ".local/share/pykoclaw/.env"
    file.parent.mkdir(parents=True)
    file.write_text("PYKOCLAW_PROFILE=pykoclaw\n")
    assert "Profile" not in install_at_terminal(program, "")
    assert (empty_home / ".config/pykoclaw/environment").read_text() == ""


@needs_systemd
def test_installed_twice_and_taken_away_for_a_machine(program: Path, tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    install(program, "--system", DESTDIR=str(root))
    first = tree(root)
    assert set(first) == {
        "etc/pykoclaw/anthropic_api_key",
        "etc/pykoclaw/environment",
        "etc/systemd/system/pykoclaw-acp.service",
        "etc/systemd/system/pykoclaw-acp.service.d/program.conf",
        "etc/systemd/system/pykoclaw-acp.socket",
        "etc/systemd/system/sockets.target.wants/pykoclaw-acp.socket",
        "etc/sysusers.d/pykoclaw-acp.conf",
        "etc/tmpfiles.d/pykoclaw-acp.conf",
    }
    assert first["etc/pykoclaw/anthropic_api_key"][0] == 0o600
    install(program, "--system", DESTDIR=str(root))
    assert tree(root) == first
    install(program, "--system", "--uninstall", DESTDIR=str(root))
    assert tree(root) == {}
