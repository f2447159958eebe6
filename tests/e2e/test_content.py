"""Images, files and documents in prompts: what the model gets, what stays, and what is refused."""

from __future__ import annotations

import asyncio
import hashlib
import json
import stat
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from pykoclaw_acp.model.blobs import amount
from tests.e2e.harness import RpcError, Stack, text
from tests.e2e.harness.stack import PROGRAM
from tests.pictures import PDF, encoded, file, image, png

LARGE = png(1900, 1760, noise=True)  # 10 MB: 13 MB as base64
WORDS = "The word is ananas.\n" * 4000  # 80 kB, which are kept as a file


def received(stack: Stack) -> dict[str, Any]:
    """The user's message of the newest request that reached the model."""
    messages: Sequence[dict[str, Any]] = stack.asked()[-1]["messages"]
    return next(one for one in reversed(messages) if one["role"] == "user")


def blobs(stack: Stack) -> dict[str, Path]:
    return {path.name: path for path in (stack.data / "blobs").glob("*")}


async def run(stack: Stack, *arguments: str) -> str:
    done = await asyncio.to_thread(
        subprocess.run, [*PROGRAM, *arguments], env=stack.environment, capture_output=True, text=True, check=True,
    )  # fmt: skip
    return str(done.stdout)


@pytest.mark.long
async def test_all_kinds_reach_the_model_and_survive_everything(stack: Stack) -> None:
    client = await stack.front()
    session = await client.new(stack.work)
    picture = png(3, 2)
    content = [
        image(picture),
        file("file:///work/notes%20a.md", "Small notes.", "text/markdown"),
        file("file:///work/words.txt", WORDS),
        file("file:///work/paper.pdf", PDF, "application/pdf"),
        file("file:///work/plan.png", picture, "image/png"),
        file("file:///work/data.bin", b"\0\1\2", "application/x-data"),
        {"type": "text", "text": text("Seen.")},
    ]
    await client.prompt(session, *content)
    assert client.text(session) == "Seen."

    got = received(stack)
    digest = hashlib.sha256(picture).hexdigest()
    assert [(one["type"], one["media_type"], one["sha256"]) for one in got["attachments"]] == [
        ("image", "image/png", digest),
        ("document", "application/pdf", hashlib.sha256(PDF).hexdigest()),
        ("image", "image/png", digest),
    ]
    assert "[@notes a.md](file:///work/notes%20a.md)" in got["text"]
    assert '<context ref="file:///work/notes%20a.md">\nSmall notes.\n</context>' in got["text"]
    assert f'<context ref="file:///work/words.txt">\n{WORDS}\n</context>' in got["text"]
    assert f"data.bin](file:///work/data.bin) ({amount(3)} of application/x-data" in got["text"]

    assert set(blobs(stack)) == {
        hashlib.sha256(data).hexdigest() for data in (picture, WORDS.encode(), PDF, b"\0\1\2")
    }, "once each"
    assert stat.S_IMODE((stack.data / "blobs").stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in blobs(stack).values()} == {0o600}
    (row,) = stack.rows("SELECT prompt FROM acp_turns WHERE acp_session_id = ?", session)
    assert encoded(picture) not in row["prompt"]
    assert len(row["prompt"]) < 3000

    await stack.kill_everything()
    client = await stack.front()
    await client.load(session, stack.work)
    assert [one["content"] for one in client.of(session, "user_message_chunk")] == content
    await client.prompt(session, text("Again."))
    assert digest in json.dumps(stack.asked()[-1]["messages"]), "Claude has it still"

    exported = await run(stack, "sessions", "export", session, "--format", "json")
    said = [event["update"]["content"] for event in json.loads(exported)["events"][:7]]
    assert said == content
    exported = await run(stack, "sessions", "export", session)
    assert f"![image](data:image/png;base64,{encoded(picture)})" in exported
    assert "Small notes." in exported

    lost, damaged = blobs(stack)[digest], blobs(stack)[hashlib.sha256(PDF).hexdigest()]
    lost.unlink()
    damaged.write_bytes(b"x" * len(PDF))
    await client.load(session, stack.work)
    shown = [one["content"] for one in client.of(session, "user_message_chunk")]
    assert shown[1:3] == content[1:3]
    for at in (0, 3, 4):
        assert "is missing or damaged" in shown[at]["text"]
    await client.prompt(session, text("It goes on."))

    await run(stack, "sessions", "delete", session, "--yes")
    assert blobs(stack) == {}


