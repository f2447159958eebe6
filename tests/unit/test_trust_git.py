"""What a repository has git run by itself."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from pykoclaw_acp.trust import gitconfig
from pykoclaw_acp.trust.content import Content
from pykoclaw_acp.trust.scan import scan, unchanged
from pykoclaw_acp.trust.settings import UNCLEAR

ORDINARY = """[core]
\tfsmonitor = true ; by git itself
\thooksPath = .husky/_
[user]
\tname = "A; B"
[remote "origin"]
\turl = https://example.org/a.git
\tfetch = +refs/heads/*:refs/remotes/origin/*
[branch "main"]
\tremote = origin
[filter "lfs"]
\tclean = git-lfs clean -- %f
\tsmudge = git-lfs smudge -- %f
\tprocess = git-lfs filter-process
\trequired = true
[credential]
\thelper = store
"""


def look(directory: Path, *sources: str) -> Content:
    return scan(str(directory), [], sources or ("user", "project", "local"))


def git(directory: Path, *arguments: str) -> str:
    """What git says there, without the configuration of who runs the test."""
    nobodys = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
    command = ["git", "-C", os.fspath(directory), *arguments]
    told = subprocess.run(command, check=False, capture_output=True, env=os.environ | nobodys)
    return told.stdout.decode().removesuffix("\n")


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A repository with a program that `git status` runs."""
    path = tmp_path / "clone"
    git(tmp_path, "init", "--quiet", str(path))
    git(path, "config", "core.fsmonitor", "touch ran; false")
    return path


@pytest.fixture
def config(tmp_path: Path) -> Path:
    (tmp_path / ".git").mkdir()
    path = tmp_path / ".git" / "config"
    path.write_text(ORDINARY)
    return path


@pytest.mark.parametrize(
    ("text", "name", "value"),
    [
        ("[core]fsmonitor = touch X; false\n", "core.fsmonitor", "touch X"),
        (
            '\ufeff[CORE]\r\n\tFSMonitor="touch X; false" # c\r\n',
            "core.fsmonitor",
            "touch X; false",
        ),
        ("[core]\nfsmonitor = to\\\nuch", "core.fsmonitor", "touch"),
        ('[diff "a.b\\"c"]\n# x\ntextconv = x', 'diff.a.b"c.textconv', "x"),
        ("[diff.Foo]textconv = x", "diff.foo.textconv", "x"),
        ('[core]a=# x\\\n[filter "lfs"]clean = git-lfs clean; x', None, None),
        ('[filter "lfs"]clean = "git-lfs clean; x"', "filter.lfs.clean", "git-lfs clean; x"),
        ("[include]path = ../x", "include.path", "../x"),
        ('[includeIf "gitdir:**"]path = ../x', "includeif.gitdir:**.path", "../x"),
        ("[credential]helper = !touch X", "credential.helper", "!touch X"),
        ('[protocol "ext"]allow = user', "protocol.ext.allow", "user"),
        ("[protocol]allow = never", None, None),
        ('[hook "x"]event = post-index-change\ncommand = ./x', "hook.x.command", "./x"),
        ('[lfs "extension.x"]clean = x', "lfs.extension.x.clean", "x"),
        ('[LFS "Extension.x"]smudge = x', "lfs.Extension.x.smudge", "x"),
        ('[lfs "customtransfer.x"]path = x', "lfs.customtransfer.x.path", "x"),
    ],
)
def test_programs_that_git_runs_are_found(text: str, name: str | None, value: str | None) -> None:
    assert gitconfig.acting(text.encode()) == ([] if name is None else [(name, value)])


def test_git_reads_configuration_alike(config: Path) -> None:
    config.write_text(f'{ORDINARY}[a "b\\\\c"]\n x = "y \\"z\\" " \\\n w\t# c\n v\n')
    told = subprocess.run(
        ["git", "config", "--file", config, "--list", "--null"], capture_output=True, check=True
    )
    listed = [one.partition("\n") for one in told.stdout.decode().split("\0") if one]
    read = [(name, value if mark else "true") for name, mark, value in listed]
    assert list(gitconfig.entries(config.read_bytes())) == read


def test_long_section_names_are_not_understood(config: Path) -> None:
    name = "a" * (gitconfig.MOST_SECTION + 1)
    config.write_text(f'[diff "{name}"]\n' + "x\n" * 100_000)
    with pytest.raises(ValueError, match="cannot be understood"):
        next(gitconfig.entries(config.read_bytes()))
    (place,) = look(config.parents[1]).acting
    assert place.found == (".git/config: cannot be understood",)


def test_ordinary_repository_raises_no_question(config: Path) -> None:
    assert look(config.parents[1]).acting == ()


def test_only_what_acts_of_configuration_counts(config: Path) -> None:
    config.write_text(f"{ORDINARY}[core]\nfsmonitor = touch X\n")
    before = look(config.parents[1])
    (place,) = before.acting
    assert place.found == (".git/config: has git run or read something (core.fsmonitor): touch X",)
    assert before.restrictions == {"ask": ("Bash(git:*)",)}
    config.write_text(config.read_text() + '[branch "b"]\nremote = origin\n')
    assert look(config.parents[1]).key == before.key
    for other in ("touch Y", "touch  X"):
        config.write_text(config.read_text().replace("touch X", other))
        assert look(config.parents[1]).key not in ("", before.key)


@pytest.mark.parametrize(
    "text",
    [
        "[core",
        "[core]\nfsmonitor # = x",
        '[a]\nb = "c',
        "[a]b=\\x",
        '[core "fsmonitor\0"]\nx = touch X',
        "[a]b=c\n# \0",
    ],
)
def test_what_git_cannot_read_is_said(config: Path, text: str) -> None:
    config.write_text(text)
    (place,) = look(config.parents[1]).acting
    assert place.found == (".git/config: cannot be understood",)


def test_worktree_leads_to_common_configuration(config: Path, tmp_path: Path) -> None:
    config.write_text("[diff]\nexternal = x\n")
    own = config.parent / "worktrees" / "w"
    own.mkdir(parents=True)
    (own / "commondir").write_text("../..\n")
    tree = tmp_path / "tree"
    tree.mkdir()
    (tree / ".git").write_text(f"gitdir: {own}\n")
    (place,) = look(tree).acting
    assert place.found == ("../.git/config: has git run or read something (diff.external): x",)


@pytest.mark.parametrize(("folder", "more"), [(".git/hooks", ""), ("own", "[core]hooksPath = own")])
def test_hook_of_git_status_is_found(config: Path, folder: str, more: str) -> None:
    hook = config.parents[1] / folder / "post-index-change"
    hook.parent.mkdir()
    hook.write_text("touch X")
    config.write_text(ORDINARY + more)
    content = look(config.parents[1])
    (place,) = content.acting
    assert place.found == (f"{folder}/post-index-change: is run by git",)
    assert content.restrictions == {"ask": ("Bash(git:*)",)}


def test_repositories_below_are_not_read(config: Path) -> None:
    below = config.parents[1] / "below" / ".git" / "config"
    below.parent.mkdir(parents=True)
    below.write_text("[core]fsmonitor = touch X\n")
    assert look(config.parents[1]).acting == ()


def test_program_that_git_runs_counts(config: Path) -> None:
    program = config.parents[1] / "run"
    program.write_text("echo 1")
    config.write_text("[core]\nfsmonitor = ./run\n")
    before = look(config.parents[1])
    program.write_text("echo 2")
    assert look(config.parents[1]).key != before.key


@pytest.mark.parametrize("text", ["[core]\nfsmonitor = touch X\\", "[diff]\n x = y\\"])
def test_value_may_end_with_the_file(config: Path, text: str) -> None:
    config.write_text(text)
    found = [line for place in look(config.parents[1]).acting for line in place.found]
    assert any("touch X" in line for line in found) == ("touch X" in text)
    assert not any(UNCLEAR in line for line in found)


def test_configuration_unread_or_unclear_is_not_trusted_alike(config: Path) -> None:
    config.write_text("[core\n")
    before = look(config.parents[1])
    config.write_text("[core]]\n")
    assert look(config.parents[1]).key != before.key
    config.write_text("#" * (2 << 20))
    (place,) = look(config.parents[1]).acting
    assert not place.content


def test_directory_that_is_a_repository_is_read(tmp_path: Path) -> None:
    for folder in ("objects", "refs"):
        (tmp_path / folder).mkdir()
    (tmp_path / "HEAD").write_text("ref: refs/heads/main")
    (tmp_path / "config").write_text("[core]\nworktree = .\nfsmonitor = touch X\n")
    (place,) = look(tmp_path).acting
    assert "touch X" in place.found[0]


def test_line_break_in_value_is_shown_and_counts(clone: Path) -> None:
    keys = set()
    for value in ("true # touch ran", "true #\ntouch ran"):
        git(clone, "config", "core.fsmonitor", value)
        (place,) = look(clone).acting
        assert place.found[0].endswith(f": {value}".replace("\n", "\\n"))
        keys.add(look(clone).key)
    assert len(keys) == 2


def decoy(clone: Path) -> Path:
    (clone / "HEAD").touch()
    for folder in ("objects", "refs"):
        (clone / folder).mkdir()
    return clone


def common(clone: Path) -> Path:
    other = clone / "other"
    other.mkdir()
    for name in ("objects", "refs", "config"):
        (clone / ".git" / name).rename(other / name)
    (clone / ".git/commondir").write_text("../other\n")
    return clone


def bare_common(clone: Path) -> Path:
    here = common(clone)
    for path in (here / ".git").iterdir():
        path.rename(here / path.name)
    (here / ".git").rmdir()
    (here / "commondir").write_text("other\0more")
    git(here, "config", "core.worktree", str(here))
    return here


def empty_below(clone: Path) -> Path:
    (clone / "sub/.git").mkdir(parents=True)
    return clone / "sub"


def decoy_below(clone: Path) -> Path:
    """It lacks nothing but a HEAD that git is content with."""
    here = clone / "sub"
    shutil.copytree(clone / ".git", here / ".git")
    git(here, "config", "--unset", "core.fsmonitor")
    (here / ".git/HEAD").write_text("none")
    return here


def linked_head_below(clone: Path) -> Path:
    here = decoy_below(clone)
    (here / ".git/HEAD").rename(here / ".git/other")
    (here / ".git/other").write_text("ref: refs/heads/main\n")
    (here / ".git/HEAD").symlink_to("other")
    return here


def bare_with_dangling_head(clone: Path) -> Path:
    """Git asks of a link only that it names a reference."""
    for path in (clone / ".git").iterdir():
        path.rename(clone / path.name)
    (clone / ".git").rmdir()
    git(clone, "config", "core.worktree", str(clone))
    (clone / "HEAD").unlink()
    (clone / "HEAD").symlink_to("refs/heads/main")
    return clone


def bare_common_with_dangling_head(clone: Path) -> Path:
    here = bare_common(clone)
    (here / "HEAD").unlink()
    (here / "HEAD").symlink_to("refs/heads/main")
    return here


def pointer_with_blank(clone: Path) -> Path:
    (clone / ".git").rename(clone / "r ")
    (clone / ".git").write_text("gitdir: r \r\n")
    return clone


def pointer_with_nul(clone: Path) -> Path:
    (clone / ".git").rename(clone / "r")
    (clone / ".git").write_text("gitdir: r\0more\n")
    return clone


@pytest.mark.parametrize(
    "hide",
    [
        decoy,
        common,
        bare_common,
        empty_below,
        decoy_below,
        linked_head_below,
        bare_with_dangling_head,
        bare_common_with_dangling_head,
        pointer_with_blank,
        pointer_with_nul,
    ],
)
def test_program_that_git_would_run_is_found(clone: Path, hide: Callable[[Path], Path]) -> None:
    here = hide(clone)
    folder = Path(git(here, "rev-parse", "--path-format=absolute", "--git-common-dir"))
    assert git(here, "config", "core.fsmonitor"), "git reads no repository here"
    (place,) = look(here).acting
    where = os.path.relpath(folder / "config", here)
    said = "has git run or read something (core.fsmonitor): touch ran; false"
    assert f"{where}: {said}" in place.found


@pytest.mark.parametrize("below", ["", "sub"])
def test_directory_without_head_is_no_repository(tmp_path: Path, below: str) -> None:
    """Anybody can make a `commondir` in a directory such as /tmp."""
    (tmp_path / "commondir").mkdir()
    (tmp_path / "config").write_text("[core]fsmonitor = touch X\n")
    (tmp_path / "sub").mkdir()
    assert look(tmp_path / below).acting == ()
    before = look(tmp_path / below)
    (tmp_path / "HEAD").write_text("ref: refs/heads/main")
    assert not unchanged(before)


@pytest.mark.parametrize("whose", ["ours", "another's"])
def test_repository_closed_by_another_is_passed_over(
    clone: Path, monkeypatch: pytest.MonkeyPatch, whose: str
) -> None:
    """As git does; what our own user has closed it can open again."""
    closed, may = str(clone / ".git"), os.access
    monkeypatch.setattr(os, "access", lambda path, mode: path != closed and may(path, mode))
    if whose != "ours":
        monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    (clone / "sub").mkdir()
    assert bool(look(clone / "sub").acting) == (whose == "ours")


def test_nearest_repository_hides_those_above(clone: Path) -> None:
    below = clone / "sub"
    git(clone, "init", "--quiet", str(below))
    assert look(below).acting == ()
    assert look(clone).acting != ()


def test_common_directory_that_cannot_be_read_acts(clone: Path) -> None:
    (clone / ".git/commondir").write_text("../x\0" + "x" * (2 << 20))
    content = look(clone)
    (place,) = content.acting
    assert any("commondir: is larger" in line for line in place.found)
    assert not place.content
    assert content.restrictions == {"ask": ("Bash(git:*)",)}


@pytest.mark.parametrize("sources", ["user", "user,local", "none"])
def test_git_counts_whatever_setting_sources_are(clone: Path, tmp_path: Path, sources: str) -> None:
    skill = clone / ".claude/skills/x/SKILL.md"
    skill.parent.mkdir(parents=True)
    skill.write_text("---\nhooks: {}\n---\n")
    named = sources.split(",")
    for content in (look(clone, *named), scan(str(tmp_path), [str(clone)], named)):
        assert [len(place.found) for place in content.acting] == [1]
        assert content.restrictions == {"ask": ("Bash(git:*)",)}
