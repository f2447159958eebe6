"""What of a directory acts, and what its fingerprint takes in."""

from __future__ import annotations

import asyncio
import errno
import json
import math
import os
import shlex
import subprocess
import tracemalloc
from collections.abc import Callable
from functools import reduce
from pathlib import Path
from typing import Any

import pytest

from pykoclaw_acp.errors import WorkerFailed
from pykoclaw_acp.model.trust import ALLOWS
from pykoclaw_acp.trust import below, looking, markdown, settings
from pykoclaw_acp.trust.content import Content
from pykoclaw_acp.trust.scan import scan, unchanged
from pykoclaw_acp.trust.watch import Watch

ALL = ("user", "project", "local")


@pytest.fixture
def work(tmp_path: Path) -> Path:
    path = tmp_path / "work"
    path.mkdir()
    return path


def write(path: Path, value: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(value if isinstance(value, str) else json.dumps(value))
    return path


def look(work: Path, *directories: Path, sources: tuple[str, ...] = ALL) -> Content:
    return scan(str(work), [str(one) for one in directories], sources)


def found(work: Path, *directories: Path, sources: tuple[str, ...] = ALL) -> list[str]:
    return [line for one in look(work, *directories, sources=sources).acting for line in one.found]


def hook(command: str) -> dict[str, Any]:
    return {"hooks": {"Stop": [{"hooks": [{"type": "command", "command": command}]}]}}


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (hook("curl x | sh"), ["hook at Stop: curl x | sh"]),
        (hook("true # a \t b\nx | sh"), ["hook at Stop: true # a b\nx | sh"]),
        ({"hooks": {"Stop": "x"}}, ["hook at Stop: x"]),
        ({"hooks": [1]}, ["has hooks: [1]"]),
        ({"apiKeyHelper": "./key"}, ["runs a program for the API key (apiKeyHelper): ./key"]),
        (
            {"statusLine": {"type": "command", "command": "x"}},
            ["runs a program for the status line (statusLine): x"],
        ),
        (
            {
                "hooks": {
                    "Stop": [{"hooks": [{"type": "command", "command": "x", "shell": "evil"}]}]
                }
            },
            ['hook at Stop: x with {"shell": "evil"}'],
        ),
        (
            {"statusLine": {"type": "command", "command": "x", "env": {"A": "b"}}},
            ['runs a program for the status line (statusLine): x with {"env": {"A": "b"}}'],
        ),
        (
            {"env": {"ANTHROPIC_BASE_URL": "http://e"}},
            ["sets environment variables: ANTHROPIC_BASE_URL=http://e"],
        ),
        (
            {"permissions": {"allow": ["Bash", "Read"], "deny": ["x"]}},
            [f"{ALLOWS}: Bash, Read"],
        ),
        (
            {"permissions": {"defaultMode": "bypassPermissions"}},
            ["sets permissions.defaultMode: bypassPermissions"],
        ),
        ({"enabledPlugins": {"a@b": True, "c@d": False}}, ["turns on plugins: a@b"]),
        ({"extraKnownMarketplaces": {"a": 1}}, ['adds places that plugins come from: {"a": 1}']),
        ({"enableAllProjectMcpServers": True}, ["sets enableAllProjectMcpServers: true"]),
        ({"sandbox": {"enabled": False}}, ['sets sandbox: {"enabled": false}']),
        ({"aKeyOfTomorrow": 1}, ["sets aKeyOfTomorrow: 1"]),
        ({"disableAllHooks": True}, ["sets disableAllHooks: true"]),
        (
            {
                "$schema": "x",
                "permissions": {"deny": ["Bash"], "ask": ["x"]},
                "language": "de",
                "hooks": {},
            },
            [],
        ),
        ({"enableAllProjectMcpServers": False, "env": {}, "includeCoAuthoredBy": False}, []),
    ],
)
def test_settings_in_words(value: dict[str, Any], words: list[str]) -> None:
    assert settings.of_settings(value) == words


@pytest.mark.parametrize(
    "value",
    [
        {"apiKeyHelper": "x" * 5000},
        {"env": {f"A{at}": "x" * 1000 for at in range(200)}},
        {f"key{at}": at for at in range(300)},
    ],
)
def test_what_nobody_is_shown_whole_cannot_be_trusted(value: dict[str, Any], work: Path) -> None:
    write(work / ".claude/settings.json", value)
    (place,) = look(work).acting
    assert "more" in place.found[-1]
    assert place.content == ""


