"""What people see of the results of tools: the CLI's words for the model are not among it.

The results are those of CLI 2.1.327, as it sent them.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from pykoclaw_acp.model.events import ImagePart, Location, TextPart, ToolPart
from pykoclaw_acp.translation import tools
from pykoclaw_acp.translation.results import MAX_IMAGE, Result, result
from pykoclaw_acp.translation.texts import MAX_SHOWN

REFUSED = (
    "The user doesn't want to proceed with this tool use. The tool use was rejected (eg. if it was a file "
    "edit, the new_string was NOT written to the file). To tell you how to proceed, the user said:\nno, ask"
)  # fmt: skip
NO_GREP = (
    "No such tool available: Grep. Grep is not available in this session — search file contents with `grep` "
    "via the Bash tool instead."
)  # fmt: skip
MISSING = "File does not exist. Note: your current working directory is /tmp/a.b/ours."
NO_CHECK = (
    "Auto mode is unavailable: its safety check does not run for this session, so Write was not run. Other "
    "actions that need the check will be denied too, and retrying won't help. Finish what you can without "
    "them, then tell the user what is blocked and that they can switch to another permission mode."
)  # fmt: skip
DENIED = "Permission to use Bash has been denied because Claude Code is running in don't ask mode."
TRY_OTHERS = (
    f"{DENIED} IMPORTANT: You *may* attempt to accomplish this action using other tools that might naturally be used. "
    "If you believe this capability is essential to complete the user's request, STOP and explain to the user."
)  # fmt: skip
SLEEPS = (
    "Blocked: standalone sleep 30. To wait for a condition, use Monitor with an until-loop (e.g. `until <check>; do "
    "sleep 2; done`). Do not chain shorter sleeps to work around this block."
)  # fmt: skip
SEVERAL = (
    "Found 2 matches of the string to replace, but replace_all is false. To replace all occurrences, set replace_all "
    "to true. To replace only one occurrence, please provide more context to uniquely identify the instance."
    "\nString: row"
)  # fmt: skip
AGENT = (
    "Agent terminated early due to an API error: API Error: 500 Api. This is a server-side issue, usually temporary — "
    "try again in a moment. If it persists, check your inference gateway (gw.example.com:8443). (error type "
    "server_error, HTTP 500, request id req_01, model sent to the API: claude-opus-5-5)"
)  # fmt: skip
SCHEMA = (
    "it broke\n\nThis tool's input schema was not in your prompt when you called it. The input schema is: {}"
)  # fmt: skip
PREVIEW = (
    "<persisted-output>\nOutput too large (106.3KB). Full output saved to: /home/u/.claude/x.txt\n\n"
    "Preview (first 2KB):\n1\n2\n...\n</persisted-output>"
)  # fmt: skip
SEARCHED = (
    'Web search results for query: "w"\n\nSunny.\n\n\nREMINDER: You MUST include the sources above in your '
    "response to the user using markdown hyperlinks."
)  # fmt: skip


def bash(out: str, **more: Any) -> dict[str, Any]:
    return {"stdout": out, "stderr": "", "interrupted": False, "isImage": False, **more}


def words(found: Result) -> str:
    return "\n".join(part.text for part in found.parts if isinstance(part, TextPart))


@pytest.mark.parametrize(
    ("details", "said", "code"),
    [
        (bash("out"), "```\nout\n```", 0),
        (bash("\x1b[31mout\x1b[0m\n", stderr="err"), "```\nout\nerr\n```", 0),
        (bash(""), "", 0),
        (bash("", returnCodeInterpretation="No matches found"), "(No matches found)", None),
        (bash("a", interrupted=True), "```\na\n```\n(interrupted)", None),
        (bash("1\n2", persistedOutputSize=108_894, persistedOutputPath="/x"),
         "```\n1\n2\n```\n(Only the beginning of 106 KiB is shown.)", 0),
    ],
)  # fmt: skip
def test_command_shows_output_and_how_it_ended(
    details: dict[str, Any], said: str, code: int | None
) -> None:
    found = result("Bash", "for the model", failed=False, details=details)
    assert (words(found), found.exit_code) == (said, code)


@pytest.mark.parametrize("details", [None, "Error: Exit code 3\nout\nerr"])
def test_failed_command_has_exit_code_beside_output(details: object) -> None:
    found = result("Bash", "Exit code 3\nout\nerr", failed=True, details=details)
    assert found == Result((TextPart("```\nout\nerr\n```"),), 3)


def test_output_resembling_exit_code_is_output() -> None:
    found = result("Bash", "", failed=False, details=bash("Exit code 3"))
    assert found == Result((TextPart("```\nExit code 3\n```"),), 0)
    read = result("Read", "Exit code 3\nx", failed=True)
    assert (words(read), read.exit_code) == ("```\nExit code 3\nx\n```", None)


@pytest.mark.parametrize("details", [{"stdout": "at 1%\rat 2%\r\nover"}, None])
def test_progress_bar_is_shown_as_it_ended(details: object) -> None:
    assert words(result("Bash", "at 1%\rat 2%\r\nover", failed=False, details=details)) == (
        "```\nat 2%\nover\n```"
    )
    failed = result("Bash", "Exit code 3\nat 1%\rat 2%\nover", failed=True)
    assert words(failed) == "```\nat 2%\nover\n```"


@pytest.mark.parametrize(
    ("name", "blocks", "details", "said"),
    [
        ("Edit", "<tool_use_error>String to replace not found.</tool_use_error>",
         "Error: String to replace not found.", "```\nString to replace not found.\n```"),
        ("Edit", "<tool_use_error>Error: No such tool</tool_use_error>", None, "```\nNo such tool\n```"),
        ("mcp__s__t", SCHEMA, "Error: it broke", "it broke"),
        ("mcp__s__t", SCHEMA, None, "it broke"),
        ("Grep", f"<tool_use_error>Error: {NO_GREP}</tool_use_error>", f"Error: {NO_GREP}",
         "```\nNo such tool available: Grep.\n```"),
        ("Grep", f"<tool_use_error>Error: {NO_GREP}</tool_use_error>", None,
         "```\nNo such tool available: Grep.\n```"),
        ("Read", f"{MISSING}", f"Error: {MISSING}", "```\nFile does not exist.\n```"),
        ("Read", f"{MISSING} Did you mean g.py?", None,
         "```\nFile does not exist. Did you mean g.py?\n```"),
        ("Write", NO_CHECK, f"Error: {NO_CHECK}",
         "```\nAuto mode is unavailable: its safety check does not run for this session, so Write was not run.\n```"),
        ("Bash", f"Exit code 1\n{NO_CHECK}", None, f"```\n{NO_CHECK}\n```"),
        ("mcp__s__t", "No such file. Finish what you can without it.", None,
         "No such file. Finish what you can without it."),
        ("Bash", TRY_OTHERS, f"Error: {TRY_OTHERS}", f"```\n{DENIED}\n```"),
        ("Bash", f"<tool_use_error>{SLEEPS}</tool_use_error>", f"Error: {SLEEPS}",
         "```\nBlocked: standalone sleep 30.\n```"),
        ("Bash", f"Exit code 1\n{SLEEPS}", None, f"```\n{SLEEPS}\n```"),
        ("Edit", SEVERAL, None,
         "```\nFound 2 matches of the string to replace, but replace_all is false.\nString: row\n```"),
        ("Agent", AGENT, f"Error: {AGENT}",
         "The agent ended early because of an error of Claude's service: Api."),
        ("Write", REFUSED, f"Error: {REFUSED}", "Refused: no, ask"),
        ("Write", f"{REFUSED.partition(' To tell')[0]} STOP what you are doing", None,
         "Not run: the turn was stopped."),
        ("Bash", f"{REFUSED[:80]} Correction to the text above: this call was stopped while running, not",
         "User rejected tool use", "Stopped; what it did until then stays."),
        ("Bash", "[Tool call interrupted: the session ended before this call's result was recorded, so", None,
         "Its result is not known: the conversation went on before it had one."),
        ("Agent", "[Agent call interrupted: the process running this conversation stopped before", None,
         "It has no result: its process ended before."),
        ("Bash", "[Tool call did not complete: the turn was ended to deliver the message that follows.", None,
         "Stopped, as the next message came; what it did until then stays."),
        ("Edit", "[Tool call skipped: the turn ended to deliver the message that follows before", None,
         "Not run: the next message came first."),
        ("Edit", "[Tool call skipped: the turn was stopped before this call ran, by the check", None,
         "Not run: the turn was stopped."),
        ("Edit", "[Tool call not completed: an approval request expired with no answer, so the", None,
         "Not run: nobody decided the permission request."),
        ("Bash", "[Request interrupted by user for tool use]", None,
         "Stopped; what it did until then stays."),
    ],
)  # fmt: skip
def test_failure_is_told_without_words_for_the_model(
    name: str, blocks: str, details: object, said: str
) -> None:
    assert words(result(name, blocks, failed=True, details=details)) == said


@pytest.mark.parametrize(
    ("name", "blocks", "said"),
    [
        ("Bash", "(Bash completed with no output)", ""),
        ("Bash", PREVIEW, "```\n1\n2\n```\n(Only the beginning of 106.3KB is shown.)"),
        ("mcp__s__t", PREVIEW, "1\n2\n(Only the beginning of 106.3KB is shown.)"),
        ("mcp__s__t", '{"a_b": [1]}', '```json\n{"a_b": [1]}\n```'),
        ("mcp__s__t", "[Image: source: /home/a/tool-results/mcp-blob-1.png]", ""),
        ("mcp__s__t", "*yes*", "*yes*"),
        ("Read", "     1→a\n     2→b", "```\na\nb\n```"),
        ("Read", "10\ta\n11\tb\n\n<system-reminder>\nBe good.\n</system-reminder>\n", "```\na\nb\n```"),
        ("Read", [{"type": "text", "text": "1\tdef f():\n2\t    return 1\n3\t"}],
         "```\ndef f():\n    return 1\n```"),
        ("Read", "7\n8", "```\n7\n8\n```"),
        ("Read", "1\ta\nnot numbered", "```\n1\ta\nnot numbered\n```"),
        ("LS", "- /w/\n  - a\n\nNOTE: do any of the files above seem malicious? If so, you MUST refuse.",
         "```\n- /w/\n  - a\n```"),
        ("Skill", "Launching skill: greet", ""),
        ("EnterPlanMode", "Entered plan mode. You should now focus on exploring", ""),
        ("ExitPlanMode", "User has approved exiting plan mode. You can now proceed.", ""),
        ("Edit", "The file /a has been updated. (file state is current in your context)", ""),
        ("WebSearch", SEARCHED, "Sunny."),
        ("ToolSearch", [{"type": "tool_reference", "tool_name": "WebFetch"}], ""),
    ],
)  # fmt: skip
def test_result_of_an_older_transcript_is_cleaned(name: str, blocks: object, said: str) -> None:
    assert words(result(name, blocks, failed=False)) == said


@pytest.mark.parametrize(
    ("name", "details", "said"),
    [
        ("Read", {"type": "text", "file": {"content": "a\nb", "startLine": 7}}, "```\na\nb\n```"),
        ("Read", {"type": "text", "file": {"content": ""}}, "(the file is empty)"),
        ("Read", {"type": "text", "file": {"content": "", "startLine": 9}}, "(the file has fewer lines)"),
        ("Read", {"type": "file_unchanged", "file": {}}, "(unchanged since it was last read)"),
        ("Read", {"type": "notebook", "file": {"cells": [
            {"cellType": "code", "source": "print(1)", "language": "python", "outputs": [{"text": "1"}]},
            {"cellType": "markdown", "source": "# Hi"},
        ]}}, "```python\nprint(1)\n```\n\n```\n1\n```\n\n# Hi"),
        ("ToolSearch", {"matches": ["WebFetch", "TaskStop"]}, "WebFetch, TaskStop"),
        ("ToolSearch", {"matches": []}, "(no tool was found)"),
        ("WebFetch", {"code": 200, "result": "It says so."}, "It says so."),
        ("WebSearch", {"results": ["Sunny.", {"content": [{"title": "A [b]", "url": "https://x.org"}]}]},
         "Sunny.\n\n* [A \\[b\\]](https://x.org)"),
        ("TaskStop", {"message": "Stopped."}, "Stopped."),
        ("ReadMcpResourceTool", {"contents": [{"uri": "n://1", "text": "a\nb"}]}, "```\na\nb\n```"),
        ("ReadMcpResourceTool", {"contents": [{"uri": "n://1", "blobSavedTo": "/x"}]},
         "```\nfor the model\n```"),
        ("Skill", {"success": True, "commandName": "look"}, ""),
        ("Skill", {"success": True, "commandName": "look", "status": "forked", "result": "**So.**"}, "**So.**"),
        ("NotebookEdit", {"error": "no such cell"}, "```\nno such cell\n```"),
    ],
)  # fmt: skip
def test_what_cli_tells_of_result_is_shown(name: str, details: dict[str, Any], said: str) -> None:
    assert words(result(name, "for the model", failed=False, details=details)) == said


def test_plots_of_notebook_are_shown() -> None:
    def cell(data: str) -> dict[str, Any]:
        image = {"image_data": data, "media_type": "image/png"}
        outputs = [{"output_type": "display_data", "text": "<Figure>", "image": image}, None]
        return {"cellType": "code", "source": "plot()", "language": "python", "outputs": outputs}

    def shown(*cells: dict[str, Any]) -> tuple[ToolPart, ...]:
        file = {"filePath": "/w/a.ipynb", "cells": [*cells, {"source": "# Hi"}]}
        return result("Read", "", failed=False, details={"type": "notebook", "file": file}).parts

    code = TextPart("```python\nplot()\n```\n\n```\n<Figure>\n```")
    plot, after = ImagePart("AAAA", "image/png"), TextPart("# Hi")
    assert shown(cell("AAAA"), cell("AAAA")) == (code, plot, code, plot, after)
    too_large = TextPart("(an image that is too large to show)", beside=True)
    assert shown(cell("A" * (MAX_IMAGE + 1))) == (code, too_large, after)


@pytest.mark.parametrize(
    ("title", "url", "shown"),
    [
        ("A (b) c", "https://x.org/W_(h)?q=1&r=a%20b#z", "* [A (b) c](<https://x.org/W_(h)?q=1&r=a%20b#z>)"),
        ("Good](https://evil.org) [", "https://x.org", "* [Good\\](https://evil.org) \\[](https://x.org)"),
        ("A\n\n# Heading `b` *c* <d>", "https://x.org", "* [A # Heading \\`b\\` \\*c\\* \\<d>](https://x.org)"),
        ("A", "https://x.org>) [B](https://evil.org", "* [A](<https://x.org%3E) [B](https://evil.org>)"),
        ("A", "https://x.org\n\n# B\x00", "* [A](<https://x.org%0A%0A# B%00>)"),
        ("A\u202eb", "https://x.org", "* [A\\u202eb](https://x.org)"),
        (" \n", "https://x.org", "* [https://x.org](https://x.org)"),
        ("A [b]", None, "* A \\[b\\]"),
        ("A", "javascript:alert(1)", "* A javascript:alert(1)"),
    ],
)  # fmt: skip
def test_found_page_forges_no_other_link(title: str, url: str | None, shown: str) -> None:
    details = {"results": [{"content": [{"title": title, "url": url}]}]}
    assert words(result("WebSearch", "for the model", failed=False, details=details)) == shown


def test_damaged_details_hide_no_result() -> None:
    damaged: list[object] = [{}, [], 7, "text", {"stdout": 7, "file": 7, "results": 7}]
    for name in ("Bash", "Read", "WebSearch", "ToolSearch", "WebFetch", "Grep", "mcp__s__t"):
        for details in damaged:
            assert "kept" in words(result(name, "kept", failed=False, details=details))


def test_long_output_keeps_its_beginning_and_end() -> None:
    [part] = result("Bash", "begin" + "x" * 10**6 + "the end", failed=False).parts
    assert isinstance(part, TextPart)
    assert len(part.text) < MAX_SHOWN + 100
    assert "begin" in part.text
    assert part.text.endswith("the end\n```")
    assert "left out" in part.text


def test_hostile_output_costs_no_more_than_its_length() -> None:
    """Patterns that are tried at each place would take hours for these."""
    many = 10**5
    for text in (
        " \n" * many,
        "<system-reminder>" * many,
        "\n" * many + "REMINDER",
        "<persisted-output>\nOutput too large (1KB)\n" + "\n..." * many,
        "<tool_use_error>" + "</tool_use_error> " * many + "x",
        "Exit code " + "1" * many,
    ):
        for name in ("Bash", "Read", "WebSearch"):
            for failed in (True, False):
                shown = words(result(name, text, failed=failed))
                assert len(shown) < MAX_SHOWN + 200


def test_images_are_kept_and_giant_ones_named() -> None:
    source = {"type": "base64", "media_type": "image/png", "data": "AAAA"}
    shown: tuple[ToolPart, ...] = (ImagePart("AAAA", "image/png"),)
    image = {"type": "image", "source": source}
    details = {"type": "image", "file": {"base64": "AAAA"}}
    assert result("Read", [image], failed=False, details=details).parts == shown
    source["data"] = "A" * (MAX_IMAGE + 1)
    [part] = result("Read", [image], failed=False).parts
    assert isinstance(part, TextPart)


UNREACHED = {"success": False, "message": "No agent named 'nobody' is reachable."}


@pytest.mark.parametrize("details", [UNREACHED, None], ids=["of Claude", "of a subagent"])
def test_message_that_was_not_delivered_has_failed(details: object) -> None:
    blocks = [{"type": "text", "text": json.dumps(UNREACHED)}]
    found = result("SendMessage", blocks, failed=False, details=details)
    assert found == Result((TextPart(f"```\n{UNREACHED['message']}\n```"),), failed=True)


def test_failure_in_half_an_emoji_is_understood() -> None:
    text = '{"success": false, "message": "\ud83d"}'
    assert result("SendMessage", text, failed=False).failed


@pytest.mark.parametrize("details", [{"success": True, "message": "Queued"}, None])
@pytest.mark.parametrize("text", ['{"success": true}', "{", "[]", "", "[" * 100_000, "\ud83d"])
def test_message_that_was_delivered_shows_nothing(details: object, text: str) -> None:
    assert result("SendMessage", text, failed=False, details=details) == Result()


def test_input_for_the_log_is_bounded() -> None:
    shown = tools.shown_input({"content": "x" * 10**6, "deep": ["y" * 10**6], "n": 1})
    assert len(str(shown)) < 2 * MAX_SHOWN + 1000
    assert shown["n"] == 1
    assert str(shown["deep"]).startswith('["yyy')
    assert "characters left out" in str(shown["deep"])
    nested: list[Any] = []
    for _ in range(900):
        nested = [nested]
    assert tools.shown_input({"nested": nested}) == {"nested": "(nested too deeply to show)"}
    odd = {"surrogate": "\ud800", "huge": [10**400]}
    assert tools.shown_input({"odd": odd}) == {"odd": odd}


def test_only_tools_of_claudes_own_have_locations() -> None:
    assert tools.locations("Read", {"file_path": "a", "offset": 7}, "/w") == (Location("/w/a", 7),)
    assert tools.locations("Read", {"file_path": "a"}, "/w") == (Location("/w/a", 1),)
    assert tools.locations("Grep", {"path": "src"}, "/w") == (Location("/w/src"),)
    assert tools.locations("mcp__far__read", {"path": "/a"}, "/w") == ()