@pytest.mark.long
async def test_large_image_goes_through(stack: Stack) -> None:
    """10 MB, of which its author's line has 13; others are served meanwhile."""
    client = await stack.front()
    session = await client.new(stack.work)
    answer = client.prompting(session, image(LARGE), text("That is large."))
    other = await stack.front()
    quick = await other.new(stack.work)
    await other.prompt(quick, text("Quick."))
    assert (await client.answer(answer))["stopReason"] == "end_turn"
    (picture,) = received(stack)["attachments"]
    assert picture["type"] == "image"
    assert 0 < picture["size"] < len(LARGE), "the CLI makes it smaller"

    reader = await stack.spawn_front()
    reader.longest_line = 24 * 2**20
    await reader.initialize(clientInfo={"name": "zed", "version": "1"})
    await reader.load(session, stack.work)
    shown = reader.of(session, "user_message_chunk")[0]["content"]
    assert shown == image(LARGE)
    mitto = await stack.spawn_front()
    await mitto.initialize(clientInfo={"name": "mitto", "version": "1"})
    await mitto.load(session, stack.work)
    shown = mitto.of(session, "user_message_chunk")[0]["content"]
    assert "too large to be sent to this client again" in shown["text"]
    assert (stack.data / "pykoclaw.db").stat().st_size < 1024 * 1024


async def test_what_is_refused_leaves_nothing(shared: Stack) -> None:
    client = await shared.front()
    session = await client.new(shared.work)
    for block, says in (
        ({"type": "audio", "data": "AAAA", "mimeType": "audio/wav"}, r"prompt\[1\].*not audio"),
        (image(LARGE + b"x" * 2**20), r"prompt\[1\]`: has 10.* MiB; this agent takes 10 MiB"),
        (image(b"x" * 100), r"Image 2 is damaged, or no PNG.*prompt\[1\].data"),
    ):
        with pytest.raises(RpcError, match=says) as error:
            await client.prompt(session, image(png(2, 2)), block)
        assert error.value.code == -32602
    assert shared.rows("SELECT * FROM acp_turns WHERE acp_session_id = ?", session) == []
    assert shared.rows("SELECT * FROM acp_blobs WHERE acp_session_id = ?", session) == []
    assert (await client.prompt(session, text("It goes on.")))["stopReason"] == "end_turn"


@pytest.mark.long
@pytest.mark.parametrize("step", ["blobs_written", "turn_queued", "turn_dispatched"])
async def test_image_survives_a_crash_at_any_step(stack: Stack, step: str) -> None:
    """The front gives the prompt to the next daemon, and Claude is asked once."""
    daemon = await stack.daemon(PYKOCLAW_CRASH_AT=step)
    client = await stack.front()
    session = await client.new(stack.work)
    content = [
        image(png(3, 2)),
        file("file:///w/words.txt", WORDS),
        {"type": "text", "text": text("Seen.")},
    ]
    answer = client.prompting(session, *content)
    await daemon.wait()
    assert (await client.answer(answer))["stopReason"] == "end_turn"
    (asked,) = stack.asked()
    assert len(asked["messages"][-1]["attachments"]) == 1
    assert WORDS in asked["messages"][-1]["text"]
    await client.load(session, stack.work)
    shown = [one["content"] for one in client.of(session, "user_message_chunk")]
    assert shown == content
    assert len(blobs(stack)) == 2
    assert len(stack.rows("SELECT * FROM acp_turns WHERE acp_session_id = ?", session)) == 1