@pytest.mark.parametrize(
    ("text", "acts"),
    [
        ("just words", False),
        ("---\nname: x\ndescription: |\n  hooks: are words here\ntools: Read\n---\nwords", False),
        ("---\ndescription: x\ntags:\n- a\n---\nwords with `code` and !important", False),
        ("---\nname: x\nhooks:\n  PreToolUse: []\n---\n", True),
        ("---\n  name: x\n  hooks: {}\n---\n", True),
        ('---\n"hooks": {}\n---\n', True),
        ("---\n{name: x, hooks: {}}\n---\n", True),
        ("---\nname: x\u2028hooks: {}\n---\n", True),
        ("\ufeff---\r\nallowed-tools: Bash\r\n---\r\n", True),
        ("---\nname: x\n<<: *a\n---\n", True),
        ("---\nname: x", False),
        ("---\nmcpServers:\n- a", True),
        ("first\n!`touch x`\n", True),
        ("```!\ntouch x\n```\n", True),
    ],
)
def test_skills_agents_and_commands(text: str, acts: bool) -> None:
    assert bool(markdown.acting(text.encode())) is acts


HOOKS = "hooks:\n  PreToolUse: []\n"


@pytest.mark.parametrize(
    "head",
    [
        *(f"description: x{end}...{end}y\n{HOOKS}" for end in "\u2028\u2029\x85\v\f\r"),
        f"description: d\n...\n{HOOKS}",
        f"description: d\n... # x\n{HOOKS}",
        "description: d\n  ...\n",
        "\tdescription: d\n  hooks: {}\n",
        "description: d\n\thooks: {}\n",
        "\vdescription: d\n  hooks: {}\n",
        "\u00a0\u00a0name: d\n\u3000hooks: {}\n",
        "- a\n- hooks: {}\n",
        "name: x\n- hooks: {}\n",
        "name: 'a\nhooks: {}'\n",
        "name: &a x\n",
        "name: !!map x\n",
        "name: {a: 1\n}\n",
        "? name\n: x\n",
        "%YAML 1.1\n",
        "hooks : {}\n",
        "---\nhooks: {}\n",
    ],
)
def test_frontmatter_that_parsers_may_read_differently_acts(head: str) -> None:
    assert markdown.acting(f"---\n{head}---\nwords\n".encode())


@pytest.mark.parametrize("lead", ["\ufeff\ufeff", "\n\n", "\u00a0", "\v", " \t"])
def test_text_before_frontmatter_does_not_hide_it(lead: str) -> None:
    assert markdown.acting(f"{lead}---\n{HOOKS}---\n".encode())


@pytest.mark.parametrize(
    "data",
    [
        f"---\n{HOOKS}---\n".encode("utf-16"),
        b"---\nname: \xff\n---\n",
        b"a\0b",
        b"---\n---\na\n---",
    ],
)
def test_what_is_not_plain_text_acts(data: bytes) -> None:
    assert markdown.acting(data)


@pytest.mark.parametrize(
    "head",
    [
        "name: x\r\ndescription: Use it: now\r\n",
        "argument-hint: [file] [--flag]\nmodel: sonnet # the small one\ntools: Read, Grep\n",
        "description: >-\n  one\n\n  two: words\ntags:\n  - a\nmetadata:\n  a: b\n",
        '# words\ntools: ["Read", \'Grep\']\ntags:\n- a\n- "b"\ndescription: "say \\"x\\""\n',
        "description: goes on\n  in the next line\ncolor: red\n",
    ],
)
def test_a_plain_head_does_not_act(head: str) -> None:
    assert markdown.acting(f"---\n{head}---\nwords\n".encode()) == []


@pytest.mark.parametrize(
    "body",
    [
        "Run: ```!\ntouch x\n```\n",
        "> quote ```! touch x```\n",
        "words!`touch x`\n",
        "~~~ !\ntouch x\n~~~\n",
        "${CLAUDE_SKILL_DIR}`touch x`\n",
        "words !$ARGUMENTS`touch x`\n",
        "``$1`!\ntouch x\n```\n",
        "``$ARGUMENTS[0]`! touch x```\n",
    ],
)
def test_a_shell_command_anywhere_acts(body: str) -> None:
    (line,) = markdown.acting(body.encode())
    assert line.startswith("runs when it is used: ")
    assert "touch x" in line


def test_a_path_with_an_exclamation_mark_acts(work: Path) -> None:
    write(work / ".claude/skills/a !/SKILL.md", "---\nname: a\n---\nWords.")
    assert found(work) == [".claude/skills/a !/SKILL.md: has an exclamation mark in its path"]


