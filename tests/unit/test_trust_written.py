"""Files that a hook's command only writes are no part of what is trusted; all that is in doubt is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pykoclaw_acp.trust.scan import scan
from pykoclaw_acp.trust.written import without_written

NAME = "hook.log"


def depends(work: Path, command: str, name: str = NAME, **more: Any) -> bool:
    """Whether what is trusted is other content when the file changes."""
    one = {"type": "command", "command": command, **more}
    (work / ".claude").mkdir(exist_ok=True)
    settings = {"hooks": {"PreToolUse": [{"matcher": "Bash", "hooks": [one]}]}}
    (work / ".claude/settings.json").write_text(json.dumps(settings))
    keys = []
    for text in ("one", "other"):
        (work / name).parent.mkdir(parents=True, exist_ok=True)
        (work / name).write_text(text)
        (found,) = scan(str(work), [], ("user", "project", "local")).acting
        keys.append(found.content)
    assert all(keys)
    return keys[0] != keys[1]


@pytest.mark.parametrize(
    "command",
    [
        "echo x >> hook.log",
        "echo x>hook.log",
        ">hook.log",
        "> ./hook.log date",
        "echo x >| hook.log && ./run.sh",
        "./run.sh &> hook.log",
        "./run.sh &>>hook.log || true",
        "./run.sh 2>hook.log",
        "./run.sh >> hook.log 2>&1",
        "./run.sh 2>/dev/null >hook.log; exit 0",
        "(date; ./run.sh) >> 'hook.log'",
        'date >> "$CLAUDE_PROJECT_DIR/hook.log"',
        'date >> "$CLAUDE_PROJECT_DIR"/hook.log',
        "date >> ${CLAUDE_PROJECT_DIR}/hook.log",
        "jq -r '.tool_input.command | \"# \\(.)\"' >> hook.log",
        'echo "$(date \'+%F %T\') don\'t \\"ask\\"" >> hook.log',
        '{ date; [ -z "$X" ] || ./run.sh; } >> hook.log',
        "./run.sh | tee hook.log",
        "./run.sh | tee -a hook.log | cat",
        "date > hook.log; ./run.sh > hook.log",
    ],
)
def test_file_only_written_changes_unasked(tmp_path: Path, command: str) -> None:
    assert not depends(tmp_path, command)


@pytest.mark.parametrize(
    "command",
    [
        "date > hook.log; sh hook.log",
        ">hook.log sh hook.log",
        ">>hook.log sh<hook.log",
        "sh 0<>hook.log",
        "sh <> hook.log",
        "sh >&hook.log",  # what a shell makes of it differs
        "> hook.log; sh ./x/../hook.log",
        "> hook.log; sh 'hook.log'",
        '> hook.log; sh "$PWD"/hook.log',
        "date > hook.log; bash -c 'sh hook.log'",
        r"sh \> hook.log",
        r"xargs -n1 sh \> hook.log",
        "eval sh '>' hook.log",
        "echo '> hook.log' | xargs -n1 sh",
        "xargs -n1 sh <<E\n > hook.log \nE",
        'xargs -n1 sh <<< " > hook.log "',
        ": # '\nxargs -n1 sh <<< ' > hook.log '",
        ": # '\necho ' > hook.log ' | xargs -n1 sh",
        r": $'\'' ' > hook.log '",
        'echo "$(echo "> hook.log")" | xargs -n1 sh',
        'echo "${x:-"> hook.log"}" | xargs -n1 sh',
        'echo "$(echo \'x)" > hook.log \'" | xargs -n1 sh',
        'echo `echo "` > hook.log `echo "` | sh`',
        "date > >(sh hook.log)",
        "date >$(sh hook.log)",
        "ruby -e \"1 > load'hook.log'\"",
        "> hook.log; sh *",
        ">> hook.log sh /dev/stdout",
        "sh /proc/self/fd/3 3>> hook.log",
        "cd /dev; sh fd/1 >> hook.log",
        "sh /de'v/f'd/3 3>> hook.log",
        "sh /DEV/FD/3 3>> hook.log",  # where a file system takes it for the same
        "cd /; cd dev/fd; sh 3 3>> hook.log",
        "cd /; cd proc/self/'fd'; sh 3 3>> hook.log",
        'cd "/pro"c; cd self; cd fd; sh 3 3>> hook.log',
        't"e"e() (sh "$1"); echo | tee hook.log',
        'tee() (sh "$1"); echo | tee hook.log',
        "alias tee=sh; echo | tee hook.log",
        "PATH=./bin:$PATH; echo | tee hook.log",
        "echo | ./tee hook.log",
        "echo | tee -x hook.log",
        "echo ' > hook.log",
    ],
)
def test_file_that_may_be_read_counts(tmp_path: Path, command: str) -> None:
    assert depends(tmp_path, command)


@pytest.mark.parametrize("more", [{"shell": "powershell"}, {"args": ["x"]}, {"type": "prompt"}])
def test_written_file_counts_elsewhere_than_in_shell(tmp_path: Path, more: dict[str, Any]) -> None:
    assert depends(tmp_path, "echo x >> hook.log", **more)


@pytest.mark.parametrize(
    ("command", "name"),
    [
        ("echo date > made.sh; make", "made.sh"),
        ("echo date > made.s'h'; make", "made.sh"),
        ("echo date > \"made\".s'h'; make", "made.sh"),
        ("cd bin; date > hook.log", "bin/date"),
        ("cd bin; date | tee hook.log", "bin/tee"),
        ('./ru"n".sh > hook.log', "run.sh"),
    ],
)
def test_program_beside_written_file_counts(tmp_path: Path, command: str, name: str) -> None:
    assert depends(tmp_path, command, name)


def test_written_file_counts_if_another_command_reads_it(tmp_path: Path) -> None:
    server = {"mcpServers": {"a": {"command": "sh", "args": [NAME]}}}
    (tmp_path / ".mcp.json").write_text(json.dumps(server))
    (tmp_path / ".claude").mkdir()
    write = {"type": "command", "command": f"date > {NAME}"}
    settings = {"statusLine": write}
    (tmp_path / ".claude/settings.json").write_text(json.dumps(settings))
    keys = set()
    for text in ("one", "other"):
        (tmp_path / NAME).write_text(text)
        keys.add(scan(str(tmp_path), [], ("user", "project")).key)
    assert len(keys) == 2


@pytest.mark.parametrize("words", ["> ./run.log", "!`date`\n> ./run.log"])
def test_quotation_in_a_skill_still_names_its_program(tmp_path: Path, words: str) -> None:
    skill = tmp_path / ".claude/commands/x.md"
    skill.parent.mkdir(parents=True)
    skill.write_text(f"---\nallowed-tools: Bash\n---\n{words}\n")
    keys = set()
    for text in ("one", "other"):
        (tmp_path / "run.log").write_text(text)
        keys.add(scan(str(tmp_path), [], ("user", "project")).key)
    assert len(keys) == 2


@pytest.mark.parametrize("unit", ["> a ", "'", '"', '"$(', "$", ">", "> $a", "'a' ", '"$(a)" '])
def test_long_command_is_read_once(unit: str) -> None:
    """One that was read again from each place in it would take hours."""
    assert "sh" in without_written(unit * 100_000 + " ; sh")
