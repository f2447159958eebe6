"""What happens beside Claude's answer, from the frames that the CLI was seen to send."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from typing import Any

import pytest
from claude_agent_sdk import (
    AssistantMessage,
    ConversationResetMessage,
    RateLimitEvent,
    ResultMessage,
    StreamEvent,
    SystemMessage,
    TextBlock,
    UserMessage,
)
from claude_agent_sdk.types import RateLimitInfo

from pykoclaw_acp.error_kinds import ErrorKind
from pykoclaw_acp.model.events import (
    BLOCKED,
    Event,
    Plan,
    PlanEntry,
    Text,
    Thinking,
    TitleChanged,
    ToolEnded,
    ToolProgressed,
    ToolStarted,
    Usage,
)
from pykoclaw_acp.model.failures import TurnFailure
from pykoclaw_acp.protocol.presentation import Presentation, update
from pykoclaw_acp.translation.local_commands import SYNTHETIC
from pykoclaw_acp.translation.plan import TaskList
from pykoclaw_acp.worker.context_usage import ContextUsage
from pykoclaw_acp.worker.failures import turn_failure
from pykoclaw_acp.worker.limits import Limits
from pykoclaw_acp.worker.retries import Retries
from pykoclaw_acp.worker.side_events import SideEvents
from pykoclaw_acp.worker.translate import Translator
from tests.unit.sdk_messages import block, delta, result, start, whole

UNTOLD = "Claude was not given the prompt: change it, and send it again."
NOON = 1_795_348_800  # 2026-11-22 12:00 UTC


def system(subtype: str, **data: Any) -> SystemMessage:
    return SystemMessage(subtype=subtype, data={"type": "system", "subtype": subtype, **data})


def retry(attempt: int, status: int | None = 529, delay: int = 1234) -> SystemMessage:
    return system(
        "api_retry", attempt=attempt, max_retries=3, retry_delay_ms=delay, error_status=status
    )


def boundary(trigger: str = "manual", **data: Any) -> SystemMessage:
    given = {"trigger": trigger, "pre_tokens": 10040, "post_tokens": 2672, **data}
    return system("compact_boundary", compact_metadata=given)


def own(text: str, uuid: str = "w") -> AssistantMessage:
    return AssistantMessage([TextBlock(text)], model=SYNTHETIC, message_id="m", uuid=uuid)


def titles(events: list[Event]) -> list[str | None]:
    return [
        one.title for one in events if isinstance(one, ToolStarted | ToolProgressed | ToolEnded)
    ]


def ids(events: list[Event]) -> set[str]:
    return {
        one.tool_call_id
        for one in events
        if isinstance(one, ToolStarted | ToolProgressed | ToolEnded)
    }


def texts(events: list[Event]) -> list[str]:
    return [one.text.strip() for one in events if isinstance(one, Text)]


def run(*messages: Any, ended: ResultMessage | None = None) -> list[Event]:
    translator = Translator("/work")
    translator.begin_turn()
    events = [event for message in messages for event in translator.events(message)]
    return events if ended is None else [*events, *translator.end_turn(ended)]


class TestRetries:
    def test_one_line_counts_retries_until_answer_settles_it(self) -> None:
        events = run(retry(1), retry(2), start("m"), block(0, "text"), delta(0, "There."))
        assert titles(events)[:2] == [
            "Claude is overloaded; asking again in 2 s (1 of 3)",
            "Claude is overloaded; asking again in 2 s (2 of 3)",
        ]
        assert isinstance(events[2], ToolEnded)
        assert events[2].status == "completed"
        assert "was overloaded; it answered after 1 s (2 retries)" in str(events[2].title)
        assert len(ids(events)) == 1
        assert texts(events) == ["There."]

    def test_retry_fails_with_turn_and_next_is_another(self) -> None:
        translator = Translator("/work")
        events = translator.events(retry(1, 429, 3170))
        events += translator.end_turn(result(is_error=True, api_error_status=429))
        assert titles(events)[0] == "Claude's rate limit is reached; asking again in 4 s (1 of 3)"
        assert isinstance(events[1], ToolEnded)
        assert events[1].status == "failed"
        failure = TurnFailure(ErrorKind.RATE_LIMIT, "Wait.", 429)
        assert translator.side_events.explain(failure).retry_after == 4
        assert translator.side_events.explain(failure).retry_after is None
        assert not ids(events) & ids(translator.events(retry(1, None)))

    @pytest.mark.parametrize(
        ("attempts", "passed", "said"),
        [
            (1, 1, "Claude was overloaded; stopped before a retry"),
            (1, 3, "Claude was overloaded; stopped after 3 s (1 retry)"),
            (2, 1, "Claude was overloaded; stopped after 1 s (1 retry)"),
            (3, 1, "Claude was overloaded; stopped after 1 s (2 retries)"),
        ],
    )
    def test_a_cancel_prevents_the_retry_that_was_announced(
        self, attempts: int, passed: float, said: str
    ) -> None:
        now = [0.0]
        side_events = SideEvents()
        side_events.retries = Retries(lambda: now[0])
        for attempt in range(attempts):
            side_events.follow(retry(attempt + 1, delay=2000))
        now[0] = passed
        cancelled = result(
            subtype="error_during_execution", is_error=True, terminal_reason="aborted_streaming"
        )
        (ended,) = (one for one in side_events.ended(cancelled) if isinstance(one, ToolEnded))
        assert (ended.status, ended.title) == ("failed", said)

    def test_uncounted_retries_of_cli_are_counted(self) -> None:
        """CLI 2.1.327 says “1” at each of those after a 403 of a revoked token. One that waits for
        long says so several times.
        """
        now = [0.0]
        retries = Retries(lambda: now[0])
        events = []
        for now[0], delay in ((0.0, 600), (0.7, 600), (0.8, 500), (1.4, 600), (2.1, 600)):
            events += retries.follow(retry(1, 403, delay))
        said = "Claude refused the credential; asking again in 1 s"
        assert titles(events) == [
            f"{said} (1 of 3)",
            *[f"{said} (2 of 3)"] * 2,
            f"{said} (3 of 3)",
            f"{said} (retry 4)",
        ]
        (ended,) = retries.end(answered=False)
        assert "no answer after 3 s (4 retries)" in str(titles([ended])[0])

    @pytest.mark.parametrize("status", [401, 403])
    def test_refused_credential_is_no_service_error(self, status: int) -> None:
        events = run(retry(1, status, 1000), ended=result(is_error=True, api_error_status=status))
        assert titles(events)[0] == "Claude refused the credential; asking again in 1 s (1 of 3)"
        assert str(titles(events)[1]).startswith("Claude refused the credential; no answer after")

    def test_lost_connection_differs_from_one_never_made(self) -> None:
        begun = StreamEvent("u", "s", {"type": "message_start", "message": {"id": "m"}}, None)
        over = StreamEvent(
            "u", "s", {"type": "message_delta", "delta": {"stop_reason": "end_turn"}}, None
        )
        assert "connection to Claude was lost" in str(titles(run(begun, retry(1, None)))[0])
        for before in ([], [begun, over], [begun, retry(1, None)]):
            said = str(titles(run(*before, retry(2, None)))[-1])
            assert said.startswith("Claude's service c")
            assert "be reached" in said


class TestCompaction:
    def test_it_begins_and_ends_with_its_tokens(self) -> None:
        translator = Translator("/work")
        translator.side_events.usage.learn("x", 200_000)
        events = [
            *translator.events(system("status", status="compacting")),
            *translator.events(system("status", status="compacting", compact_output_chars=9)),
            *translator.events(system("status", status=None, compact_result="success")),
            *translator.events(boundary(duration_ms=12_300)),
        ]
        assert titles(events) == [
            "Compacting the conversation",
            "Compacted the conversation in 12 s: 10,040 tokens before, 2,672 after",
        ]
        assert events[-1] == Usage(2672, 200_000)

    def test_one_that_failed_says_why(self) -> None:
        failed = system("status", compact_result="failed", compact_error="too_few_groups")
        events = run(system("status", status="compacting"), failed, boundary("auto"))
        assert isinstance(events[1], ToolEnded)
        assert events[1].status == "failed"
        assert "too little" in str(events[1].title)
        assert str(titles(events)[-1]).startswith("Compacted the conversation automatically: ")

    @pytest.mark.parametrize(
        ("given", "why"),
        [
            ("media_unstrippable", "its images or documents are too large to summarize"),
            ("Compaction failed · it could not be reduced", "it could not be reduced"),
            ("API Error: 529 http://10.0.0.1:4130/ is full", "… is full"),
            ("error", "Claude's service did not make a summary"),
            (None, "Claude's service did not make a summary"),
        ],
    )
    def test_failure_has_reason_that_cli_gives(self, given: str | None, why: str) -> None:
        failed = system("status", compact_result="failed", compact_error=given)
        events = run(system("status", status="compacting"), failed)
        assert titles(events)[-1] == f"The conversation was not compacted: {why}"

    def test_one_that_a_hook_forbids_says_so_once(self) -> None:
        words = f"Compaction blocked by PreCompact hook: [{'x' * 400}]: no"
        failed = system("status", compact_result="failed", compact_error=f"skipped: {words}")
        events = run(system("status", status="compacting"), failed, own(words))
        assert str(titles(events)[-1]).startswith(
            "The conversation was not compacted: Compaction blocked by PreCompact hook"
        )
        assert texts(events) == []

    def test_title_has_nothing_a_terminal_would_obey(self) -> None:
        """The CLI repeats the reason without it, and that is the same reason."""
        words = (
            "skipped: Compaction blocked by PreCompact hook: [h]: \x1b[31mred\x1b[0m \0 \u202enul"
        )
        failed = system("status", compact_result="failed", compact_error=words)
        again = own("Compaction blocked by PreCompact hook: [h]: red  \u202enul")
        events = run(system("status", status="compacting"), failed, again)
        assert str(titles(events)[-1]).endswith(": [h]: red \\u202enul")
        assert texts(events) == []

    def test_one_that_was_interrupted_has_failed(self) -> None:
        events = run(system("status", status="compacting"), ended=result(is_error=True))
        assert [one.status for one in events if isinstance(one, ToolEnded)] == ["failed"]

    def test_what_claude_keeps_is_not_shown_again(self) -> None:
        kept = boundary(preserved_messages={"uuids": ["a", "b"]})
        events = run(own("## Context", "b"), kept, own("## Context", "b"), own("New", "c"))
        assert texts(events) == ["## Context", "New"]


class TestLocalCommands:
    def test_columns_stay_columns_and_markdown_stays(self) -> None:
        columns = "Estimated cost:        $0.0397\nUsage by model:\n     claude:  9.9k input"
        assert texts(run(own(columns))) == [f"```\n{columns}\n```"]
        for same in ("## Context\n\n| a    | b |", "Session renamed to: X", "One\nTwo"):
            assert texts(run(own(same))) == [same]

    def test_only_rename_is_sessions_title(self) -> None:
        told = system("session_title_changed", title="Mine")
        assert TitleChanged("Mine") in run(told, own("Session renamed to: Mine"))
        assert TitleChanged("Mine") not in run(told, own("Something else"))
        told = system("session_title_changed", title="\x1b[31mMine")
        assert TitleChanged("\\x1b[31mMine") in run(told, own("Session renamed to: \x1b[31mMine"))

    def test_clear_says_that_the_memory_is_gone(self) -> None:
        reset = ConversationResetMessage(new_conversation_id="n", uuid="u", session_id="s")
        assert "memory of this conversation is cleared" in texts(run(reset))[0]

    def test_clear_empties_the_task_list(self) -> None:
        reset = ConversationResetMessage(new_conversation_id="n", uuid="u", session_id="s")
        translator = Translator("/work")
        translator.tasks = TaskList.of((PlanEntry("First", "pending", "1"),))
        assert Plan(()) in translator.events(reset)
        assert Plan(()) not in translator.events(reset)


class TestUsage:
    def test_usage_is_told_at_once_then_each_second(self) -> None:
        now = [0.0]
        usage = ContextUsage(lambda: now[0])
        usage.learn("m", 1000)
        assert usage.requested("m", {"input_tokens": 10, "cache_read_input_tokens": 5}) == [
            Usage(15, 1000)
        ]
        assert usage.answered({"output_tokens": 3}) == []
        now[0] = 1.0
        assert usage.due() == [Usage(18, 1000)]
        now[0] = 2.0
        assert usage.due() == []
        models = {"m": {"contextWindow": 1000}, "small": {"contextWindow": 5000}}
        assert usage.ended(models, 0.5) == [Usage(18, 1000, 0.5)]

    def test_service_tells_input_with_its_answer(self) -> None:
        now = [0.0]
        usage = ContextUsage(lambda: now[0])
        usage.learn("m", 200_000)
        usage.requested("m", {"input_tokens": 0, "output_tokens": 0})
        now[0] = 2.0
        assert usage.answered({"input_tokens": 90_000, "output_tokens": 300}) == [
            Usage(90_300, 200_000)
        ]
        now[0] = 4.0
        assert usage.answered({"input_tokens": 0, "output_tokens": 700}) == [Usage(90_700, 200_000)]

    def test_unknown_window_is_asked_for_and_told_later(self) -> None:
        now, asked = [0.0], list[int]()
        usage = ContextUsage(lambda: now[0])
        usage.ask = lambda: asked.append(1)
        assert usage.requested("m", {"input_tokens": 10}) == []
        assert asked == [1]
        usage.learn("m", 1000)
        assert usage.due() == [Usage(10, 1000)]

    def test_a_subagents_requests_do_not_count(self) -> None:
        translator = Translator("/work")
        translator.side_events.usage.learn("x", 1000)
        begun = start("m", 700)
        begun.parent_tool_use_id = "t"
        assert translator.events(begun) == []


class TestLines:
    @pytest.mark.parametrize(
        ("data", "told"),
        [
            ({"exit_code": 2, "outcome": "error", "stderr": "no\n"}, "blocked this** (`Pre:Bash`): no"),
            ({"exit_code": 1, "outcome": "error", "stderr": "oops"}, "failed** (`Pre:Bash`, exit status 1): oops"),
            ({"exit_code": 0, "outcome": "success", "stdout": json.dumps(
                {"hookSpecificOutput": {"permissionDecision": "deny", "permissionDecisionReason": "no"}}
            )}, "blocked this** (`Pre:Bash`): no"),
            ({"exit_code": 0, "outcome": "success", "stdout": json.dumps({"decision": "block", "reason": "r"})},
             "blocked this** (`Pre:Bash`): r"),
        ],
    )  # fmt: skip
    def test_hook_that_blocked_or_failed_is_told(self, data: dict[str, Any], told: str) -> None:
        (said,) = texts(run(system("hook_response", hook_name="Pre:Bash", **data)))
        assert told in said

    @pytest.mark.parametrize(
        ("hook", "data", "told"),
        [
            ("SessionStart:startup", {"exit_code": 2, "stderr": "no"},
             "**A hook failed** (`SessionStart:startup`, exit status 2): no"),
            ("SessionStart:startup", {"exit_code": 0, "stdout": json.dumps({"continue": False, "stopReason": "no"})},
             "**A hook failed** (`SessionStart:startup`, which can stop nothing): no"),
            ("Notification", {"exit_code": 0, "stdout": json.dumps({"decision": "block", "reason": "no"})},
             "**A hook failed** (`Notification`, which can stop nothing): no"),
            ("StopFailure", {"exit_code": 2, "outcome": "error", "stderr": "no"},
             "**A hook failed** (`StopFailure`, exit status 2): no"),
            ("PostToolUse:Bash", {"exit_code": 2, "stderr": "no"}, "**A hook objected** (`PostToolUse:Bash`): no"),
            ("PostToolUse:Bash", {"exit_code": 0, "stdout": json.dumps({"continue": False, "stopReason": "no"})},
             "**A hook stopped Claude** (`PostToolUse:Bash`): no"),
            ("SubagentStop", {"exit_code": 2, "stderr": "no"}, "**A hook made Claude continue** (`SubagentStop`): no"),
        ],
    )  # fmt: skip
    def test_a_hook_blocks_only_what_it_can(
        self, hook: str, data: dict[str, Any], told: str
    ) -> None:
        responded = system("hook_response", hook_name=hook, **data)
        assert texts(run(responded)) == [told]

    def test_hook_that_asks_a_model_is_told_too(self) -> None:
        """The CLI reports none, as that of `/goal`: only what it tells Claude; of others, both."""
        reported = system("hook_response", hook_name="Stop", exit_code=2, stderr="lint\nfails\n")
        given = json.dumps({"decision": "block", "reason": "no  tests"})
        as_json = system("hook_response", hook_name="Stop", exit_code=0, stdout=given)
        translator = Translator("/work")
        said: list[Event] = []
        for message in (
            *(
                reported,
                as_json,
                "[make test]: works not",
                "[make lint]: lint\nfails\n",
                "no  tests",
            ),
            "[make test]: works not",
        ):
            if isinstance(message, str):
                fed_back = UserMessage([TextBlock(f"Stop hook feedback:\n{message}")])
                said += translator.events(fed_back, {"isSynthetic": True})
                said += translator.events(fed_back)  # as words of the user's
            else:
                said += translator.events(message)
        sent_on = "**A hook made Claude continue** (`Stop`): "
        goal = f"{sent_on}[make test]: works not"
        assert texts(said) == [f"{sent_on}lint fails", f"{sent_on}no tests", goal, goal]

    def test_call_that_hook_blocked_says_so_itself(self) -> None:
        assert run(system("hook_response", hook_name="PreToolUse:Bash", exit_code=2)) == []

    def test_hook_ending_turn_at_call_says_why(self) -> None:
        """The call says nothing of it: it has run."""
        halt = json.dumps({"continue": False, "stopReason": "enough"})
        events = run(system("hook_response", hook_name="PreToolUse:Bash", exit_code=0, stdout=halt))
        assert texts(events) == ["**A hook stopped Claude** (`PreToolUse:Bash`): enough"]

    def test_failing_hook_is_told_once_and_working_never(self) -> None:
        failed = system("hook_response", hook_name="Post", exit_code=1, outcome="error", stderr="x")
        fine = system(
            "hook_response", hook_name="Post", exit_code=0, outcome="success", stdout="ok"
        )
        assert len(texts(run(failed, fine, failed))) == 1

    @pytest.mark.parametrize(
        ("response", "kind", "told"),
        [
            ({"exit_code": 2, "stderr": "no"}, "blocked_by_hook", "blocked this"),
            ({"exit_code": 0, "stdout": json.dumps({"continue": False, "stopReason": "no"})},
             "stopped_by_hook", "stopped Claude"),
        ],
    )  # fmt: skip
    def test_prompt_that_hook_blocked_takes_one_line(
        self, response: dict[str, Any], kind: str, told: str
    ) -> None:
        blocked = system("hook_response", hook_name="UserPromptSubmit", **response)
        informed = system(
            "informational", content="blocked by hook", level="warning",
            prompt_submit_outcome={"kind": kind},
        )  # fmt: skip
        events = run(blocked, informed, ended=result(result="blocked by hook", num_turns=0))
        assert texts(events) == [f"**A hook {told}** (`UserPromptSubmit`): no. {UNTOLD}"]
        assert all(one.message_id.endswith(BLOCKED) for one in events if isinstance(one, Text))

    @pytest.mark.parametrize(
        ("kind", "told"),
        [("blocked_by_hook", "blocked this"), ("stopped_by_hook", "stopped Claude")],
    )
    def test_prompt_that_unreported_hook_blocked_takes_one_line(self, kind: str, told: str) -> None:
        """The CLI does not report hooks that ask a model."""
        informed = system(
            "informational", content="blocked by hook", level="warning",
            prompt_submit_outcome={"kind": kind, "reason": "no"},
        )  # fmt: skip
        failed = system("hook_response", hook_name="UserPromptSubmit", exit_code=1, outcome="error")
        translator = Translator("/w")
        for before, lines in ((), 1), ((failed,), 2), ((), 1):
            events = [event for one in (*before, informed) for event in translator.events(one)]
            events += translator.end_turn(result(result="blocked by hook", num_turns=0))
            assert texts(events)[-1] == f"**A hook {told}** (`UserPromptSubmit`): no. {UNTOLD}"
            ends = [one.message_id.endswith(BLOCKED) for one in events if isinstance(one, Text)]
            assert ends == [False] * (lines - 1) + [True]
            assert len(texts(events)) == lines

    def test_another_model_and_notices(self) -> None:
        fallback = system(
            "model_fallback", original_model="opus", fallback_model="sonnet", content="Overloaded."
        )
        (said,) = texts(run(fallback))
        assert said == "**Claude goes on with `sonnet`** instead of `opus`: Overloaded."
        assert texts(run(system("informational", level="notice", content="Stop says: hi"))) == [
            "**Notice:** Stop says: hi"
        ]
        assert texts(run(system("informational", level="info", content="hi"))) == []

    def test_notice_is_whole_with_advice_at_end(self) -> None:
        """The one of CLI 2.1.327 for commands in plan mode behind a gateway."""
        told = (
            "Auto mode can't check actions in this session. Its safety check runs on the server, and your requests go"
            " through 127.0.0.1:45457, which doesn't pass it through. Nobody can be asked to approve actions in this"
            " session, so every action that needs the check is refused. To run these actions, use another permission"
            " mode. To use auto mode, ask whoever runs 127.0.0.1:45457 to pass Claude Code's server-side safety check"
            " through: https://code.claude.com/docs/en/permission-modes#server-side-classifier-review"
        )
        (said,) = texts(run(system("informational", level="warning", content=told)))
        assert said == "**Notice:** " + told.replace("127.0.0.1:45457", "the gateway")

    def test_longer_notice_ends_with_sentence_and_mark(self) -> None:
        sentences = "Auto mode can't check actions in this session. " + "So it is. " * 94
        notice = system(
            "informational", level="warning", content=sentences + "To go on, use another mode."
        )
        (said,) = texts(run(notice))
        assert said == f"**Notice:** {sentences}…"

    @pytest.mark.parametrize(
        ("told", "listed"),
        [
            (True, ["{user}: Invalid or malformed JSON"]),
            (True, ["{user} (permissions.allow): Expected array, but received string"]),
            (True, ["{user} (cleanupPeriodDays): Expected number", "{user} (env): Expected record"]),
            (True, ["{user} (hooks.PermissionRequest.0.hooks): Expected array, but received number"]),
            (True, ["{user} (permissions.defaultMode): Invalid option: expected one of \"default\""]),
            (False, ["{user} (permissions.deny): Invalid permission rule \"Bash(rm\" was skipped"]),
            (False, ["{user} (permissions.allow): Non-string value in the array was removed"]),
            (False, ["{user} (hooks.PreToolUse.0.hooks.0.type): Invalid input"]),
            (False, ["{user} (cleanupPeriodDays): Expected number, but received string"]),
            (False, ["{user}: Invalid or malformed JSON", "/w/.claude/settings.json: Invalid or malformed JSON"]),
            (False, []),
        ],
    )  # fmt: skip
    def test_settings_that_daemon_tells_of(
        self, told: bool, listed: list[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Notices of CLI 2.1.332, of which those before have none."""
        monkeypatch.setenv("CLAUDE_CONFIG_DIR", "/home/a/.claude")
        content = "\n".join(
            [
                "These settings did not load, so nothing in them is in effect:",
                *(f"  {one.format(user='/home/a/.claude/settings.json')}" for one in listed),
                "Fix each problem listed, then start Claude Code again.",
            ]
        )
        notice = system(
            "informational", tag="settings_not_in_effect", level="warning", content=content
        )
        assert bool(texts(run(notice))) is not told

    @pytest.mark.parametrize("quiet", [True, False])
    def test_program_reading_answer_gets_no_lines(self, quiet: bool) -> None:
        """Nor those of hooks that ran before it was known who reads it."""
        translator = Translator("/work")
        translator.side_events.quiet = None
        failed = system(
            "hook_response", hook_name="Start", exit_code=1, outcome="error", stderr="x"
        )
        assert translator.events(failed) == []
        translator.side_events.quiet = quiet
        assert len(texts(translator.events(system("init")))) == (0 if quiet else 1)
        other = system("hook_response", hook_name="Post", exit_code=1, outcome="error", stderr="x")
        assert len(texts(translator.events(other))) == (0 if quiet else 1)


