from __future__ import annotations

import errno
import os
import pwd
import socket
import subprocess
from pathlib import Path
from typing import IO, Any

import pytest
from dotenv import dotenv_values
from hypothesis import given
from hypothesis import strategies as some

from pykoclaw_acp.config import loading
from pykoclaw_acp.errors import ConfigurationError
from pykoclaw_acp.link import places
from pykoclaw_acp.link.places import (
    Places,
    connect,
    lock_holder,
    secure_directory,
    serves,
    try_lock,
)
from pykoclaw_acp.store.lock import DataLock
from pykoclaw_acp.system import dotenv, trusted_path
from pykoclaw_acp.trust import dotenv as trust

FILES = [
    "PYKOCLAW_DATA=/plain\nPYKOCLAW_STATE=relative/../state\nPYKOCLAW_SOCKET=~/s.sock\n",
    "export PYKOCLAW_DATA='/single # quoted'\nexport  PYKOCLAW_STATE = \"/double\\tquoted\" # comment\n",
    "# PYKOCLAW_DATA=/no\nPYKOCLAW_DATA=/with # comment\nPYKOCLAW_STATE=/with#sign\nPYKOCLAW_SOCKET= # nothing\n",
    "PYKOCLAW_DATA=\nPYKOCLAW_STATE=''\nPYKOCLAW_SOCKET\n",
    "BASE=/base\nPYKOCLAW_DATA=${BASE}/data\nPYKOCLAW_STATE=${NOTHING:-/default}/state\nPYKOCLAW_SOCKET=${HOME}/s\n",
    "pykoclaw_data=/lower\nPykoclaw_State=/mixed\ndata=/no\n",
    "PYKOCLAW_DATA=/first\nPYKOCLAW_DATA=/second\nPYKOCLAW_STATE=/first\nPYKOCLAW_STATE=\n",
    "'PYKOCLAW_DATA'=/quoted\nno line = = at \"all\nPYKOCLAW_STATE='/over\ntwo lines'\r\n",
    'PYKOCLAW_SOCKET="/a\\"b"\r\nPYKOCLAW_DATA = /spaces around \r\n',
    "\ufeffPYKOCLAW_DATA=/after/a/mark\n",
    'PYKOCLAW_DATA="unclosed\nPYKOCLAW_STATE=/next\n',
]


@pytest.fixture(autouse=True)
def empty_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, whose `./.env` the settings would read."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def same_as_the_settings() -> Places:
    """What the front finds, once it is checked against what the daemon reads."""
    found, settings = Places.find(), loading.load()
    told = Places(settings.data, settings.state, settings.socket)
    assert (found.data, found.state, found.socket) == (told.data, told.state, told.socket)
    assert (found.hash, found.directory, found.log, found.lock) == (
        told.hash,
        told.directory,
        told.log,
        told.lock,
    )
    return found


@pytest.mark.parametrize("text", FILES)
def test_home_file_means_same_as_in_settings(text: str) -> None:
    path = Path("~/.local/share/pykoclaw/.env").expanduser()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode())
    same_as_the_settings()