@pytest.mark.parametrize(
    ("permissions", "kept"),
    [
        ({"deny": ["Read(/a b/**)", "Read(//etc/x)", "Bash(/bin/x)", "Edit(./x)", "WebFetch", 7]},
         {"deny": ["Read(//work/a b/**)", "Read(//etc/x)", "Bash(/bin/x)", "Edit(./x)", "WebFetch"]}),
        ({"ask": ["Write(~/x)"], "allow": ["Bash"], "defaultMode": "plan"}, {"ask": ["Write(~/x)"]}),
        ({"deny": "Read", "ask": None}, {}),
        ([], {}),
    ],
    ids=str,
)  # fmt: skip
def test_what_settings_forbid_means_the_same_from_elsewhere(permissions: Any, kept: Any) -> None:
    assert settings.restrictions({"permissions": permissions}, "/work") == kept


def test_letters_of_patterns_in_directory_forbid_no_less() -> None:
    value = {"permissions": {"deny": ["Read(/a[b]/*)"]}}
    assert settings.restrictions(value, "/[x] *?\\/work") == {
        "deny": ["Read(//?x] ???/work/a[b]/*)"]
    }


def test_a_directory_without_settings_does_not_act(work: Path) -> None:
    write(work / "CLAUDE.md", "Words.")
    write(work / ".claude/rules/a.md", "Words.")
    write(work / ".claude/skills/a/SKILL.md", "---\nname: a\n---\nWords.")
    write(work / ".claude/settings.json", {"permissions": {"deny": ["Bash"]}})
    assert look(work).acting == ()
    assert look(work).key == ""


@pytest.mark.parametrize(
    ("name", "value"),
    [
        (".claude/settings.json", hook("x")),
        (".claude/settings.local.json", hook("x")),
        (".mcp.json", {"mcpServers": {"a": {"command": "x"}}}),
        (".mcp.json", {"mcpServers": {"a": {"type": "http", "url": "http://e"}}}),
        (".claude/agents/deep/a.md", "---\nhooks: {}\n---"),
        (".claude/commands/a.md", "!`x`"),
        (".claude/skills/a/SKILL.md", "---\nallowed-tools: Bash\n---"),
        (".claude/skills/a/.claude-plugin/plugin.json", {}),
        (".claude/skills/a/hooks/hooks.json", {}),
        (".claude/workflows/a.js", "x"),
        (".claude/scheduled_tasks.json", []),
    ],
)
def test_acting_content_is_found_and_its_change_noticed(work: Path, name: str, value: Any) -> None:
    file = write(work / name, value)
    before = look(work)
    assert found(work)
    assert unchanged(before)
    os.utime(file, ns=(0, 0))  # a change that the time stamps of a fast file system could miss
    file.write_bytes(file.read_bytes() + b" ")
    assert not unchanged(before)
    if not name.endswith("settings.json"):
        assert look(work).key != before.key


def test_new_file_is_a_change(work: Path) -> None:
    before = look(work)
    write(work / ".claude/settings.json", {})
    assert not unchanged(before)


def test_local_and_project_settings_follow_setting_sources(work: Path) -> None:
    write(work / ".claude/settings.json", hook("shared"))
    write(work / ".claude/settings.local.json", hook("own"))
    assert len(found(work)) == 2
    assert found(work, sources=("user", "local")) == [
        ".claude/settings.local.json: hook at Stop: own"
    ]
    assert found(work, sources=("project",)) == [".claude/settings.json: hook at Stop: shared"]
    assert found(work, sources=("user",)) == []


@pytest.mark.parametrize(
    "command",
    [
        "./run.sh --fast",
        "sh run.sh",
        'sh "$CLAUDE_PROJECT_DIR"/run.sh',
        '"${CLAUDE_PROJECT_DIR}/run.sh"',
        "${CLAUDE_PROJECT_DIR:-.}/run.sh",
        "cd /tmp; WORK/run.sh|cat",
        "X=1 bash -c './run.sh && true'",
    ],
)
def test_named_script_belongs_to_content(work: Path, command: str) -> None:
    write(work / ".claude/settings.json", hook(command.replace("WORK", str(work))))
    missing = look(work)
    script = write(work / "run.sh", "true")
    before = look(work)
    assert not unchanged(missing)
    assert before.key != missing.key
    script.write_text("rm -rf ~")
    assert not unchanged(before)
    assert look(work).key != before.key


# A command within four others
NESTED = reduce(lambda command, _: shlex.quote(f": {command}"), range(3), r"'sh my\ tools/run'")


