"""What Mitto's users attach and type: images, text files, other files, slash commands, in wrapped prompts."""

from __future__ import annotations

import asyncio

from tests.e2e.harness import Stack
from tests.e2e.mitto import Conversation, Mitto
from tests.e2e.mitto_helpers import play, wire_of
from tests.pictures import PDF, image, png


async def test_e_attachments_and_commands_in_wrapped_prompts(shared: Stack) -> None:
    """Mitto puts images first, text files as text, other files as links, and the words last."""
    commands = shared.work / ".claude/commands"
    commands.mkdir(parents=True)
    (commands / "greet.md").write_text(
        "---\ndescription: Greets.\nargument-hint: [whom]\n---\nGreet $ARGUMENTS. [[script text Greetings. ]]"
    )
    (shared.work / "paper.pdf").write_bytes(PDF)
    web = Mitto(shared)
    conversation = Conversation()
    await web.open(conversation)
    picture = image(png(3, 2))
    listing = {"type": "text", "text": "=== File: list.txt ===\nananas\n"}
    paper = {"type": "resource_link", "name": "paper.pdf", "uri": f"file://{shared.work}/paper.pdf"}
    assert await web.prompt(conversation, play("text Seen."), picture, listing, paper) == "end_turn"
    assert conversation.text == "Seen."
    got = shared.asked()[-1]["messages"][-1]
    assert [one["type"] for one in got["attachments"]] == ["image"]
    assert "ananas" in got["text"]
    assert f"[@paper.pdf](file://{shared.work}/paper.pdf)" in got["text"]
    assert "[Session Context]" in got["text"]

    await wire_of(web).until(lambda: "greet" in conversation.commands)
    every = wire_of(web).commands[conversation.session or ""]
    offered = next(one for one in every if one["name"] == "greet")
    assert offered["description"].startswith("Greets.")
    assert "whom" in offered["input"]["hint"]

    await web.shutdown()
    await web.open(conversation)  # the next prompt is wrapped anew
    assert await web.prompt(conversation, "/greet me", picture) == "end_turn"
    assert "Greet me." in shared.asked()[-1]["messages"][-1]["text"]
    assert shared.asked()[-1]["messages"][-1]["attachments"]

    refused, queued = await asyncio.gather(
        web.prompt(conversation, "/help"), web.prompt(conversation, play("text Queued."), picture)
    )
    assert [refused, queued] == ["end_turn", "end_turn"]
    assert "/help isn't available in this environment." in conversation.text
    assert "Queued." in conversation.text
    reader = await shared.front()
    await reader.load(conversation.session or "", shared.work)
    said = [one["content"] for one in reader.of(conversation.session or "", "user_message_chunk")]
    assert said.count(picture) == 3
    assert {"type": "text", "text": "/greet me"} in said