def test_environment_beats_home_file_and_directory_file_ignored(
    empty_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home_file = empty_home / ".local/share/pykoclaw/.env"
    home_file.parent.mkdir(parents=True)
    home_file.write_text(
        "PYKOCLAW_DATA=/home/data\nPYKOCLAW_STATE=/home/state\nPYKOCLAW_SOCKET=/home/socket\n"
    )
    monkeypatch.setenv("pykoclaw_data", "/environment/data")
    monkeypatch.setenv("PYKOCLAW_STATE", "")
    found = same_as_the_settings()
    assert (found.data, found.state, found.socket) == (
        "/environment/data",
        "/home/state",
        "/home/socket",
    )
    Path(".env").write_text(
        "PYKOCLAW_DATA=/here/data\nPYKOCLAW_STATE=/here/state\nPYKOCLAW_SOCKET=/here/socket\n"
    )
    found = Places.find()
    assert (found.data, found.state, found.socket) == (
        "/environment/data",
        "/home/state",
        "/home/socket",
    )


def test_without_home_no_directory_stands_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As of a container's user without a name; the working directory may be a cloned repository."""
    file = tmp_path / "~/.local/share/pykoclaw/.env"
    file.parent.mkdir(parents=True)
    lines = ("SOCKET=/here/socket", "NESTED_ACCESS=clients", "WORKSPACE_TRUST=off")
    file.write_text("".join(f"PYKOCLAW_{line}\n" for line in lines))
    monkeypatch.delenv("HOME")
    monkeypatch.setenv("PYKOCLAW_DATA", "/data")
    monkeypatch.setenv("PYKOCLAW_STATE", "/state")

    def nobody(_: int) -> pwd.struct_passwd:
        raise KeyError

    monkeypatch.setattr(pwd, "getpwuid", nobody)
    assert Places.find().socket != "/here/socket"
    assert places.setting("pykoclaw_nested_access") is None
    (tmp_path / ".env").write_text("PYKOCLAW_DATA=/here/data\n")
    assert not trust.is_trusted(str(tmp_path))


def own_home(monkeypatch: pytest.MonkeyPatch, home: Path) -> None:
    user = list(pwd.getpwuid(os.getuid()))
    monkeypatch.setattr(
        pwd, "getpwuid", lambda _: pwd.struct_passwd([*user[:5], str(home), user[6]])
    )


def test_symlinked_data_directory_has_same_daemon(
    tmp_path: Path, empty_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual = empty_home / ".local/share/pykoclaw"
    usual.mkdir(parents=True)
    (tmp_path / "link").symlink_to(usual)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    own_home(monkeypatch, empty_home)
    one, other = Places(usual, "/state"), Places(tmp_path / "link", "/state")
    assert (one.hash, one.directory, one.socket) == (other.hash, other.directory, other.socket)


def test_socket_is_in_runtime_directory_if_owned(
    tmp_path: Path, empty_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = same_as_the_settings()
    assert found.data == str(empty_home / ".local/share/pykoclaw")
    assert found.directory == str(empty_home / ".local/state/pykoclaw" / found.hash)
    assert found.socket == f"{found.directory}/acp.sock"
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    another = same_as_the_settings().socket
    assert another == f"{tmp_path}/pykoclaw/acp-{Places.find().hash}.sock", (
        "a HOME that is not the user's own"
    )
    own_home(monkeypatch, empty_home)
    assert same_as_the_settings().socket == f"{tmp_path}/pykoclaw/acp.sock"
    monkeypatch.setenv("PYKOCLAW_DATA", "/elsewhere")
    assert same_as_the_settings().socket == f"{tmp_path}/pykoclaw/acp-{Places.find().hash}.sock"
    for other in ("relative", "/nowhere", "/proc/1/fdinfo/../x"):
        monkeypatch.setenv("XDG_RUNTIME_DIR", other)
        assert same_as_the_settings().socket.endswith(f"/{Places.find().hash}/acp.sock")
    monkeypatch.setenv("XDG_STATE_HOME", "/xdg")
    assert same_as_the_settings().state == "/xdg/pykoclaw"
    monkeypatch.setenv("XDG_STATE_HOME", "relative")
    assert same_as_the_settings().state == str(empty_home / ".local/state/pykoclaw")


@pytest.mark.parametrize("name", ["DATA", "STATE", "SOCKET"])
def test_missing_home_is_an_error(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(f"PYKOCLAW_{name}", "~nobody-here/x")
    with pytest.raises(ConfigurationError, match=f"PYKOCLAW_{name} is '~nobody-here/x'"):
        Places.find()


@pytest.mark.parametrize("name", ["PYKOCLAW_DATA", "HOME"])
def test_data_directory_out_of_utf8_is_refused(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is no UTF-8; the client is told, and not only that no daemon starts."""
    monkeypatch.setenv(name, "/a/d\udcff")
    with pytest.raises(ConfigurationError, match=r"PYKOCLAW_DATA.* is not valid UTF-8"):
        Places.find()
    with pytest.raises(ConfigurationError, match=r"PYKOCLAW_DATA.* is not valid UTF-8"):
        loading.load()


line = some.text(some.sampled_from(" \t\n\r='\"#\\${}:-aB_1"), max_size=12)


@given(
    text=some.lists(some.one_of(line, some.sampled_from(["A=", "export ", "${A}", "\n"]))).map(
        "".join
    )
)
def test_any_file_is_read_as_by_python_dotenv(
    text: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.getbasetemp() / "any.env"
    path.write_text(text, newline="")
    expected = {name: value for name, value in dotenv_values(path).items() if value is not None}
    assert dotenv.read(str(path)) == expected


def test_directory_is_made_private_and_foreign_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a" / "b"
    secure_directory(path)
    assert path.stat().st_mode & 0o777 == 0o700
    secure_directory(path)
    path.chmod(0o750)
    with pytest.raises(ConfigurationError, match=f"chmod 700 {path}"):
        secure_directory(path)
    assert path.stat().st_mode & 0o777 == 0o750
    for mode in (0o1755, 0o1777):
        path.chmod(mode)
        with pytest.raises(ConfigurationError, match="meant for everybody") as refused:
            secure_directory(path)
        assert "chmod" not in str(refused.value)
    path.chmod(0o700)
    owner = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    with pytest.raises(ConfigurationError, match=f"belongs to user {owner}"):
        secure_directory(path)


def test_file_in_place_of_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    told = r"a file is in its place or above it\. Nothing was changed\. To mend it, set X to another directory\.$"
    for path in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(ConfigurationError, match=told):
            secure_directory(path, "X")


def test_access_is_advised_only_where_it_is_missing(tmp_path: Path) -> None:
    denied = PermissionError(errno.EACCES, "Permission denied")
    missing = FileNotFoundError(errno.ENOENT, "No such file or directory")
    for path, error in ((tmp_path / "below", denied), (tmp_path, missing)):
        assert "chmod" not in str(trusted_path.unusable(path, error, "X"))
    tmp_path.chmod(0)
    way = f"give yourself access (`chmod u+rwx {tmp_path}`), or set X to another directory."
    for path in (tmp_path, tmp_path / "below"):
        said = str(trusted_path.unusable(path, denied, "X"))
        assert said.endswith(f"Permission denied. Nothing was changed. To mend it, {way}")


def test_socket_with_long_path_is_reachable(tmp_path: Path) -> None:
    directory = tmp_path / ("d" * 200)
    secure_directory(directory)
    path = str(directory / "acp.sock")
    with pytest.raises(FileNotFoundError):
        connect(path)
    descriptor = os.open(directory, os.O_PATH)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"/proc/self/fd/{descriptor}/acp.sock")
        os.close(descriptor)
        with pytest.raises(ConnectionRefusedError):
            connect(path)
        listener.listen(1)
        connect(path).close()
        directory.chmod(0o755)
        with pytest.raises(ConfigurationError, match="chmod 700"):
            connect(path)


def test_another_users_socket_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = tmp_path / "d"
    secure_directory(directory)
    monkeypatch.setattr("pykoclaw_acp.system.unix_socket.peer_uid", lambda connection: 4711)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(directory / "s"))
        listener.listen(1)
        with pytest.raises(ConfigurationError, match="is served by user 4711"):
            connect(str(directory / "s"))


def test_ended_servers_lock_costs_no_look(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each look makes a client wait for 10 ms."""
    ended = subprocess.Popen(["true"])
    ended.wait()

    def opening(path: str | int, mode: str) -> IO[Any]:
        assert path != "/proc/locks", "all locks were listed"
        return open(path, mode)

    monkeypatch.setattr(places, "open", opening, raising=False)
    for said in (f"{ended.pid}\n/some/socket\nserves\n", "", "one\n"):
        (tmp_path / "pykoclaw-acp.lock").write_text(said)
        assert lock_holder(str(tmp_path)) is None


def test_lock_holder_is_named_and_not_disturbed(tmp_path: Path) -> None:
    assert lock_holder(str(tmp_path)) is None
    lock = DataLock.acquire(tmp_path)
    try:
        holder = lock_holder(str(tmp_path))
        assert holder is not None
        assert holder[0] == os.getpid()
    finally:
        lock.release()
    assert lock_holder(str(tmp_path)) is None
    lock = DataLock.acquire(tmp_path, "/some/socket")
    try:
        for serving in (False, True, False):
            lock.serves(serving)
            assert serves(str(tmp_path)) is serving
            assert lock_holder(str(tmp_path)) == (os.getpid(), "/some/socket")
    finally:
        lock.release()
    assert not serves(str(tmp_path))
    path = tmp_path / "pykoclaw-acp.lock"
    path.write_text(f"{os.getpid()}\n/some/socket\n")
    assert lock_holder(str(tmp_path)) is None
    descriptor = try_lock(str(path))
    assert descriptor is not None
    assert lock_holder(str(tmp_path)) == (os.getpid(), "/some/socket")
    assert try_lock(str(path)) is None
    os.close(descriptor)