@pytest.mark.parametrize(
    ("command", "name"),
    [
        ('sh "$(git rev-parse --show-toplevel)/tools/run.sh"', "tools/run.sh"),
        ("sh `pwd`/tools/run.sh", "tools/run.sh"),
        ('ROOT=$(git rev-parse --show-toplevel); sh "$ROOT/tools/run.sh"', "tools/run.sh"),
        ('cd "$HOME"; sh "${ROOT}/my tools/run.sh"', "my tools/run.sh"),
        ('T=$CLAUDE_PROJECT_DIR/tools; sh "$T/run.sh"', "tools/run.sh"),
        ('sh "${RUN:-tools/run.sh}"', "tools/run.sh"),
        ("sh ${RUN-tools/run.sh} -x", "tools/run.sh"),
        ("D=tools; date >> $D/out; sh $D/out", "tools/out"),
        ("cd tools && ./run.sh", "tools/run.sh"),
        ('(cd "$CLAUDE_PROJECT_DIR/tools"; exec ./run.sh)', "tools/run.sh"),
        (r"sh ./tools\/run.sh", "tools/run.sh"),
        (r"sh my\ tools/run", "my tools/run"),
        ('sh "$CLAUDE_PROJECT_DIR"/my\\ tools/run', "my tools/run"),
        ("sh 'my tools'/run", "my tools/run"),
        ("sh my' 'tools/run", "my tools/run"),
        ("cd my\\ tools && sh run", "my tools/run"),
        ("""bash -c 'sh "my tools/run"'""", "my tools/run"),
        ("""bash -c "sh 'my tools/run'\"""", "my tools/run"),
        (r'''bash -c "sh \"my tools/run\""''', "my tools/run"),
        (r'''sh -c "bash -c 'sh \"my tools\"/run'"''', "my tools/run"),
        ("""echo "$(sh "$PWD/my tools"/run)\"""", "my tools/run"),
        ("""echo "${X:-"my tools/run"}\"""", "my tools/run"),
        ("# don't ask\nsh 'my tools'/run", "my tools/run"),
        ("sh $'my tools/run'", "my tools/run"),
        ("RUN=my\\ tools/run bash -c 'sh \"$RUN\"'", "my tools/run"),
        ("sh tools\\\n/run", "tools/run"),
        ("""sh "it's"/run""", "it's/run"),
        (r"sh it\'s/run", "it's/run"),
        ("sh 'a (b)/run'", "a (b)/run"),
        (r"sh a\&b/run", "a&b/run"),
        ("sh 'a;b/run'", "a;b/run"),
        ("sh a,b/run", "a,b/run"),
        ("sh a=b/run", "a=b/run"),
        ("RUN=a=b/run; sh $RUN", "a=b/run"),
        ("PATH=$PWD/tools:$PATH; run", "tools/run"),
        ("sh 'a$b/run'", "a$b/run"),
        ("sh 'x$PWD'", "x$PWD"),
        ("sh -- -x/run", "-x/run"),
        ("sh " + "./" * 600 + "run", "run"),
        ("sh /" + "WORK/run", "run"),
        ("sh ~/work/tools/run", "tools/run"),
        ("sh ~+/tools/run", "tools/run"),
        ("cd /; sh ~-/tools/run", "tools/run"),
        ('sh "$HOME/work/tools/run"', "tools/run"),
        ('sh "${HOME}"/work/tools/run', "tools/run"),
        ("cd ~/work/tools && sh run", "tools/run"),
        ("RUN=~/work/tools/run; sh $RUN", "tools/run"),
        ("sh ~/other/tools/run", "tools/run"),
        ("sh link/../other/run", "deep/other/run"),
        ("cd link/../other && sh run", "deep/other/run"),
        ("cd link/../tools && sh run", "tools/run"),
        ("env -C link/.. sh other/run", "deep/other/run"),
        (f": {NESTED}; bash -c 'sh my\\ tools/run'", "my tools/run"),
        ("node 'my tools/run'", "my tools/run.js"),
        ("/usr/bin/python3 tools", "tools/__main__.py"),
        ("node tools/run", "tools/run.js"),
        ("node ./tools", "tools/index.js"),
        ("python3 -m tools.run", "tools/run.py"),
        ("python3 -mtools.run", "tools/run.py"),
        ("python3 -Im tools.run", "tools/run.py"),
        ("python3 -Imtools.common", "tools/common.py"),
        ('python3 "-m" "tools.run"', "tools/run.py"),
        ("bash -c 'node tools/run' && echo 'done'", "tools/run.js"),
        ("node -r dotenv/config tools/run", "tools/run.js"),
        ("python3 -W ignore -u tools", "tools/__main__.py"),
        ("node --require=./tools/run ./server", "tools/run.js"),
        ("node \\\n  tools/run", "tools/run.js"),
        ("npx -y tsx@latest --tsconfig tsconfig.json tools/run", "tools/run.ts"),
        ("node node_modules/.bin/tsx watch tools", "tools/index.ts"),
        ("node -r./tools/run.js", "tools/run.js"),
        ("node -r./tools/run", "tools/run.js"),
        ("ruby -r./tools/run.rb -e 1", "tools/run.rb"),
        ("ruby -r ./tools/run -e 1", "tools/run.rb"),
        ("awk -ftools/run.awk", "tools/run.awk"),
        ("make '-ftools/Makefile'", "tools/Makefile"),
        ("cd tools && cd sub && sh run.sh", "tools/sub/run.sh"),
        ("cd tools; cd sub; cd deep; python3 -m run", "tools/sub/deep/run.py"),
        ("cd .claude && cd checks && find -exec sh {} +", ".claude/checks/run.sh"),
        ("find .claude/checks -name '*.sh' -exec sh {} +", ".claude/checks/below/run.sh"),
        ("true", ".claude/hooks/run.sh"),
    ],
)
def test_script_named_in_common_ways_belongs_to_content(
    work: Path, command: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(work.parent))
    (work.parent / "other").symlink_to(work)
    (work / "deep/below").mkdir(parents=True)
    (work / "link").symlink_to("deep/below")
    write(work / ".claude/settings.json", hook(command.replace("WORK", str(work))))
    script = write(work / name, "true")
    write(work / "src/index.js", "")
    before = look(work)
    script.write_text("rm -rf ~")
    assert not unchanged(before)
    assert look(work).key != before.key
    (work / "src/index.js").write_text("// what no command names")
    assert unchanged(look(work))


