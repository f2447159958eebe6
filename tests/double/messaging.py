"""A channel's turn (`dispatch_to_agent`), and `pykoclaw send`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tests.double.agent import Engine, ProcessFailed, query_agent
from tests.double.handle import Handle
from tests.double.rules import prefix_of, prompt_hash
from tests.double.tables import enqueue_delivery, get_conversation, upsert_conversation

SEND_PROMPT: Final = "You send a message on behalf of the operator."


@dataclass(frozen=True)
class Reply:
    text: str
    session_id: str | None


async def dispatch_to_agent(
    prompt: str,
    channel_prefix: str,
    channel_id: str,
    db: Handle,
    data: Path,
    engine: Engine,
    *,
    system_prompt: str | None = None,
    servers: dict[str, Any] | None = None,
    fresh: bool = False,
    partial: bool = True,
) -> Reply:
    """Run a channel's turn: what the row says is resumed, unless `fresh` is true or the system
    prompt is another; what cannot be resumed is forgotten, and the turn runs again.
    """
    name = f"{channel_prefix}-{channel_id}"
    resume = None
    if not fresh:
        row = get_conversation(db, name)
        resume = (row.session_id or None) if row is not None else None
        if resume and row is not None and system_prompt and row.system_prompt_hash:
            resume = resume if row.system_prompt_hash == prompt_hash(system_prompt) else None

    async def turn(session_id: str | None) -> Reply:
        texts, result = [], None
        async for piece in query_agent(
            prompt,
            db=db,
            data=data,
            conversation=name,
            engine=engine,
            system_prompt=system_prompt,
            resume=session_id,
            servers=servers,
            partial=partial,
        ):
            if piece.kind == "text":
                texts.append(piece.text or "")
            else:
                result = piece.session_id
        return Reply("".join(texts).strip(), result)

    try:
        return await turn(resume)
    except ProcessFailed:
        if resume is None:
            raise
        upsert_conversation(db, name, None, str(data))
        return await turn(None)


async def send(
    conversation: str,
    prompt: str,
    db: Handle,
    data: Path,
    engine: Engine,
    *,
    deliver: bool = True,
) -> str:
    """`pykoclaw send`: a turn in a blank session, whose id replaces the conversation's; its text,
    tags and all, is enqueued under a task that does not exist. Raises SystemExit for a name without
    a channel.
    """
    if conversation.find("-") < 1:
        raise SystemExit(1)
    prefix, _, rest = conversation.partition("-")
    reply = await dispatch_to_agent(
        prompt, prefix, rest, db, data, engine, system_prompt=SEND_PROMPT, fresh=True
    )
    if reply.text and deliver:
        enqueue_delivery(db, "send-cli", conversation, prefix_of(conversation), reply.text)
    return reply.text