@pytest.fixture
def berlin() -> Iterator[None]:
    before = os.environ.get("TZ")
    os.environ["TZ"] = "Europe/Berlin"
    yield
    if before is None:
        del os.environ["TZ"]
    else:
        os.environ["TZ"] = before
    time.tzset()


def limit(status: Any, resets: int = NOON, used: float | None = None) -> RateLimitEvent:
    return RateLimitEvent(RateLimitInfo(status, resets, "five_hour", used), "u", "s")


class TestLimits:
    def test_limits_end_is_in_users_time(self, berlin: None) -> None:
        limits = Limits()
        limits.follow(limit("rejected"))
        found = limits.explained(TurnFailure(ErrorKind.RATE_LIMIT, "Wait.", 429))
        assert (found.kind, found.resets_at, found.retryable) == ("usage_limit", NOON, True)
        assert "5-hour limit is reached" in found.message
        assert "13:00 CET" in found.message

    def test_a_limits_end_is_rounded_up(self, berlin: None) -> None:
        limits = Limits()
        limits.follow(limit("rejected", NOON + 1))
        found = limits.explained(TurnFailure(ErrorKind.RATE_LIMIT, "Wait.", 429))
        assert "13:01 CET" in found.message

    def test_a_rate_limit_of_a_key_is_none(self) -> None:
        failure = TurnFailure(ErrorKind.RATE_LIMIT, "Wait.", 429)
        assert Limits().explained(failure) == failure

    def test_it_warns_once_until_it_is_over(self, berlin: None) -> None:
        limits = Limits()
        near = limit("allowed_warning", used=0.92)
        (said,) = texts(limits.follow(near))
        assert "92 % of Claude's 5-hour limit" in said
        assert limits.follow(near) == []
        limits.follow(limit("allowed"))
        assert len(limits.follow(near)) == 1

    def test_a_second_limit_is_told_at_once(self, berlin: None) -> None:
        """The CLI goes on to name the first one; the shape is that of CLI 2.1.327."""
        limits = Limits()
        week = {"status": "allowed_warning", "utilization": 0.95, "resetsAt": NOON}
        both = {"five_hour": {"status": "allowed_warning", "utilization": 0.92}, "seven_day": week}
        near = limit("allowed_warning", used=0.92)
        assert len(limits.follow(near)) == 1
        near.rate_limit_info.raw["unifiedWindows"] = {"seven_day": week}
        (said,) = texts(limits.follow(near))
        assert "95 % of Claude's weekly limit" in said
        assert "13:00 CET" in said
        near.rate_limit_info.raw["unifiedWindows"] = both
        assert limits.follow(near) == []
        week["status"] = "allowed"
        limits.follow(near)
        week["status"] = "allowed_warning"
        assert len(limits.follow(near)) == 1


