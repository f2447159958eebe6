"""What a repository has git run by itself."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from pykoclaw_acp.trust import gitconfig
from pykoclaw_acp.trust.content import Content
from pykoclaw_acp.trust.scan import scan
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


def look(directory: Path) -> Content:
    return scan(str(directory), [], ("user", "project", "local"))


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
    ],
)
def test_programs_that_git_runs_are_found(text: str, name: str | None, value: str | None) -> None:
    said = [] if name is None else [f"has git run or read something ({name}): {value}"]
    assert gitconfig.acting(text.encode()) == said


def test_git_reads_configuration_alike(config: Path) -> None:
    config.write_text(f'{ORDINARY}[a "b\\\\c"]\n x = "y \\"z\\" " \\\n w\t# c\n v\n')
    told = subprocess.run(
        ["git", "config", "--file", config, "--list", "--null"], capture_output=True, check=True
    )
    listed = [one.partition("\n") for one in told.stdout.decode().split("\0") if one]
    read = [(name, value if mark else "true") for name, mark, value in listed]
    assert list(gitconfig.entries(config.read_bytes())) == read


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
    config.write_text(config.read_text().replace("touch X", "touch Y"))
    assert look(config.parents[1]).key != before.key


@pytest.mark.parametrize("text", ["[core", "[core]\nfsmonitor # = x", '[a]\nb = "c', "[a]b=\\x"])
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