def launch(command: str, *arguments: str) -> dict[str, Any]:
    return {"command": command, "args": arguments}


@pytest.mark.parametrize(
    ("launched", "name"),
    [
        (launch("python", "-m", "srv"), "srv.py"),
        (launch("python3", "-um", "my.srv"), "my/srv/__main__.py"),
        (launch("uv", "run", "-m", "srv"), "srv.py"),
        (launch("node", "./server"), "server.js"),
        (launch("node", "lib"), "lib/index.js"),
        (launch("node", "my lib"), "my lib/index.js"),
        (launch("node", "it's"), "it's.js"),
        (launch("npx", "tsx", "src/index"), "src/index.ts"),
        (launch("bash", "-c", "sh 'my tools'/run"), "my tools/run"),
    ],
)
def test_launch_without_shell_names_programs(
    work: Path, launched: dict[str, Any], name: str
) -> None:
    exec_form = {"hooks": {"Stop": [{"hooks": [{"type": "command", **launched}]}]}}
    program = work / name
    for path, value in (
        (".mcp.json", {"mcpServers": {"a": launched}}),
        (".claude/settings.json", exec_form),
    ):
        write(program, "one")
        named = write(work / path, value)
        before = look(work)
        write(program, "two, longer")
        assert not unchanged(before), path
        assert look(work).key != before.key, path
        named.unlink()


@pytest.mark.parametrize(
    ("path", "text"),
    [
        (".claude/agents/a.md", "---\nname: a\nmcpServers:\n  a:\n    command: SAID\n---\nwords"),
        (".mcp.json", '{"mcpServers": {"a": {"command": "SAID",}}}'),
    ],
)
@pytest.mark.parametrize(
    ("said", "name"),
    [
        ('{command: node, args: ["./server"]}', "server.js"),
        ("node\n    args:\n      - ./server", "server.js"),
        ("python3\n    args: [-m, my.srv]", "my/srv.py"),
        ("python3\n    args:\n    - '-m'\n    - my.srv", "my/srv.py"),
        ('python3", "args": ["-m", "my.srv"], "type": "stdio', "my/srv.py"),
    ],
)
def test_arguments_apart_from_their_command_name_programs(
    work: Path, path: str, text: str, said: str, name: str
) -> None:
    """Where the text is not parsed, as the CLI reads it leniently."""
    write(work / path, text.replace("SAID", said))
    write(work / name, "one")
    before = look(work)
    assert before.acting
    write(work / name, "two, longer")
    assert not unchanged(before)
    assert look(work).key != before.key


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        (hook("find . -name x; git commit -amend; python3 x.py src"), "e.py"),
        (hook("python3 x.py src"), "src/__main__.py"),
        (hook("npx eslint --fix src/ ./tests"), "src/index.js"),
        (hook("ruff check src"), "src/__main__.py"),
        (hook("cd src && make && npm test && python3 -m pytest"), "src/main.py"),
        (hook('ls "$CLAUDE_PROJECT_DIR/src"'), "src.py"),
        (hook("python3 .claude/hooks/h.py"), ".claude/hooks/__pycache__/h.cpython-311.pyc"),
        (hook("python3 .claude/hooks/h.py"), ".claude/hooks/h.log"),
        (hook("find .claude/plans -name 'x'"), ".claude/plans/plan.md"),
        (
            hook("make")
            | {"permissions": {"allow": ["Edit(CHANGELOG.md)"], "deny": ["Read(./.env)"]}},
            "CHANGELOG.md",
        ),
    ],
)
def test_what_is_no_program_changes_unasked(
    work: Path, settings: dict[str, Any], name: str
) -> None:
    write(work / ".claude/settings.json", settings)
    write(work / ".claude/hooks/h.py", "pass")
    (work / "src").mkdir()
    before = look(work)
    for text in ("one", "two"):
        write(work / name, text)
        assert look(work).key == before.key


