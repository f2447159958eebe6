"""What people see of tools: live, after a restart, and of a conversation begun elsewhere."""

from __future__ import annotations

import base64
import json
import re
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import pytest

from pykoclaw_acp.translation.results import STOPPED
from tests.e2e.given_servers import program
from tests.e2e.harness import Client, Stack, script, text
from tests.e2e.harness.client import selected
from tests.e2e.harness.seen import seen, seen_again
from tests.e2e.https_page import certificate, page

NOTEBOOK: Final = {
    "cells": [
        {"cell_type": "code", "id": "c1", "metadata": {}, "source": "print(1)", "outputs": [],
         "execution_count": None}
    ],
    "metadata": {}, "nbformat": 4, "nbformat_minor": 5,
}  # fmt: skip
DOT: Final = (
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR4nGP4z8AAAAMBAQDJ/pLvAAAAAElFTkSuQmCC"
)
INTERNAL: Final = (
    "tool_use_error", "persisted-output", "system-reminder", "REMINDER", "Launching skill", "state is current",
    "completed with no output", "Entered plan mode", "exiting plan mode", "input schema", "<cell",
)  # fmt: skip


def tool(name: str, /, **arguments: Any) -> str:
    return f"tool {name} {json.dumps(arguments)}"


def prepare(stack: Stack) -> None:
    work = stack.work
    (work / "app.py").write_text("".join(f"line {n}\n" for n in range(1, 101)))
    (work / "old.txt").write_text("one\ntwo\n")
    (work / "book.ipynb").write_text(json.dumps(NOTEBOOK))


def calls(client: Client, session: str) -> dict[str, dict[str, Any]]:
    """Tool calls as they are in the end, by title."""
    return {
        one["title"]: one for one in seen(client.of(session)) if one["sessionUpdate"] == "tool_call"
    }


def shown(call: dict[str, Any]) -> str:
    """The texts of a call."""
    texts = [one["content"]["text"] for one in call.get("content", ()) if one["type"] == "content"]
    return "\n".join(texts)


def diffs(call: dict[str, Any]) -> list[tuple[str | None, str]]:
    return [
        (one["oldText"], one["newText"]) for one in call.get("content", ()) if one["type"] == "diff"
    ]


