"""What a user has said to Claude, as content blocks of ACP."""

from __future__ import annotations

from typing import Any

from pykoclaw_acp.model import notes, prompt_text
from pykoclaw_acp.model.events import Event, Failure, UserMessage, split_text
from pykoclaw_acp.model.plain import plain_prompt
from pykoclaw_acp.transcripts import entries
from pykoclaw_acp.transcripts.entries import INTERRUPTED, MAX_ID, Entry, Message
from pykoclaw_acp.translation.results import MAX_IMAGE
from pykoclaw_acp.translation.service_errors import without_places


def user_messages(entry: Entry, blocks: list[dict[str, Any]]) -> list[Event]:
    """Events of a user's message; what has no place in it is named. Its origin is the program as the
    entry names it.
    """
    events: list[Event] = []
    message_id, program = str(entry.uuid), entry.entrypoint and entry.entrypoint[:MAX_ID]
    for block in blocks:
        text = block.get("text")
        if block.get("type") == "text" and isinstance(text, str):
            if text.strip():
                events += [
                    UserMessage(message_id, {"type": "text", "text": plain_prompt(piece)}, program)
                    for piece in split_text(prompt_text.unwrap(text) or text)
                ]
        else:
            events.append(UserMessage(message_id, _image(block) or _named(block), program))
    return events


def stopped(message_id: str, found: Message | None) -> list[Event]:
    """What an entry of the user's without results says: that the user has stopped the turn, or
    nothing.
    """
    if found is None or not found.text.startswith(INTERRUPTED):
        return []
    return notes.cancelled(message_id)


def failure(entry: Entry, said: str) -> Failure:
    """An error of Claude's service, in the CLI's words without the gateway's address."""
    return Failure(f"{entry.uuid}-failure", without_places(said), entries.error(entry))


def _image(block: dict[str, Any]) -> dict[str, Any] | None:
    source = block.get("source")
    if block.get("type") != "image" or not isinstance(source, dict):
        return None
    data, mime = source.get("data"), source.get("media_type")
    if not isinstance(data, str) or not isinstance(mime, str) or len(data) > MAX_IMAGE:
        return None
    return {"type": "image", "data": data, "mimeType": mime[:100]}


def _named(block: dict[str, Any]) -> dict[str, Any]:
    return {"type": "text", "text": f"({str(block.get('type', 'something'))[:40]})"}