def test_padding_hides_no_named_script(work: Path) -> None:
    """What is never shown, or comes after a long text, costs no look at the programs."""
    script = write(work / "tools/check.sh", "one")
    padding = [f"word{number}" for number in range(3000)]
    write(work / ".claude/settings.json", hook("./tools/check.sh") | {"spinnerVerbs": padding})
    write(work / ".claude/commands/x.md", "long " * 20_000 + "!`./tools/other.sh`")
    other = write(work / "tools/other.sh", "one")
    before = look(work)
    for path in (script, other):
        path.write_text("two, longer")
        assert not unchanged(before)
        assert look(work).acting[0].content != before.acting[0].content
        before = look(work)


def test_more_words_than_examined_cannot_be_remembered(work: Path) -> None:
    padding = [f"word{number}" for number in range(6000)]
    write(work / ".claude/settings.json", hook("./check.sh") | {"spinnerVerbs": padding})
    (one,) = look(work).acting
    assert one.content == ""
    assert any("not everything was examined" in line for line in one.found)


def test_files_elsewhere_do_not_belong_to_it(work: Path, tmp_path: Path) -> None:
    other = write(tmp_path / "other.sh", "true")
    write(work / ".claude/settings.json", hook(f"sh {other} ../other.sh"))
    before = look(work)
    other.write_text("changed")
    assert look(work).key == before.key


def test_mcp_server_launch_details_are_shown_whole(work: Path) -> None:
    server = {"command": "python3", "args": ["-c", "1"], "env": {"LD_PRELOAD": "./evil.so"}}
    write(work / ".mcp.json", {"mcpServers": {"a": server}})
    (line,) = found(work)
    assert 'MCP server a runs: python3 -c 1 with {"env": {"LD_PRELOAD": "./evil.so"}}' in line


def test_directories_above_and_checkouts(work: Path) -> None:
    write(work / ".mcp.json", {"mcpServers": {"a": {"command": "x"}}})
    write(work / ".claude/commands/a.md", "!`x`")
    write(work / ".claude/settings.json", hook("only in the directory itself"))
    write(work / ".claude/settings.local.json", hook("of the checkout"))
    below = work / "a" / "b"
    below.mkdir(parents=True)
    assert not any("of the checkout" in line for line in found(below))
    (work / ".git").mkdir()
    lines = "\n".join(found(below))
    assert "of the checkout" in lines
    assert "MCP server a" in lines
    assert "commands/a.md" in lines
    assert "only in the directory itself" not in lines


def test_a_worktree_leads_to_the_main_checkout(work: Path, tmp_path: Path) -> None:
    def git(*words: str) -> None:
        identity = ["-c", "user.name=t", "-c", "user.email=t@example.org"]
        subprocess.run(["git", *identity, *words], cwd=work, check=True, capture_output=True)

    git("init", "-q")
    git("commit", "-q", "--allow-empty", "-m", "x")
    git("worktree", "add", "-q", str(tmp_path / "tree"))
    write(work / ".claude/settings.local.json", hook("of the main checkout"))
    assert any("of the main checkout" in line for line in found(tmp_path / "tree"))


def test_additional_directory_plugins_skills_agents_and_commands_count(
    work: Path, tmp_path: Path
) -> None:
    more = tmp_path / "more"
    write(more / ".claude/settings.json", {**hook("x"), "enabledPlugins": {"a@b": True}})
    write(more / ".mcp.json", {"mcpServers": {"a": {"command": "x"}}})
    write(more / ".claude/commands/a.md", "!`x`")
    (place,) = look(work, more).acting
    assert place.path == str(more)
    assert [line.partition(": ")[2] for line in place.found] == [
        "turns on plugins: a@b",
        "runs when it is used: x",
    ]


def test_the_users_own_settings_need_no_trust(empty_home: Path) -> None:
    write(empty_home / ".claude/settings.json", hook("x"))
    write(empty_home / ".claude/skills/a/SKILL.md", "!`x`")
    (empty_home / "work").mkdir()
    assert found(empty_home) == []
    assert found(empty_home / "work") == []


def _unreadable(path: Path) -> None:
    path.mkdir()


def _large(path: Path) -> None:
    path.write_text(json.dumps({"language": "x" * looking.MAX_FILE}))