@pytest.mark.long
async def test_tools_read_well_live_again_and_imported(stack: Stack) -> None:
    prepare(stack)
    client = await stack.start()
    server = program("sec", "hush")
    session = await client.new(stack.work, mcpServers=[server])
    await client.prompt(session, script(
        tool("Bash", command="echo out; echo err >&2; exit 3", description="Fail on purpose"),
        tool("Bash", command="true", description="Do nothing"),
        tool("Bash", command="seq 1 20000", description="Count"),
        tool("Bash", command="grep nothing app.py", description="Look for nothing"),
        tool("Bash", command="echo a\necho b", description="Two lines"),
        tool("Read", file_path="app.py", offset=10, limit=3),
        tool("Read", file_path="old.txt"),
        tool("Read", file_path="none.txt"),
        tool("Read", file_path="book.ipynb"),
        tool("Edit", file_path="app.py", old_string="line 50\n", new_string="fifty\nmore\n"),
        tool("Edit", file_path="old.txt", old_string="absent", new_string="x", replace_all=True),
        tool("Write", file_path="old.txt", content="one\n2\n"),
        tool("Write", file_path="new.txt", content="hello\n"),
        tool("NotebookEdit", notebook_path=str(stack.work / "book.ipynb"), cell_id="c1",
             new_source="print(2)"),
        tool("WebSearch", query="weather"),
        tool("WebFetch", url="http://127.0.0.1:9/docs/?q=1", prompt="What?"),
        tool("mcp__sec__whisper"),
        tool("Grep", pattern="x"),
        tool("EnterPlanMode"),
        "text Done.",
    ))  # fmt: skip
    await client.prompt(session, script(tool("ToolSearch", query="select:WebFetch"), "text Done."))
    found = calls(client, session)
    expected = {
        "Fail on purpose: echo out; echo err >&2; exit 3": "```\nout\nerr\n```\nExit code 3",
        "Do nothing: true": "",
        "Look for nothing: grep nothing app.py": "(No matches found)",
        "Two lines: echo a ⏎ echo b": "```sh\necho a\necho b\n```\n```\na\nb\n```",
        "Read app.py (10–12)": "```\nline 10\nline 11\nline 12\n```",
        "Read old.txt": "```\none\ntwo\n```",
        "Read book.ipynb": "```python\nprint(1)\n```",
        "Edit old.txt (each match)": "```\nString to replace not found in file.\nString: absent\n```",
        "Search the web for weather": None,
        "Fetch 127.0.0.1:9/docs?…": None,
        "sec: Whisper a secret (whisper)": "backwards: hsuh",
        "Begin to plan": "",
        "Load tools: WebFetch": "WebFetch",
    }
    assert {title: shown(found[title]) for title in expected if expected[title] is not None} == {
        title: words for title, words in expected.items() if words is not None
    }
    assert [title for title in expected if title not in found] == []
    failed, counted = (
        found["Fail on purpose: echo out; echo err >&2; exit 3"],
        found["Count: seq 1 20000"],
    )
    assert failed["rawOutput"] == {"exitCode": 3, "output": "out\nerr"}
    assert failed["rawInput"]["description"] == "Fail on purpose"
    assert (counted["rawOutput"]["exitCode"], counted["rawOutput"]["output"][:6]) == (
        0,
        "1\n2\n3\n",
    )
    assert len(shown(counted)) > 30_000  # the preview for the model has 2 KB
    assert "left out" in shown(counted)

    edited = found["Edit app.py"]
    context = "line 47\nline 48\nline 49\n", "line 51\nline 52\nline 53\n"
    assert diffs(edited) == [
        (f"{context[0]}line 50\n{context[1]}", f"{context[0]}fifty\nmore\n{context[1]}")
    ]
    assert edited["content"][0]["_meta"] == {"pykoclaw.dev/line": 47, "pykoclaw.dev/oldLine": 47}
    assert edited["locations"] == [{"path": str(stack.work / "app.py"), "line": 50}]
    assert diffs(found["Write old.txt"]) == [("one\ntwo\n", "one\n2\n")]
    assert diffs(found["Write new.txt"]) == [(None, "hello\n")]
    assert diffs(found["Edit book.ipynb (cell c1)"]) == [("print(1)", "print(2)")]
    assert found["sec: Whisper a secret (whisper)"]["name"] == "mcp__sec__whisper"
    assert [word for word in INTERNAL if word in json.dumps(client.of(session))] == []
    modes = [one["currentModeId"] for one in client.of(session, "current_mode_update")]
    assert modes[-1] == "plan"

    again = await seen_again(stack, client, session)
    await again.close()
    stack.use(stack.home / "elsewhere")
    imported = await stack.start()
    await imported.load(session, stack.work)
    told = calls(imported, session)
    told["sec: Whisper a secret (whisper)"] = told.pop("sec: Whisper") | {
        "title": "sec: Whisper a secret (whisper)"
    }
    for title, call in found.items():
        for one in (call, told[title]):
            one.pop("_meta", None)
            # whole in a question, which a transcript does not have
            if (path := one.get("rawInput", {}).get("file_path")) is not None:
                one["rawInput"]["file_path"] = str(stack.work / path)
        assert told[title] == call


