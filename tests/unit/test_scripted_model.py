"""The scripted model without the Claude CLI: its language, and how it reads a conversation."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from pykoclaw_acp.scripted_model import limits
from pykoclaw_acp.scripted_model.answer import FaultCounts, ScriptedAnswer, choose_answer
from pykoclaw_acp.scripted_model.directives import DIRECTIVES, ScriptError
from pykoclaw_acp.scripted_model.environment import offline_environment
from pykoclaw_acp.scripted_model.script import (
    find_blocks,
    find_script,
    parse_script,
)
from pykoclaw_acp.scripted_model.steps import (
    Cut,
    Hang,
    HttpError,
    Limit,
    StopStep,
    StreamError,
    TextStep,
    ThinkingStep,
    ToolStep,
)

DOCUMENT = Path(__file__).parents[2] / "docs" / "scripted-model.md"


def user(*texts: str) -> dict[str, Any]:
    return {"role": "user", "content": [{"type": "text", "text": text} for text in texts]}


def called(identifier: str, name: str = "Bash") -> dict[str, Any]:
    return {
        "role": "assistant",
        "content": [{"type": "tool_use", "id": identifier, "name": name, "input": {}}],
    }


def result(identifier: str, text: str = "ok", *texts: str) -> dict[str, Any]:
    block = {"type": "tool_result", "tool_use_id": identifier, "content": text}
    return {"role": "user", "content": [block, *user(*texts)["content"]]}


def said(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": [{"type": "text", "text": text}]}


def body(*messages: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {
        "model": "claude-test",
        "max_tokens": 1000,
        "tools": [{"name": "Bash"}],
        "messages": list(messages),
        **more,
    }


def answer(
    request: dict[str, Any], faults: FaultCounts | None = None, session: str = "s"
) -> ScriptedAnswer:
    return choose_answer(request, faults or FaultCounts(), session=session, from_cli=True)


def answered_text(request: dict[str, Any]) -> str:
    steps = answer(request).steps
    return "\n".join("".join(step.deltas) for step in steps if isinstance(step, TextStep))


class TestLanguage:
    def test_response_ends_at_tool_call_unless_next_joins(self) -> None:
        responses = parse_script("text a\nbash one\n& read f\nbash two\ntext b")
        assert [[type(step) for step in response] for response in responses] == [
            [TextStep, ToolStep, ToolStep],
            [ToolStep],
            [TextStep],
        ]

    def test_a_response_ends_at_stop(self) -> None:
        assert parse_script("text a\nstop max_tokens\ntext b") == (
            (TextStep(("a",)), StopStep("max_tokens")),
            (TextStep(("b",)),),
        )

    def test_text_is_one_delta_and_words_are_paced(self) -> None:
        assert parse_script("text a  b") == ((TextStep(("a  b",)),),)
        assert parse_script("words 20ms a bc d") == ((TextStep(("a ", "bc ", "d"), 0.02),),)
        assert parse_script("repeat 3x1.5s no {n}") == (
            (TextStep(("no 1 ", "no 2 ", "no 3"), 1.5),),
        )

    @pytest.mark.parametrize(
        ("line", "name", "fields"),
        [
            ("bash echo a => b <<< c", "Bash", {"command": "echo a => b <<< c"}),
            ("background sleep 3", "Bash", {"command": "sleep 3", "run_in_background": True}),
            ("read a b.txt", "Read", {"file_path": "a b.txt"}),
            (r"write a b.txt <<< x\ny\\n", "Write", {"file_path": "a b.txt", "content": "x\ny\\n"}),
            ("write a.txt <<<", "Write", {"file_path": "a.txt", "content": ""}),
            (
                "edit f <<< a b => c",
                "Edit",
                {"file_path": "f", "old_string": "a b", "new_string": "c"},
            ),
            ('tool Any {"a": [[1]]}', "Any", {"a": [[1]]}),
        ],
    )
    def test_tool_steps_become_tool_calls(
        self, line: str, name: str, fields: dict[str, Any]
    ) -> None:
        ((step,),) = parse_script(line)
        assert isinstance(step, ToolStep)
        assert step.name == name
        assert fields.items() <= step.input.items()

    def test_faults_and_their_options(self) -> None:
        ((overloaded, limited, failing),) = parse_script(
            "error 529 times=1\nerror 429 retry-after=2\nerror 500 oh no"
        )
        assert overloaded == HttpError(529, "", None, 1)
        assert limited == HttpError(429, "", 2, None)
        assert failing == HttpError(500, "oh no", None, None)
        assert parse_script("hang\ncut times=2") == ((Hang(None), Cut(2)),)
        assert parse_script("hang 2m times=1\nstream-error api_error bad") == (
            (Hang(120.0, 1), StreamError("api_error", "bad")),
        )

    @pytest.mark.parametrize(
        ("script", "reason"),
        [
            ("text a\nbahs ls", "line 2, “bahs ls”: there is no directive “bahs”"),
            (
                "text a\n\n# b\nerror 500",
                "line 4, “error 500”: an HTTP error comes before anything else",
            ),
            ("error 200", "from 400 to 599"),
            ("words fast a", "“fast” is not a duration"),
            ("repeat 3 a", "repeat 200x10ms TEXT"),
            ("repeat 0x1ms a", "repeat 200x10ms TEXT"),
            ("write a.txt", "write PATH <<< CONTENT"),
            ("edit a.txt <<< b", "edit PATH <<< OLD => NEW"),
            ("tool Any {a}", "the input is not JSON"),
            ("tool Any [1]", "has to be a JSON object"),
            ("& bash ls", "there is none"),
            ("bash ls\n& text a", "before a tool call only"),
            ("stop never", "the reasons are end_turn"),
            ("cut now", "cut times=N"),
            ("cut retry-after=1", "only error takes retry-after"),
            ("stream-error bad", "stream-error TYPE"),
            ("bash", "bash COMMAND"),
        ],
    )
    def test_a_wrong_line_is_named_with_the_reason(self, script: str, reason: str) -> None:
        with pytest.raises(ScriptError, match=re.escape(reason)):
            parse_script(script)

    @pytest.mark.parametrize(
        ("text", "script"),
        [
            ("no script, but [[brackets]]", None),
            ("say [[script text a ;; bash b;;text c]] please", "text a\nbash b\ntext c"),
            ("<user_request>[[script text a]]</user_request>\nmore", "text a"),
            ("<user_request>\n[[script\ntext a\n]]\n</user_request>", "\ntext a\n"),
            ("[[script text old]]\n[[script text new]]", "text new"),
            (
                '[[script\ntool A {"p": "[[script text in]]"}\ntext [[x]]\n]]',
                '\ntool A {"p": "[[script text in]]"}\ntext [[x]]\n',
            ),
            ("[[script text [[x]]]]", "text [[x]]"),
        ],
    )
    def test_the_block_is_found(self, text: str, script: str | None) -> None:
        assert find_script(text) == script

    def test_unclosed_block_is_reported(self) -> None:
        assert "not closed" in answered_text(body(user("[[script\ntext a")))


class TestDocument:
    def test_every_example_can_be_played(self) -> None:
        fences = re.findall(r"^```(\w*)\n(.*?)^```", DOCUMENT.read_text(), re.DOTALL | re.MULTILINE)
        scripts = [
            block.script
            for language, fence in fences
            if not language
            for block in find_blocks(fence)
        ]
        assert len(scripts) >= 15
        names = set()
        for script in scripts:
            assert script is not None
            assert parse_script(script)
            names |= {line.strip().split(" ")[0] for line in script.splitlines() if line.strip()}
        assert names == {line.split(" ")[0] for line in DIRECTIVES.splitlines()}

    def test_document_shows_directive_list_of_wrong_script_answer(self) -> None:
        assert DIRECTIVES in DOCUMENT.read_text()
        assert DIRECTIVES in answered_text(body(user("[[script bahs]]")))


class TestPosition:
    script = "[[script\nthinking t\nbash one\nbash two\ntext end\n]]"

    @pytest.mark.parametrize(
        ("later", "expected"),
        [
            ([], [ThinkingStep, ToolStep]),
            ([called("1"), result("1")], [ToolStep]),
            ([called("1"), result("1"), called("2"), result("2")], [TextStep]),
        ],
    )
    def test_it_is_read_from_the_request(
        self, later: list[dict[str, Any]], expected: list[type]
    ) -> None:
        earlier = [user("[[script bash x]]"), called("0"), result("0"), said("done")]
        assert [
            type(step) for step in answer(body(*earlier, user(self.script), *later)).steps
        ] == expected

    def test_a_response_in_several_messages_counts_once(self) -> None:
        assert (
            answered_text(
                body(user("[[script bash one ;; text end]]"), said("a"), called("1"), result("1"))
            )
            == "end"
        )

    def test_a_finished_script_says_so(self) -> None:
        messages = user("[[script bash one]]"), called("1"), result("1")
        assert "no more steps" in answered_text(body(*messages))

    @pytest.mark.parametrize(
        "text",
        [
            "<system-reminder>\n[SYSTEM NOTIFICATION - NOT USER INPUT]\nended\n</system-reminder>",
            "Output token limit hit. Resume directly",
            "Continue from where you left off.",
        ],
    )
    def test_script_continues_after_text_written_by_cli(self, text: str) -> None:
        request = body(
            user("[[script text one ;; stop end_turn ;; text two]]"), said("one"), user(text)
        )
        assert answered_text(request) == "two"
        assert len(answer(request).conversation.prompts) == 1

    def test_new_prompt_without_script_does_not_replay_old(self) -> None:
        request = body(
            user("[[script text one ;; stop end_turn ;; text two]]"), said("one"), user("and now?")
        )
        assert "“and now?”" in answered_text(request)

    def test_prompts_that_the_cli_merged_are_told_apart(self) -> None:
        failed = user(
            "<system-reminder>x</system-reminder>\n", "[[script error 529]]\n", "are you back?"
        )
        interrupted = result(
            "1", "rejected", "[Request interrupted by user for tool use]\n", "go on"
        )
        request = body(failed, called("1"), interrupted)
        assert [prompt.text for prompt in answer(request).conversation.prompts] == [
            "[[script error 529]]",
            "are you back?",
            "go on",
        ]
        assert "“go on”. That is message 3" in answered_text(request)

    def test_the_blocks_of_one_prompt_belong_together(self) -> None:
        request = body(user("[[script text from the first block]]", "a linked file"))
        assert answered_text(request) == "from the first block"

    def test_a_prompt_sent_during_a_turn(self) -> None:
        def folded(*texts: str) -> dict[str, Any]:
            note = "\n\nThis is how Claude Code surfaces messages the user sends mid-turn"
            head = "The user sent a new message while you were working:\n"
            said = "\n\n".join(head + text + note for text in texts)
            return {"role": "system", "content": [{"type": "text", "text": said}]}

        before = user("[[script bash one ;; text original]]"), called("1"), result("1")
        plain = body(*before, folded("hurry\n\nup"))
        assert answered_text(plain) == "original"
        assert answer(plain).conversation.prompts[-1].text == "hurry\n\nup"
        assert answered_text(body(*before, folded("[[script text other]]"))) == "other"
        both = answer(body(*before, folded("first", "second\n\nhalf"))).conversation
        assert [one.text for one in both.prompts[-2:]] == ["first", "second\n\nhalf"]
        assert [one.text for one in both.messages[-2:]] == ["first", "second\n\nhalf"]
        beside = result("1")
        beside["content"] += [*folded("first")["content"], *folded("second")["content"]]
        request = body(*before[:-1], beside)
        assert answered_text(request) == "original", "as the CLI 2.1.332 sends them"
        assert [one.text for one in answer(request).conversation.prompts[-2:]] == [
            "first",
            "second",
        ]


class TestAnswers:
    def test_without_script_echoes_first_line_and_counts_messages(self) -> None:
        framed = "Preamble of a client\n<user_request>\nWhat is new?\nTell me.\n</user_request>"
        request = body(user("Hi"), said("Hello"), {"role": "user", "content": framed})
        assert "“What is new?”. That is message 2" in answered_text(request)
        (step,) = answer(request).steps
        assert isinstance(step, TextStep)
        assert len(step.deltas) >= 3

    def test_report_lists_roles_texts_tools_without_script(self) -> None:
        request = body(
            user("<system-reminder>secret</system-reminder>", "Hi [[script bash ls]]"),
            called("toolu_1"),
            result("toolu_1", "a.txt"),
            said("Done"),
            user("[[script report]]"),
        )
        assert answered_text(request).splitlines() == [
            "This request held 5 messages, 2 from the user:",
            "1. user: Hi [script]",
            "2. assistant: [Bash toolu_1]",
            "3. user: [result of toolu_1] a.txt",
            "4. assistant: Done",
            "5. user: [script]",
        ]

    def test_side_requests_get_valid_answer_and_play_nothing(self) -> None:
        schema = {
            "type": "object",
            "properties": {"title": {"type": "string"}},
            "required": ["title"],
        }
        title = body(
            user("<session>\n[[script error 500]]\n</session>"),
            output_config={"format": {"schema": schema}},
        )
        del title["tools"]
        probe = body(user("[[script error 500]]"), max_tokens=1)
        compaction = body(
            user("Buy milk [[script text a]]"),
            said("a"),
            user("CRITICAL: Respond with TEXT ONLY. …"),
        )
        merged = body(user("[[script error 500]]\n", "CRITICAL: Respond with TEXT ONLY. …"))
        assert {answer(request).kind for request in (title, probe, compaction, merged)} == {"side"}
        assert isinstance(json.loads(answered_text(title))["title"], str)
        assert answer(probe).steps[-1] == StopStep("max_tokens")
        assert "1. Buy milk [script]" in answered_text(compaction)

    def test_a_request_by_hand_needs_no_tools(self) -> None:
        request = body(user("[[script text a]]"))
        del request["tools"]
        by_hand = choose_answer(request, FaultCounts(), session="", from_cli=False)
        assert (by_hand.kind, by_hand.steps) == ("main", (TextStep(("a",)),))

    def test_limited_faults_are_counted_per_prompt_and_session(self) -> None:
        faults = FaultCounts()
        request = body(
            user(
                "[[script error 500 times=1 ;; error 529 times=1 ;; hang 1s times=3 ;; text fine]]"
            )
        )
        rounds = [answer(request, faults).steps for _ in range(5)]
        assert [step.status for (step,) in rounds[:2] if isinstance(step, HttpError)] == [500, 529]
        assert rounds[2] == (Hang(1.0, 3), TextStep(("fine",)))
        first = HttpError(500, "", None, 1)
        assert answer(request, faults, "another session").steps == (first,)
        again = body(*request["messages"], said("fine"), *request["messages"])
        assert answer(again, faults).steps == (first,)


def test_limits_are_told_and_the_rejecting_one_ends() -> None:
    (steps,) = parse_script(
        "limit rejected resets=9 times=1\nlimit allowed_warning used=92\ntext Hi"
    )
    refused = Limit("rejected", "five_hour", 9, None, 1)
    warned = Limit("allowed_warning", "five_hour", 3600, 92)
    assert steps == (refused, warned, TextStep(("Hi",)))
    faults = FaultCounts()
    assert faults.effective(steps, "key") == (refused,)
    assert faults.effective(steps, "key") == (warned, TextStep(("Hi",)))
    assert limits.headers(refused)["anthropic-ratelimit-unified-status"] == "rejected"
    with pytest.raises(ScriptError, match="write limit"):
        parse_script("limit no")


def test_offline_environment_stays_below_home_and_on_loopback(tmp_path: Path) -> None:
    environment = offline_environment("http://127.0.0.1:1234", tmp_path)
    assert environment["ANTHROPIC_BASE_URL"] == "http://127.0.0.1:1234"
    assert environment["HTTPS_PROXY"].startswith("http://127.0.0.1:")
    paths = [value for value in environment.values() if value.startswith("/")]
    assert len(paths) >= 3
    assert all(Path(path).is_relative_to(tmp_path) for path in paths)
