"""Texts of hundreds of thousands of characters, on which the work of a careless regular expression
would take hours.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from pykoclaw_acp.commands import markdown as export
from pykoclaw_acp.doctor import claude
from pykoclaw_acp.error_kinds import ErrorKind
from pykoclaw_acp.model.failures import TurnFailure
from pykoclaw_acp.system import dotenv
from pykoclaw_acp.transcripts import entries, task_notices
from pykoclaw_acp.trust import markdown
from pykoclaw_acp.worker import login_failures, server_report
from tests.workers import OPTIONS

N = 300_000
REFUSED = TurnFailure(ErrorKind.AUTHENTICATION_FAILED, "refused", status=401)

WORK: dict[str, Callable[[], object]] = {
    "a refusal of one word": lambda: refusal(f"API Error: 401 No {'.' * N}"),
    "a refusal of white space": lambda: refusal(f"API Error: 401 No {' ' * N}x"),
    "a command with white space": lambda: server_report.asked(f"/mcp enable a{' ' * N}b"),
    "white space before a command": lambda: server_report.asked(f"{' ' * N}/mcpx"),
    "a notice without an end": lambda: task_notices.read(f"<tool-use-id>{' ' * N}"),
    "notices without an end": lambda: task_notices.read("<result><status><summary>" * (N // 25)),
    "a command without a name": lambda: entries.command(f"<command-name>{' ' * N}"),
    "arguments without an end": lambda: entries.command(
        f"<command-name>/x</command-name>{'<command-args>' * (N // 14)}"
    ),
    "a skill that opens braces": lambda: markdown.acting(b"${" * (N // 2)),
    "a skill that closes no command": lambda: markdown.acting(b"%b}x`" % (b"${" * (N // 2))),
    "output of backticks": lambda: exported("`" * N),
}
FILES: dict[str, str] = {
    "variables without an end": "A=" + "${" * (N // 2),
    "variables with another end": "A=" + "${" * (N // 2) + ":x}",
    "white space": f"A=x{' ' * N}x",
    "assignments": "A=${B}\n" * (N // 7),
    "a quote without an end": "A='" + "\\'\n" * (N // 3),
}


def exported(output: str) -> str:
    """The page of a conversation with a call that has this output."""
    content = [{"type": "content", "content": {"type": "text", "text": output}}]
    call = {"sessionUpdate": "tool_call", "toolCallId": "t", "title": "Bash", "content": content}
    summary = {
        "id": "s",
        "conversation": "c",
        "title": "T",
        "cwd": "/",
        "createdAt": 0,
        "updatedAt": 0,
    }
    return "".join(export.markdown({"summary": summary}, [call]))


def refusal(words: str) -> str:
    return login_failures.explained(REFUSED, words, OPTIONS, {"ANTHROPIC_API_KEY": "k"}).message


@pytest.mark.parametrize("work", WORK)
def test_long_texts_cost_no_time(work: str) -> None:
    began = time.thread_time()
    WORK[work]()
    assert time.thread_time() - began < 5


@pytest.mark.parametrize("file", FILES)
def test_long_env_files_cost_no_time(file: str, tmp_path: Path) -> None:
    path = tmp_path / ".env"
    path.write_text(FILES[file])
    began = time.thread_time()
    assert dotenv.read(str(path)).keys() <= {"A"}
    assert time.thread_time() - began < 5


def test_env_variables_cannot_multiply_without_limit(tmp_path: Path) -> None:
    path = tmp_path / ".env"
    path.write_text("A=word\n" + "A=${A}${A}\n" * 60)
    with pytest.raises(OSError, match="its variables stand for more than 1 MiB"):
        dotenv.read(str(path))
    path.write_text("A=word\n" + "A=${A}${A}\n" * 10)
    assert dotenv.read(str(path)) == {"A": "word" * 1024}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"a": "//", /* b */ "b": [1, ], } // c', {"a": "//", "b": [1]}),
        ('{"a": 1} /* no end', None),
        ('{"a": "no end}', None),
        ('{"a": 1, ' + '"' + '\\"' * N, None),
        ("/*" * N, None),
    ],
)
def test_json_with_comments_is_read(text: str, value: object, tmp_path: Path) -> None:
    path = tmp_path / "settings.json"
    path.write_text(text)
    began = time.thread_time()
    assert claude.read_json(path) == value
    assert time.thread_time() - began < 5


def test_keys_in_refusal_are_not_repeated() -> None:
    told = refusal(f"API Error: 401 Not sk-ant-1, not {'k' * 24}. Why?")
    assert told.endswith("“Not … not … Why?”")


@pytest.mark.parametrize(
    ("words", "asked"),
    [
        (" /mcp\n", (None, "all")),
        ("/mcp reconnect", ("reconnect", "all")),
        ("/mcp  enable  my server ", ("enable", "my server")),
        ("/mcp enable a\nb", None),
        ("/mcp list", None),
        ("/mcpx", None),
    ],
)
def test_command_about_servers_is_recognised(words: str, asked: object) -> None:
    assert server_report.asked(words) == asked


def test_notice_of_task_is_read() -> None:
    text = (
        "<task-notification>\n<tool-use-id> toolu_1 </tool-use-id>\n<status>failed</status>\n<summary>Short</summary>\n"
        "<result>All </result> of it</result>\n<usage><tool_uses>3</tool_uses></usage>\n</task-notification>"
    )
    call, end = task_notices.read(text)
    assert (call, end.status, end.summary, end.usage) == (
        "toolu_1",
        "failed",
        "All </result> of it",
        {"tool_uses": 3},
    )