async def test_server_is_named_as_its_user_does(stack: Stack) -> None:
    client = await stack.start()
    session = await client.new(stack.work, mcpServers=[program("my srv.1", "hush")])
    await client.prompt(session, script(
        tool("mcp__my_srv_1__whisper"),
        tool("ListMcpResourcesTool"),
        tool("ReadMcpResourceTool", server="my srv.1", uri="note://one"),
        "text Done.",
    ))  # fmt: skip
    found = calls(client, session)
    assert list(found) == [
        "my srv.1: Whisper a secret (whisper)",
        "List the resources of MCP servers",
        "Read note://one from my srv.1",
    ]
    assert shown(found["Read note://one from my srv.1"]) == "```\nBuy milk.\nBuy bread.\n```"
    [asked] = [one["params"] for one in client.questions]
    assert asked["toolCall"]["title"] == "my srv.1: Whisper a secret (whisper)"
    always = [one["name"] for one in asked["options"] if one["kind"] == "allow_always"]
    assert always[0] == "Always allow the tool `whisper` of my srv.1 in this session"
    assert "my_srv" not in json.dumps([one["name"] for one in asked["options"]])
    again = await seen_again(stack, client, session)
    await again.close()


async def test_long_output_keeps_end_that_was_seen(stack: Stack) -> None:
    client = await stack.start()
    session = await client.new(stack.work)
    inner = script(tool("Bash", command="seq 50000; echo DONE"), "text Seen.")
    await client.prompt(session, script(
        tool("Bash", command="seq 100000; echo SEEN; sleep 2; echo LAST", description="Count"),
        tool("Agent", description="Look", prompt=inner, subagent_type="claude",
             run_in_background=False),
        "text Done.",
    ))  # fmt: skip
    found = {
        one["toolCallId"]: one
        for one in client.of(session, "tool_call_update")
        if one["status"] == "completed"
    }
    live = [one for one in client.of(session, "tool_call_update") if "SEEN" in shown(one)]
    assert live[0]["status"] == "in_progress"
    count, inside, _ = found.values()
    for call, last in ((count, "100000\nSEEN\nLAST"), (inside, "50000\nDONE")):
        text = call["rawOutput"]["output"]
        assert text.startswith("1\n2\n")
        assert text.endswith(f"\n{last}")
        mark = re.search(r"\n… \d+ KiB left out; the whole is in (\S+) …\n", text)
        assert mark is not None
        whole = Path(mark[1]).read_text()  # noqa: ASYNC240  nothing else runs
        assert whole.endswith(f"\n{last}\n")
        assert text in shown(call)
    again = await seen_again(stack, client, session)
    await again.close()
    stack.use(stack.home / "elsewhere")
    imported = await stack.start()
    await imported.load(session, stack.work)
    ended = [one for one in imported.of(session, "tool_call_update") if "rawOutput" in one]
    assert [one["rawOutput"] for one in ended[:2]] == [count["rawOutput"], inside["rawOutput"]]


@pytest.mark.long
async def test_images_skills_refusals_and_stops_are_shown(stack: Stack) -> None:
    (stack.work / "dot.png").write_bytes(base64.b64decode(DOT))
    skill = stack.home / ".claude/skills/greet"
    skill.mkdir(parents=True)
    told = f"---\nname: greet\ndescription: Greets.\n---\n{text('Greeted.')}\n"
    (skill / "SKILL.md").write_text(told)
    client = await stack.start()
    client.permit = lambda _: selected("reject_once")
    session = await client.new(stack.work)
    await client.prompt(session, script(
        tool("Read", file_path="dot.png"),
        tool("Write", file_path="new.txt", content="x"),
        tool("Skill", skill="greet"),
    ))  # fmt: skip
    command = tool("Bash", command="touch begun; sleep 60", description="Take long")
    client.permit = lambda _: selected("allow_once")
    answer = client.prompting(session, script(command, "text Done."))
    await client.until((stack.work / "begun").exists)
    client.cancel(session)
    assert (await client.answer(answer))["stopReason"] == "cancelled"
    found = calls(client, session)
    (image,) = found["Read dot.png"]["content"]
    assert image["content"]["mimeType"] == "image/png"
    assert found["Write new.txt"]["status"] == "failed"
    assert "refused" in shown(found["Write new.txt"]).lower()
    skilled = found["Use skill greet"]
    assert (skilled["status"], shown(skilled)) == ("completed", "")
    assert "Greeted." in client.text(session)
    assert "Base directory" not in json.dumps(client.of(session))
    stopped = found["Take long: touch begun; sleep 60"]
    assert stopped["status"] == "failed"
    assert STOPPED in shown(stopped)
    assert "doesn't want" not in shown(stopped)
    notes = [one for one in client.of(session) if "pykoclaw.dev/note" in one.get("_meta", {})]
    assert [one["content"]["text"].strip() for one in notes] == ["Cancelled."]
    again = await seen_again(stack, client, session)
    await again.close()


