"""Texts of hundreds of thousands of characters, on which the work of a careless regular expression
would take hours.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from pykoclaw_acp.error_kinds import ErrorKind
from pykoclaw_acp.model.failures import TurnFailure
from pykoclaw_acp.transcripts import task_notices
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
}


def refusal(words: str) -> str:
    return login_failures.explained(REFUSED, words, OPTIONS, {"ANTHROPIC_API_KEY": "k"}).message


@pytest.mark.parametrize("work", WORK)
def test_long_texts_cost_no_time(work: str) -> None:
    began = time.thread_time()
    WORK[work]()
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