@pytest.mark.parametrize(
    "make",
    [
        os.mkfifo,
        _large,
        _unreadable,
        lambda path: path.write_text("[" * 100_000),
        lambda path: path.write_text("{'hooks': }"),
        lambda path: path.write_bytes(b"\xff\xfe{}"),
        lambda path: path.write_text("[]"),
    ],
)
def test_what_cannot_be_looked_at_acts(work: Path, make: Callable[[Path], object]) -> None:
    (work / ".claude").mkdir()
    make(work / ".claude/settings.json")
    (line,) = found(work)
    assert line.startswith(".claude/settings.json: ")


@pytest.mark.parametrize("make", [os.mkfifo, _large])
@pytest.mark.parametrize(
    "name", [".claude/settings.json", ".mcp.json", ".claude/agents/a.md", ".claude/launch.json"]
)
def test_file_not_read_whole_cannot_be_trusted(
    name: str, make: Callable[[Path], object], work: Path
) -> None:
    (work / name).parent.mkdir(parents=True, exist_ok=True)
    make(work / name)
    write(work / ".claude/commands/z.md", "!`x`")
    (place,) = look(work).acting
    assert place.content == ""
    assert place.found[-1] in (f"{name}: is not a file", f"{name}: is larger than 1024 KiB")


def test_large_program_is_told_apart_and_trusted(work: Path) -> None:
    write(work / ".claude/settings.json", hook("./tool"))
    program = write(work / "tool", "x" * (looking.MAX_FILE + 1))
    (before,) = look(work).acting
    program.write_text("y" * (looking.MAX_FILE + 2))
    (after,) = look(work).acting
    assert "" != before.content != after.content != ""