@pytest.mark.long
async def test_web_results_are_shown_live_and_again(stack: Stack) -> None:
    settings = stack.home / ".claude/settings.json"
    settings.parent.mkdir(exist_ok=True)
    settings.write_text(json.dumps({"skipWebFetchPreflight": True}))  # that asks Anthropic
    certificate(stack.root / "page.pem")
    client = await stack.start(NODE_EXTRA_CA_CERTS=str(stack.root / "page.pem"))
    session = await client.new(stack.work)
    async with page("It is sunny.", stack.root / "page.pem") as address:
        await client.prompt(session, script(
            tool("WebSearch", query="weather"),
            tool("WebFetch", url=address, prompt="What is the weather?"),
            tool("WebFetch", url="http://127.0.0.1:9/docs/?q=1", prompt="What?"),
            "text Done.",
        ))  # fmt: skip
    searched, fetched, failed = calls(client, session).values()
    assert (searched["title"], searched["status"]) == ("Search the web for weather", "completed")
    assert "Perform a web search for the query: weather" in shown(searched)
    assert "REMINDER" not in shown(searched)
    assert (fetched["title"], fetched["status"]) == ("Fetch " + address[8:], "completed")
    assert shown(fetched) == fetched["rawOutput"]["output"] == "OK"  # to Claude's own request
    assert (failed["title"], failed["status"]) == ("Fetch 127.0.0.1:9/docs?…", "failed")
    assert shown(failed)
    await seen_again(stack, client, session)


@pytest.mark.long
async def test_edits_show_each_replaced_text_at_once(stack: Stack) -> None:
    """Also the several ones of a MultiEdit, which older transcripts have."""
    prepare(stack)
    client = await stack.start()
    session = await client.new(stack.work)
    edit = tool("Edit", file_path="app.py", old_string="line 50\n", new_string="fifty\n")
    await client.prompt(session, script(edit, "text Done."))
    (call,) = client.of(session, "tool_call")
    assert diffs(call) == [("line 50\n", "fifty\n")]
    again = await seen_again(stack, client, session)
    await again.close()

    [transcript] = stack.transcripts(session)
    entries = [json.loads(line) for line in transcript.read_text().splitlines()]
    blocks = [entry["message"]["content"] for entry in entries if entry["type"] == "assistant"]
    (made,) = (one for block in blocks for one in block if one["type"] == "tool_use")
    edits = [
        {"old_string": f"line {n}\n", "new_string": f"{word}\n"}
        for n, word in ((50, "fifty"), (60, "sixty"))
    ]
    made |= {"name": "MultiEdit", "input": {"file_path": "app.py", "edits": edits}}
    transcript.write_text("".join(json.dumps(entry) + "\n" for entry in entries))
    stack.use(stack.home / "elsewhere")
    imported = await stack.start()
    await imported.load(session, stack.work)
    (call,) = imported.of(session, "tool_call")
    assert call["title"] == "Edit app.py (2 changes)"
    assert diffs(call) == [("line 50\n", "fifty\n"), ("line 60\n", "sixty\n")]
    live = seen(imported.of(session))
    await imported.close()
    last = await stack.start()
    await last.load(session, stack.work)
    assert seen(last.of(session)) == live