class TestErrors:
    def test_no_gateway_no_address_no_number_that_misleads(self) -> None:
        said = (
            "API Error: 529 the gateway http://127.0.0.1:4135/v1 is full. It is usually temporary."
            " If it persists, check your inference gateway (127.0.0.1:36049)."
        )
        failure = turn_failure(result(is_error=True, api_error_status=529), ("server_error", said))
        assert failure.kind == "overloaded"
        assert failure.message.endswith("(the gateway … is full. It is usually temporary.)")


class TestPresentation:
    RICH = Presentation(notices=True, compaction=True)

    def test_waits_are_notices_where_a_client_has_them(self) -> None:
        events = run(retry(1), start("m"))
        first, last = (update(1, one, self.RICH) for one in events)
        assert first is not None
        assert first.live_only
        assert [type(one).__name__ for one in (first, last)] == ["NoticeUpdate", "NoticeUpdate"]
        assert update(1, ToolEnded("retry-1", "failed"), self.RICH) is None

    def test_compactions_are_updates_where_a_client_has_them(self) -> None:
        events = run(boundary())
        shown = [update(1, one, self.RICH) for one in events]
        assert [getattr(one, "status", None) for one in shown] == ["in_progress", "completed"]
        assert {type(one).__name__ for one in shown} == {"CompactionUpdate"}

    def test_thinking_can_be_hidden(self) -> None:
        thought = Thinking("m", "Hm")
        assert update(1, thought, Presentation(thoughts=False)) is None
        assert update(1, thought, Presentation()) is not None


def test_thoughts_and_texts_are_plain_across_divided_sequences() -> None:
    events = run(
        start("m"), block(0, "thinking"), delta(0, "a\x1b[3", "thinking"),
        delta(0, "1mb\x07", "thinking"), block(1, "text"), delta(1, "c\x1b[0md\x00"),
        whole(TextBlock("c\x1b[0md\x00")),
    )  # fmt: skip
    assert "".join(one.text for one in events if isinstance(one, Thinking)) == "ab"
    assert "".join(texts(events)) == "cd"


def test_what_a_command_said_stands_apart() -> None:
    """As of `/goal`, whose confirmation Claude's answer follows."""
    translator = Translator("/work")
    said = ""
    for message in (
        own("Goal set."),
        start("m"),
        block(0, "text"),
        delta(0, "I be"),
        delta(0, "gin."),
    ):
        said += "".join(one.text for one in translator.events(message) if isinstance(one, Text))
    assert said == "Goal set.\n\nI begin."
    translator.end_turn(result())
    translator.begin_turn()
    assert [one.text for one in translator.events(own("Cost.")) if isinstance(one, Text)] == [
        "Cost."
    ]
