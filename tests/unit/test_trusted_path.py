"""Who can put something else in the place of a path, by modes and owners of real directories."""

from __future__ import annotations

import grp
import os
import pwd
from collections.abc import Callable
from pathlib import Path

import pytest

from pykoclaw_acp.errors import ConfigurationError
from pykoclaw_acp.link.places import secure_directory
from pykoclaw_acp.system import trusted_path

OTHER = 4711  # a user and a group of whom nobody knows anything


@pytest.fixture
def top(tmp_path: Path) -> Path:
    """A directory that others reach: those above it are root's and ours, and open to all."""
    for directory in (tmp_path, *tmp_path.parents):
        if directory.stat().st_uid == os.geteuid() and directory not in (Path("/"), Path("/tmp")):
            directory.chmod(directory.stat().st_mode | 0o055)
    (tmp_path / "a").mkdir()
    (tmp_path / "a").chmod(0o755)
    return tmp_path / "a"


@pytest.fixture
def inside(top: Path) -> Path:
    (top / "b").mkdir(mode=0o700)
    return top / "b"


def belongs_to_another(directory: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can give a directory to another user")
    os.chown(directory, OTHER, OTHER)


def everybody(directory: Path) -> None:
    directory.chmod(0o777)


def sticky_of_another(directory: Path) -> None:
    belongs_to_another(directory)
    directory.chmod(0o1777)


def shared_group(directory: Path) -> None:
    directory.chmod(0o775)
    if os.geteuid() != 0:
        pytest.skip("only root can give a directory to another group")
    user = next((one for one in pwd.getpwall() if one.pw_uid not in (0, os.geteuid())), None)
    if user is None:
        pytest.skip("this machine has no other user")
    os.chown(directory, -1, user.pw_gid)


def acl_of_another(directory: Path) -> None:
    # acl(5): version 2; then owner rwx, user 4711 rwx, group r-x, mask rwx, others r-x
    entries = [
        (1, 7, 2**32 - 1),
        (2, 7, OTHER),
        (4, 5, 2**32 - 1),
        (16, 7, 2**32 - 1),
        (32, 5, 2**32 - 1),
    ]
    raw = (2).to_bytes(4, "little")
    for tag, allowed, who in entries:
        raw += tag.to_bytes(2, "little") + allowed.to_bytes(2, "little") + who.to_bytes(4, "little")
    try:
        os.setxattr(directory, "system.posix_acl_access", raw)
    except OSError:
        pytest.skip("this file system has no access control lists")


@pytest.mark.parametrize(
    "weaken", [belongs_to_another, everybody, sticky_of_another, shared_group, acl_of_another]
)
def test_what_others_can_replace_is_refused(
    top: Path, inside: Path, weaken: Callable[[Path], None]
) -> None:
    weaken(top)
    for path in (inside, inside / "c" / "d"):
        with pytest.raises(ConfigurationError, match=rf"another user could.* {top}\b"):
            trusted_path.require(str(path))
    with pytest.raises(ConfigurationError):
        secure_directory(inside / "c")
    assert list(inside.iterdir()) == [], "nothing is made there"


def group_of_nobody(directory: Path) -> None:
    directory.chmod(0o2775)
    if os.geteuid() == 0:
        os.chown(directory, -1, OTHER)


def sticky(directory: Path) -> None:
    directory.chmod(0o1777)


@pytest.mark.parametrize(
    "widen", [group_of_nobody, sticky, lambda directory: directory.chmod(0o755)]
)
def test_what_others_cannot_replace_passes(
    top: Path, inside: Path, widen: Callable[[Path], None]
) -> None:
    widen(top)
    assert trusted_path.examine(str(inside)) == []
    secure_directory(inside / "c")


@pytest.mark.parametrize(
    ("services", "listed"),
    [
        ("files [ SUCCESS=merge ] systemd # sss", True),
        ("files [!UNAVAIL=return] sss", False),
        ("winbind", False),
    ],
)
def test_members_nobody_lists_are_a_warning(
    services: str, listed: bool, top: Path, inside: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With sssd, a group of other users looks empty; the user's own one is taken for private."""
    (switch := inside / "nsswitch.conf").write_text(f"hosts: dns\npasswd:\t{services}\n")
    monkeypatch.setattr(trusted_path, "_SWITCH", str(switch))
    monkeypatch.setattr(pwd, "getpwall", lambda: [pwd.getpwuid(os.geteuid())])
    group_of_nobody(top)
    gid = top.stat().st_gid
    if os.geteuid() != 0:
        names = grp.struct_group(("team", "x", gid, []))
        user = pwd.struct_passwd([*pwd.getpwuid(os.geteuid())[:3], gid + 1, "", "/", "/bin/sh"])
        monkeypatch.setattr(grp, "getgrgid", lambda _: names)
        monkeypatch.setattr(pwd, "getpwuid", lambda _: user)
    found = trusted_path.examine(str(inside))
    assert [(one.directory, one.certain, "chmod g-w" in str(one)) for one in found] == (
        [] if listed else [(str(top), False, True)]
    )
    trusted_path.require(str(inside / "c"))


def test_directory_closed_by_unlisted_group_is_open(
    top: Path, inside: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (switch := inside / "nsswitch.conf").write_text("passwd: files\n")
    monkeypatch.setattr(trusted_path, "_SWITCH", str(switch))
    monkeypatch.setattr(trusted_path, "_is_private", lambda _: False)
    everybody(inside)
    group_of_nobody(top)
    top.chmod(0o770)
    for services, certain in (("files", False), ("files sss", True)):
        switch.write_text(f"passwd: {services}\n")
        found = [one for one in trusted_path.examine(str(inside)) if one.directory == str(inside)]
        assert [one.certain for one in found] == [certain]


def test_own_group_is_private_without_listed_users(
    top: Path, inside: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (switch := inside / "nsswitch.conf").write_text("passwd: files sss\n")
    monkeypatch.setattr(trusted_path, "_SWITCH", str(switch))
    top.chmod(0o775)
    user = pwd.getpwuid(os.geteuid())
    own = grp.struct_group((user.pw_name, "x", user.pw_gid, []))
    if os.geteuid() == 0:
        os.chown(top, -1, user.pw_gid)
    monkeypatch.setattr(grp, "getgrgid", lambda _: own)
    assert trusted_path.examine(str(inside)) == []


def test_foreign_entry_in_sticky_directory_is_refused(top: Path, inside: Path) -> None:
    belongs_to_another(inside)
    sticky(top)
    with pytest.raises(ConfigurationError, match=f"{inside} belongs to user {OTHER}"):
        trusted_path.require(str(inside / "c"))


def test_the_directory_itself_may_not_be_sticky(top: Path) -> None:
    sticky(top)
    (weakness,) = trusted_path.examine(str(top))
    assert (weakness.directory, "chmod" in weakness.remedy) == (str(top), False)


def test_file_counts_if_it_is_asked_for(top: Path, inside: Path) -> None:
    (file := inside / "file").write_text("")
    everybody(file)
    (link := top / "link").symlink_to(file)
    assert trusted_path.examine(str(link)) == []
    (weakness,) = trusted_path.examine(str(link), file=True)
    assert (weakness.directory, weakness.certain) == (str(file), False)
    inside.chmod(0o755)
    (weakness,) = trusted_path.examine(str(file), file=True)
    assert (str(weakness), weakness.certain) == (
        f"Everybody can write to {file}. Restrict it with `chmod o-w {file}`.", True
    )  # fmt: skip


def test_what_others_cannot_reach_is_a_warning(top: Path, inside: Path) -> None:
    everybody(inside)
    (inside / "c").mkdir()
    top.chmod(0o700)
    (weakness,) = trusted_path.examine(str(inside / "c"))
    assert not weakness.certain
    assert f"chmod o-w {inside}" in str(weakness)
    trusted_path.require(str(inside / "c"))
    top.chmod(0o711)
    with pytest.raises(ConfigurationError, match=f"chmod o-w {inside}"):
        trusted_path.require(str(inside / "c"))


def test_links_are_followed_to_where_they_lead(top: Path, inside: Path, tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir(mode=0o755)
    (home / "link").symlink_to(os.path.relpath(inside, home))
    assert trusted_path.examine(str(home / "link" / "c")) == []
    everybody(top)
    (weakness,) = trusted_path.examine(str(home / "link" / "c"))
    assert weakness.directory == str(top)
    (home / "round").symlink_to("round")
    assert trusted_path.examine(str(home / "round")) == [], (
        "whoever uses it will say that it leads nowhere"
    )


def test_a_link_of_another_user_is_refused(top: Path, inside: Path) -> None:
    link = top / "link"
    link.symlink_to(inside)
    if os.geteuid() != 0:
        pytest.skip("only root can give a link to another user")
    os.chown(link, OTHER, OTHER, follow_symlinks=False)
    sticky(top)
    with pytest.raises(ConfigurationError, match=f"{link} belongs to user {OTHER}"):
        trusted_path.require(str(link / "c"))


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o777])
def test_directories_are_closed_whatever_the_umask_is(tmp_path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        secure_directory(tmp_path / "x" / "y" / "z")
    finally:
        os.umask(before)
    for directory in (tmp_path / "x", tmp_path / "x/y", tmp_path / "x/y/z"):
        assert directory.stat().st_mode & 0o777 == 0o700


def test_members_of_configured_group_are_trusted(inside: Path, top: Path) -> None:
    shared_group(top)
    assert trusted_path.examine(str(inside), top.stat().st_gid) == []
