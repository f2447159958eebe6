"""Ownership and modes of every directory on the way to a path, as in sshd's StrictModes.

The path is resolved by descriptors, symbolic links included, so that what is checked is what is
used.
"""

from __future__ import annotations

import errno
import os
import stat

from pykoclaw_acp import errors

TYPE_CHECKING = False  # `typing` would cost the front half of its start-up time
if TYPE_CHECKING:
    from typing import Final

_MOST_LINKS: Final = 40  # as path_resolution(7)
_SWITCH: Final = "/etc/nsswitch.conf"
# Services that list all users they know; sssd and others answer for single ones only.
_LISTING: Final = frozenset({"altfiles", "compat", "db", "extrausers", "files", "nis", "systemd"})
# acl(5): a version, then entries of tag, permissions and id
_ACL: Final = "system.posix_acl_access"
_ACL_USER: Final = 0x02
_ACL_GROUP_OBJ: Final = 0x04
_ACL_GROUP: Final = 0x08
_ACL_WRITE: Final = 0x02
_ALL_IDS: Final = 2**32 - 1  # of /proc/self/uid_map outside of user name spaces


class Weakness:
    """A directory that another user can change; `certain`: and can reach. `remedy`: what to do
    about it.
    """

    __slots__ = ("certain", "directory", "remedy", "words")

    def __init__(self, directory: str, words: str, remedy: str, certain: bool) -> None:
        self.directory = directory
        self.words = words
        self.remedy = remedy
        self.certain = certain

    def __str__(self) -> str:
        return f"{self.words} {self.remedy}"


def require(path: str, group: int | None = None) -> None:
    """Raises ConfigurationError if another user can replace `path`."""
    for weakness in examine(path, group):
        if weakness.certain:
            raise errors.ConfigurationError(
                f"The directory {path} cannot be used: another user could put something else in its place. {weakness}"
            )


def make(path: str) -> None:
    """Create the directory and its missing ancestors, 0700 regardless of the umask;
    raises OSError.
    """
    parent, name = os.path.split(path.rstrip("/") or "/")
    if not name or os.path.isdir(path):
        return
    make(parent)
    try:
        os.mkdir(path, 0o700)
    except FileExistsError:
        if not os.path.isdir(path):
            raise
    else:
        os.chmod(path, 0o700)


def unusable(
    path: str | os.PathLike[str],
    error: OSError,
    setting: str | None = None,
    what: str = "The directory",
) -> errors.DirectoryUnusable:
    """What to raise where `error` keeps `path` from being used; `setting` can name another place."""
    blocks = os.path.abspath(path)
    while not os.path.exists(blocks) and blocks != os.path.dirname(blocks):
        blocks = os.path.dirname(blocks)  # what is below a closed directory cannot be seen
    found = os.stat(blocks)
    may, bits = ("rwx", 0o700) if os.path.isdir(blocks) else ("rw", 0o600)
    owned = isinstance(error, PermissionError) and found.st_uid == os.geteuid()
    closed = owned and found.st_mode & bits != bits
    ways = [f"give yourself access (`chmod u+{may} {blocks}`)"] if closed else []
    ways += [] if setting is None else [f"set {setting} to another directory"]
    return errors.DirectoryUnusable(path, error, ways, what)


def closing(path: str, mode: int, change: str, settings: str = "") -> str:
    """How others are kept out of a directory of this mode: `change` is for chmod(1), and `settings`
    can name another one. One with the sticky bit, such as /tmp, has to stay open.
    """
    another = (
        f"set {settings} to a place in another directory" if settings else "choose another one"
    )
    if mode & stat.S_ISVTX:
        return f"It is meant for everybody: {another}."
    needed = f"; if others need it, {another}" if settings else ""
    return f"Restrict it with `chmod {change} {path}`{needed}."


def examine(path: str, group: int | None = None, *, file: bool = False) -> list[Weakness]:
    """Weaknesses of `path` and its ancestors, as far as they exist; members of `group` are trusted.
    `file`: it may be a file, which is examined as well.

    Directories must belong to root or to us, and must not be writable by others. Ancestors may be
    writable if they are sticky, as the next component is checked itself. A weakness below a
    directory that is closed to others is not `certain`.
    """
    names = _parts(os.path.abspath(path))
    way = [_Directory.open("/", None)]
    found = way[0].weaknesses(group, last=not names)
    links = 0
    try:
        while names and links <= _MOST_LINKS:
            name = names.pop()
            if name == "..":
                if len(way) > 1:
                    way.pop().close()
                continue
            try:
                target = _link(name, way[-1].handle)
                if target is None:
                    way.append(_Directory.open(name, way[-1], file=file and not names))
            except OSError:
                break  # missing, or not a directory: left to the user of the path
            if target is None:
                found += way[-1].weaknesses(group, last=not names)
                continue
            links += 1
            found += way[-1].weak_link(name)
            names += _parts(target)
            while os.path.isabs(target) and len(way) > 1:
                way.pop().close()
    finally:
        for one in way:
            one.close()
    return list({weakness.words: weakness for weakness in found}.values())


