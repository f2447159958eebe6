"""Large and unusual things on their way through: prompts, tool outputs, images, MCP servers."""

from __future__ import annotations

import contextlib
import json
import sys
from pathlib import Path

import pytest

from tests.e2e.harness import Stack, files, script, text
from tests.e2e.harness.client import RpcError
from tests.folds import told
from tests.pictures import png


@pytest.mark.long
async def test_prompt_of_two_megabytes(shared: Stack) -> None:
    client = await shared.start()
    session = await client.new(shared.work)
    large = "ä€😀x" * 260_000  # ten bytes each; more than one event holds
    await client.prompt(session, large, text("Read it all."))
    assert client.text(session) == "Read it all."
    assert large in shared.asked()[-1]["messages"][-1]["text"]
    await client.load(session, shared.work)
    assert client.text(session, "user_message_chunk") == large + text("Read it all.")


@pytest.mark.long
async def test_ten_mebibytes_of_commas_and_brackets_reach_claude(shared: Stack) -> None:
    """Which says itself that no model can read so much."""
    client = await shared.start()
    session = await client.new(shared.work)
    large = '[{"a": [1, 2]}, ' * (10 * 1024 * 1024 // 16)
    with pytest.raises(RpcError) as refused:
        await client.prompt(session, large)
    assert refused.value.data["errorKind"] == "context_too_large"
    await client.load(session, shared.work)
    assert client.text(session, "user_message_chunk") == large


@pytest.mark.long
async def test_tool_output_of_three_megabytes(shared: Stack) -> None:
    client = await shared.start()
    session = await client.new(shared.work)
    await client.prompt(
        session, script("bash head -c 3000000 /dev/zero | tr '\\\\0' x", "text That was much.")
    )
    assert client.of(session, "tool_call_update")[-1]["status"] == "completed"
    assert client.text(session) == "That was much."
    assert max(len(json.dumps(frame)) for frame in client.received) < 8 * 1024 * 1024


@pytest.mark.long
async def test_large_file_is_written(shared: Stack) -> None:
    client = await shared.start()
    session = await client.new(shared.work)
    await client.prompt(session, script(f"write large.txt <<< {'x' * 1_000_000}", "text Written."))
    assert (shared.work / "large.txt").stat().st_size == 1_000_000
    # It is shown as pending before, if the model takes long to write it.
    calls = [one for one in client.of(session) if "toolCallId" in one]
    begun, *_, ended = (one["content"][0] for one in calls if one.get("content"))
    assert "characters left out" in begun["content"]["text"]
    assert "characters left out" in ended["newText"]
    assert max(len(json.dumps(one)) for one in calls) < 1_000_000


@pytest.mark.long
async def test_answer_of_three_megabytes(shared: Stack) -> None:
    client = await shared.start()
    session = await client.new(shared.work)
    filler = "y" * 1000
    await client.prompt(session, script(f"repeat 3000x0ms {{n}}:{filler} "))
    assert client.text(session) == " ".join(f"{n}:{filler}" for n in range(1, 3001))
    live = client.of(session)
    await client.load(session, shared.work)
    replay = [one for one in client.of(session) if one["sessionUpdate"] != "user_message_chunk"]
    assert told(replay) == told(live)
    assert len(replay) < 10


@pytest.mark.long
async def test_large_image_is_read(shared: Stack) -> None:
    """The CLI's line for it is longer than the SDK's default limit, which would end the session
    without a word.
    """
    client = await shared.start()
    session = await client.new(shared.work)
    picture = png(700, 700, noise=True)
    assert len(picture) > 1024 * 1024
    (shared.work / "picture.png").write_bytes(picture)
    await client.prompt(session, script("read picture.png", "text Nice."))
    assert client.of(session, "tool_call_update")[-1]["status"] == "completed"
    (part,) = client.of(session, "tool_call_update")[-1]["content"]
    assert part["content"]["type"] == "image"
    assert client.text(session) == "Nice."
    await client.prompt(session, text("It goes on."))


async def test_unusual_text_survives(shared: Stack) -> None:
    client = await shared.start()
    session = await client.new(shared.work)
    said = '\u2028 \u2029 \x00 \x1b[31m \ud83d\ude00 \r\n \t \\ " ]] [[ end'
    unusual = said.encode("utf-16", "surrogatepass").decode("utf-16")
    await client.prompt(session, unusual)
    await client.load(session, shared.work)
    shown = unusual.replace("\x1b[31m", "").replace("\x00", "").replace("\r", "")
    assert client.text(session, "user_message_chunk") == shown
    assert "\x1b[31m" in shared.asked()[-1]["user_texts"][-1], "the model gets what was sent"


@pytest.mark.long
async def test_mcp_server_of_the_client(stack: Stack) -> None:
    client = await stack.start()
    secret = "s3cret-of-the-client"
    server = {
        "name": "secretary",
        "command": sys.executable,
        "args": [str(Path(__file__).with_name("mcp_server.py"))],
        "env": [{"name": "SECRET", "value": secret}],
    }
    session = await client.new(stack.work, mcpServers=[server])
    seen: list[str] = []

    def look(_: object) -> dict[str, object]:
        seen.extend(process.command for process in stack.processes())
        return {"outcome": {"outcome": "selected", "optionId": "allow_once"}}

    client.permit = look
    await client.prompt(session, script("tool mcp__secretary__whisper {}", "text It whispered."))
    (call,) = client.of(session, "tool_call")
    assert call["title"] == "secretary: Whisper a secret (whisper)"
    assert [one["params"]["toolCall"]["title"] for one in client.questions] == [call["title"]]
    ended = client.of(session, "tool_call_update")[-1]
    assert ended["status"] == "completed"
    assert secret[::-1] in ended["content"][0]["content"]["text"]
    assert any("mcp_server.py" in command for command in seen)
    assert not any(secret in command for command in seen)
    assert secret not in client.log.read_text()
    assert files.holding(stack.data, secret) == []
    assert [one for one in files.holding(stack.home, secret) if one.suffix == ".json"] == []

    # A client hands its servers over again at each load.
    await stack.kill_everything()
    client = await stack.start()
    await client.load(session, stack.work, mcpServers=[server])
    await client.prompt(session, script("tool mcp__secretary__whisper {}", "text Again."))
    assert client.of(session, "tool_call_update")[-1]["status"] == "completed"


async def test_mcp_server_that_does_not_start(shared: Stack) -> None:
    client = await shared.start()
    broken = {"name": "broken", "command": "/nowhere/server", "args": [], "env": []}
    session = await client.new(shared.work, mcpServers=[broken])
    for answer in ("It works without.", "Still."):
        await client.prompt(session, text(answer))
    said = client.text(session)
    assert said.startswith("\n\n**MCP server `broken` does not work: ")
    assert "/nowhere" not in said
    assert said.endswith("\n\nIt works without.Still.")
    (log,) = (shared.home / ".local/state/pykoclaw").rglob("workers.log")
    lines = [json.loads(line) for line in log.read_text().splitlines() if "mcp_failed" in line]
    mine = [(one["level"], one["server"]) for one in lines if one["session"] == session]
    assert mine == [("warning", "broken")], "it is in the log, once"


@pytest.mark.long
async def test_additional_directories_reach_claude(stack: Stack) -> None:
    client = await stack.start(PYKOCLAW_PERMISSION_MODE="acceptEdits")
    more = stack.root / "more"
    more.mkdir()
    session = await client.new(stack.work, additionalDirectories=[str(more)])
    await client.prompt(session, script(f"write {more}/note.txt <<< here", "text Done."))
    assert client.questions == []
    assert (more / "note.txt").read_text() == "here"
    other = stack.root / "other"
    other.mkdir()
    await client.load(session, stack.work, additionalDirectories=[str(other)])
    await client.prompt(session, script(f"write {other}/note.txt <<< here", "text Done."))
    assert client.questions == []
    await client.prompt(session, script(f"write {more}/late.txt <<< here", "text Done."))
    assert len(client.questions) == 1, "it was taken away"


@pytest.mark.long
async def test_texts_crafted_to_be_slow_delay_nobody(shared: Stack) -> None:
    """Each was matched for minutes to years by an expression; a successor tried it again."""
    client, other = await shared.front(), await shared.front()
    context = "[Session Context]\n---\n<user_request>\n"
    for hostile in (
        "<a-b>" * 600_000,
        context + "\n</user_request>x" * 180_000,
        context + "\n</user_request>" * 180_000 + "\n" * 100_000 + "x",
        "[CONVERSATION HISTORY - x]\n" * 100_000 + "\n[END OF HISTORY - Continue" * 20_000,
    ):
        session = await client.new(shared.work)
        answer = client.prompting(session, hostile, text("Read."))
        await other.new(shared.work)
        with contextlib.suppress(
            RpcError
        ):  # the scripted model takes a text of megabytes for too long
            await client.answer(answer)
        (turn,) = shared.rows("SELECT state FROM acp_turns WHERE acp_session_id = ?", session)
        assert turn["state"] in ("done", "failed")
        await other.new(shared.work)