async def test_terminals_shell_command_and_output_are_shown(stack: Stack) -> None:
    """Its entries are as the CLI writes them where somebody types `!` and a command."""
    client = await stack.start()
    session = await client.new(stack.work)
    await client.prompt(session, text("Ours."))
    await client.until(lambda: "Ours." in stack.transcript(session))
    [transcript] = stack.transcripts(session)
    entries = [json.loads(line) for line in transcript.read_text().splitlines()]
    head = [entry for entry in entries if "uuid" in entry][-1]
    out = "<bash-stdout>\x1b[31mred\x1b[0m &lt;</bash-stdout><bash-stderr></bash-stderr>"
    for said in ("<bash-input>make red</bash-input>", out):
        message = {"role": "user", "content": said}
        names = {name: head[name] for name in ("sessionId", "cwd", "timestamp")}
        head = {**names, "parentUuid": head["uuid"], "uuid": str(uuid4()), "isSidechain": False,
                "type": "user", "entrypoint": "cli", "message": message}  # fmt: skip
        with transcript.open("a") as file:
            file.write(json.dumps(head) + "\n")
    await client.until(lambda: client.of(session, "tool_call_update"))
    (asked,) = client.of(session, "user_message_chunk")
    assert asked["content"]["text"] == "!make red"
    assert asked["_meta"]["pykoclaw.dev/origin"] == "terminal"
    [call] = [one for one in seen(client.of(session)) if "toolCallId" in one]
    assert (call["title"], call["kind"], call["status"]) == ("make red", "execute", "completed")
    assert shown(call) == "```\nred <\n```"
    await seen_again(stack, client, session)


@pytest.mark.long
async def test_edits_show_tabs_as_file_has_them(stack: Stack) -> None:
    """The CLI replaces those that a line begins with."""
    makefile = stack.work / "Makefile"
    makefile.write_text(before := "all:\n\tcc a\n\tcc b\n")
    client = await stack.start()
    session = await client.new(stack.work)

    async def change(name: str, **arguments: Any) -> list[tuple[str | None, str]]:
        call = tool(name, file_path="Makefile", **arguments)
        await client.prompt(session, script(call, "text Done."))
        return diffs([one for one in seen(client.of(session)) if "kind" in one][-1])

    edited = await change("Edit", old_string="\tcc a", new_string="\tcc c")
    assert edited == [(before, between := makefile.read_text())]
    assert await change("Edit", old_string="\tcc c", new_string="") == [
        (between, shorter := makefile.read_text())
    ]
    assert await change("Write", content="all:\n\techo\n\tcc b\n") == [
        (shorter, makefile.read_text())
    ]
    spaces = await change("Edit", old_string="\techo\n\tcc b", new_string="  echo\n\tcc d")
    assert spaces == [("all:\n\techo\n\tcc b\n", makefile.read_text())]


async def test_question_shows_command_first_and_threatened_content(shared: Stack) -> None:
    prepare(shared)
    (shared.root / "outside.txt").write_text("hidden\n")
    client = await shared.start()
    session = await client.new(shared.work)
    await client.prompt(session, script(
        tool("Bash", description="Tidy up", command="rm -f app.py"),
        tool("Write", file_path="old.txt", content="one\n2\n"),
        tool("Read", file_path=str(shared.root / "outside.txt")),
        tool("Write", file_path=str(shared.root / "outside.txt"), content="x"),
        "text Done.",
    ))  # fmt: skip
    asked = [one["params"]["toolCall"] for one in client.questions]
    assert asked[0]["title"] == "rm -f app.py"
    words = asked[0]["content"][0]["content"]["text"]
    assert words.startswith("command:\n```sh\nrm -f app.py\n```")
    assert words.index("command:") < words.index("Tidy up")
    assert diffs(asked[1]) == [("one\ntwo\n", "one\n2\n")]
    assert diffs(asked[-1]) == [], "it is no new file"
    assert "would be replaced" in shown(asked[-1])
    assert "hidden" not in json.dumps(asked[-1])