class _Directory:
    """An open directory on the way; `closed`: an ancestor is not accessible to others."""

    __slots__ = ("closed", "handle", "path", "status")

    def __init__(self, handle: int, path: str, closed: bool) -> None:
        self.handle = handle
        self.path = path
        self.status = os.fstat(handle)
        self.closed = closed

    @classmethod
    def open(cls, name: str, above: _Directory | None, *, file: bool = False) -> _Directory:
        """Raises OSError, for a file unless it may be one."""
        flags = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC | (0 if file else os.O_DIRECTORY)
        if above is None:
            return cls(os.open(name, flags), name, False)
        path = os.path.join(above.path, name)
        return cls(
            os.open(name, flags, dir_fd=above.handle), path, above.closed or above.is_closed()
        )

    def close(self) -> None:
        os.close(self.handle)

    def is_closed(self) -> bool:
        """Whether others lack search permission, as far as it can be known who they are."""
        mode = self.status.st_mode
        if mode & stat.S_IXOTH or not _is_trusted(self.status.st_uid):
            return False
        if not mode & stat.S_IXGRP:
            return True
        users, groups = self._acl() or ([], [])
        groups = [self.status.st_gid, *groups]
        return not _writers(users, groups) and _are_listed(groups)

    def weaknesses(self, group: int | None, *, last: bool) -> list[Weakness]:
        """Ways in which others can change it."""
        status, path = self.status, self.path
        if not _is_trusted(status.st_uid):
            return [
                self._weak(
                    f"{path} belongs to user {status.st_uid}.", "Choose a directory of your own."
                )
            ]
        if not last and status.st_mode & stat.S_ISVTX:
            return []
        if status.st_mode & stat.S_IWOTH:
            return [
                self._weak(f"Everybody can write to {path}.", closing(path, status.st_mode, "o-w"))
            ]
        if not status.st_mode & stat.S_IWGRP:
            return []
        users, groups = self._acl() or ([], [status.st_gid] if status.st_gid != group else [])
        remedy = closing(path, status.st_mode, "g-w")
        if writers := _writers(users, groups):
            names = ", ".join(writers[:3]) + (", …" if len(writers) > 3 else "")
            return [self._weak(f"Others ({names}) can write to {path}.", remedy)]
        if _are_listed(groups):
            return []
        words = f"The group of {path} can write to it, and not all of its members can be listed."
        return [Weakness(path, words, remedy, certain=False)]

    def weak_link(self, name: str) -> list[Weakness]:
        """Weakness of a symbolic link in a directory that others can write to, unless the link is
        ours.
        """
        owner = os.stat(name, dir_fd=self.handle, follow_symlinks=False).st_uid
        if _is_trusted(owner) or not self.status.st_mode & 0o022:
            return []
        link = os.path.join(self.path, name)
        return [
            self._weak(
                f"The symbolic link {link} belongs to user {owner}.", "Choose another directory."
            )
        ]

    def _weak(self, words: str, remedy: str) -> Weakness:
        return Weakness(self.path, words, remedy, certain=not self.closed)

    def _acl(self) -> tuple[list[str], list[int]] | None:
        """Users and groups that an access control list lets write; None without a list."""
        try:
            raw = os.getxattr(f"/proc/self/fd/{self.handle}", _ACL)
        except OSError:
            return None
        users, groups = [], []
        for at in range(4, len(raw) - 7, 8):
            tag, allowed, one = (
                int.from_bytes(raw[at + a : at + b], "little") for a, b in ((0, 2), (2, 4), (4, 8))
            )
            if allowed & _ACL_WRITE and tag == _ACL_USER and not _is_trusted(one):
                users.append(f"user {one}")
            elif allowed & _ACL_WRITE and tag in {_ACL_GROUP, _ACL_GROUP_OBJ}:
                groups.append(self.status.st_gid if tag == _ACL_GROUP_OBJ else one)
        return users, groups


def _parts(path: str) -> list[str]:
    """Components of a path, last first."""
    return [name for name in reversed(path.split("/")) if name and name != "."]


def _link(name: str, directory: int) -> str | None:
    """Target of a symbolic link; None for anything else. Raises OSError."""
    try:
        return os.readlink(name, dir_fd=directory)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        return None


def _is_trusted(user: int) -> bool:
    """Root, ourselves, or, in a user name space, an unmapped id: usually root of the machine."""
    if user in (0, os.geteuid()):
        return True
    try:
        with open("/proc/sys/kernel/overflowuid") as overflow, open("/proc/self/uid_map") as known:
            return user == int(overflow.read()) and int(known.read().split()[2]) != _ALL_IDS
    except (OSError, ValueError, IndexError):
        return False


def _writers(users: list[str], groups: list[int]) -> list[str]:
    return [*users, *(name for group in groups for name in _others_in(group))]


def _others_in(group: int) -> list[str]:
    """Members of the group that are listed, except root and ourselves."""
    import grp  # not at the top: hardly anybody has such a directory
    import pwd

    try:
        members = set(grp.getgrgid(group).gr_mem)
    except KeyError:
        members = set()
    known = pwd.getpwall()
    members |= {one.pw_name for one in known if one.pw_gid == group}
    trusted = {one.pw_name for one in known if one.pw_uid in (0, os.geteuid())}
    return sorted(members - trusted)


def _are_listed(groups: list[int]) -> bool:
    """Whether all members of the groups are known."""
    return all(map(_is_private, groups)) or _lists_all()


def _is_private(group: int) -> bool:
    """Whether it is the group that our user, or root, has alone by the usual rule: of one name or
    number with it.
    """
    import grp
    import pwd

    for user in (0, os.geteuid()):
        try:
            one, name = pwd.getpwuid(user), grp.getgrgid(group).gr_name
        except KeyError:
            continue
        if one.pw_gid == group and (name == one.pw_name or group == user):
            return True
    return False


def _lists_all() -> bool:
    """Whether this machine lists all users and members of groups (nsswitch.conf(5))."""
    try:
        with open(_SWITCH, encoding="utf-8", errors="replace") as file:
            rules = [line.partition("#")[0].partition(":") for line in file]
    except OSError:
        return True  # the users are those of /etc/passwd
    used = " ".join(rest for name, _, rest in rules if name.strip() in {"passwd", "group"})
    return all(word in _LISTING for word in used.split() if "=" not in word and word not in "[]")