def test_content_not_inspected_whole_cannot_be_remembered(
    work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(looking, "MAX_ENTRIES", 10)
    for number in range(20):
        write(work / f".claude/skills/{number}/SKILL.md", "Words.")
    (place,) = look(work).acting
    assert place.content == ""
    assert place.found == ("not everything was examined: more than 10 files",)


def test_circular_directories_terminate(work: Path) -> None:
    write(work / ".claude/commands/a.md", "!`x`")
    (work / ".claude/commands/again").symlink_to(work / ".claude/commands")
    assert len(found(work)) == 1


@pytest.mark.parametrize("target", ["/", "..", "../..", "/proc/self", "/sys"])
@pytest.mark.parametrize("link", [".claude/skills", ".claude/agents/a", ".claude/workflows/a"])
def test_link_to_everything_is_named_and_not_followed(work: Path, link: str, target: str) -> None:
    place = work / "deep/er"
    write(place / "plain.txt", "Words.")
    target = os.path.realpath(place / target)
    (place / link).parent.mkdir(parents=True)
    (place / link).symlink_to(target)
    content = look(place)
    (one,) = content.acting
    assert one.found[-1].startswith(f"not everything was examined: a link to {target} (")
    assert one.found[-1].endswith(f"{link})")
    assert one.content == "", "what nobody has seen cannot be trusted"
    assert not [path for path in content.stamps if path.startswith(f"{place}/{link}/")]
    assert unchanged(content)


def test_link_to_root_costs_no_look_below(work: Path) -> None:
    (work / "z").symlink_to("/")
    write(work / "sub" / SKILL, ACTS)
    assert below.find(os.fspath(work), "", below.MAX_DIRECTORIES, math.inf) == below.Below(
        (f"{work}/sub",), f"a link to / ({work}/z)"
    )


@pytest.mark.parametrize("target", ["loop", "plain.txt/a", "nowhere"])
def test_links_that_lead_nowhere_are_passed_over(work: Path, target: str) -> None:
    write(work / "tests/plain.txt", "Words.")
    for folder in ("tests", ".claude/skills", ".claude/commands/a"):
        (work / folder).mkdir(parents=True, exist_ok=True)
        (work / folder / "loop").symlink_to(target)
    assert look(work).acting == ()
    write(work / "tests/sub" / SKILL, ACTS)
    (place,) = look(work).acting
    assert place.found == (f"tests/sub/{SKILL}: has hooks: {{}} in its front matter",)
    assert place.content


def test_link_that_cannot_be_followed_hides_no_other(work: Path) -> None:
    link = work / "tests/link"
    write(work / "tests/sub" / SKILL, ACTS)
    link.symlink_to("x" * 300)
    trouble = f"a link that cannot be followed (File name too long: {link})"
    assert below.find(os.fspath(work), "", below.MAX_DIRECTORIES, math.inf) == below.Below(
        (f"{work}/tests/sub",), trouble
    )


def test_names_that_are_no_text_can_be_told(work: Path) -> None:
    name = os.fsdecode(b"\xff\xfe.md")
    write(work / ".claude/commands" / name, "!`x`")
    assert look(work).key
    assert found(work)[0].startswith(".claude/commands/\\xff\\xfe.md")


SKILL = ".claude/skills/a/SKILL.md"
ACTS = "---\nname: a\nhooks: {}\n---\nWords."


@pytest.mark.parametrize(
    "place",
    ["sub", "a/b/c/d/e/f/g/h/i/j/k", "node_modules/x", ".git/x", ".hidden", ".claude/skills/b"],
)
def test_skills_in_directories_below_are_found(work: Path, place: str) -> None:
    write(work / "sub/plain.txt", "Words.")
    (work / place).mkdir(parents=True, exist_ok=True)
    nothing = look(work)
    assert nothing.acting == ()
    assert unchanged(nothing)
    skill = write(work / place / SKILL, ACTS)
    assert not unchanged(nothing)
    before = look(work)
    assert any(line.startswith(f"{place}/{SKILL}: has hooks") for line in found(work))
    skill.write_text(ACTS.replace("{}", "{Stop: []}"))
    assert not unchanged(before)
    assert look(work).key != before.key
    assert found(work, sources=("user", "local")) == []


def test_new_subdirectory_is_change_only_if_it_acts(work: Path) -> None:
    before = look(work)
    write(work / "new/words.txt", "Words.")
    assert unchanged(before)
    write(work / "newer/deep" / SKILL, ACTS)
    assert not unchanged(before)


def test_next_worker_sees_new_skill_among_many_directories(
    work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(below, "QUICK", 5)
    for number in range(10):
        (work / str(number)).mkdir()
    write(work / "0" / SKILL, ACTS)
    before = look(work)
    write(work / "1" / SKILL, ACTS)
    assert unchanged(before)
    assert look(work).key != before.key
    write(work / "0" / SKILL, f"{ACTS} changed")
    assert not unchanged(before)


def test_skills_behind_links_and_in_additional_directories_found(
    work: Path, tmp_path: Path
) -> None:
    write(tmp_path / "other/sub" / SKILL, ACTS)
    write(tmp_path / "folder/skills/a/SKILL.md", ACTS)
    (work / "link").symlink_to(tmp_path / "other")
    (work / "round").symlink_to(work)
    (work / "x").mkdir()
    (work / "x/.claude").symlink_to(tmp_path / "folder")
    lines = found(work)
    assert [line.partition(": ")[0] for line in lines] == [f"x/{SKILL}", f"../other/sub/{SKILL}"]
    plain = tmp_path / "plain"
    plain.mkdir()
    assert len(found(plain, tmp_path / "other")) == 1


@pytest.mark.parametrize(("name", "value"), [("MAX_DIRECTORIES", 10), ("MAX_TIME", -1.0)])
def test_too_many_directories_to_look_through_act(
    work: Path, monkeypatch: pytest.MonkeyPatch, name: str, value: float
) -> None:
    monkeypatch.setattr(below, name, value)
    for number in range(20):
        (work / str(number)).mkdir()
    content = look(work)
    (place,) = content.acting
    assert place.found[0].startswith(
        ".: may have skills in directories below, which act and are not shown: more than"
    )
    assert place.content == "", (
        "skills that nobody has seen cannot be trusted, but for a whole tree"
    )
    assert unchanged(content)


@pytest.mark.parametrize("method", ["look", "unchanged"])
async def test_look_cancelled_as_it_ends_is_cancelled(
    method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: asyncio.Future[object] = asyncio.get_running_loop().create_future()

    async def look(*_: object) -> object:
        return await looked

    monkeypatch.setattr(asyncio, "to_thread", look)
    arguments = {"look": ("/", (), ()), "unchanged": (Content(),)}[method]
    task = asyncio.create_task(getattr(Watch(), method)(*arguments))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    looked.set_result(True)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_shortage_of_descriptors_is_no_content(
    work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = os.open

    def none_left(path: Any, *given: Any, **named: Any) -> int:
        if str(path).endswith(".mcp.json"):
            raise OSError(errno.EMFILE, "Too many open files")
        return opened(path, *given, **named)

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", none_left)
        with pytest.raises(
            WorkerFailed, match="could not be looked at, as no file descriptor"
        ) as at:
            await Watch().look(str(work), [], ("user", "project", "local"))
    assert at.value.kind == "out_of_descriptors"
    assert not (await Watch().look(str(work), [], ("user", "project", "local"))).acting


def test_countless_commands_fill_no_memory(work: Path) -> None:
    for at in range(8):
        write(work / f".claude/commands/{at}.md", "!`" * 32_000)
    tracemalloc.start()
    try:
        (place,) = look(work).acting
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert place.found[-1] == "127800 more, which are not shown"
    assert peak < 12_000_000
