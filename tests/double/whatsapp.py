"""The WhatsApp bot: its tables, messages of a chat, and the loop that takes deliveries."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Final

from tests.double.agent import Engine
from tests.double.handle import Handle
from tests.double.messaging import Reply, dispatch_to_agent
from tests.double.tables import Delivery, get_pending_deliveries, mark_delivered, now

EVERY = 10.0
"""Seconds between two looks at the deliveries."""
SYSTEM_PROMPT: Final = "You are Andy. Answer within <reply> tags."
TABLES: Final = """
CREATE TABLE IF NOT EXISTS wa_messages (id INTEGER PRIMARY KEY AUTOINCREMENT, chat_jid TEXT NOT NULL, sender TEXT,
    text TEXT, timestamp TEXT NOT NULL, is_from_me INTEGER DEFAULT 0);
CREATE TABLE IF NOT EXISTS wa_chats (jid TEXT PRIMARY KEY, name TEXT, last_timestamp TEXT, last_agent_timestamp TEXT);
CREATE TABLE IF NOT EXISTS wa_config (key TEXT PRIMARY KEY, value TEXT);
CREATE TABLE IF NOT EXISTS wa_attachments (id INTEGER PRIMARY KEY AUTOINCREMENT, chat_jid TEXT NOT NULL,
    message_timestamp TEXT NOT NULL, file_path TEXT NOT NULL, mime_type TEXT NOT NULL);
"""


def conversation(agent: str, jid: str) -> str:
    return f"wa-{agent.lower()}-{jid}"


async def poll(
    db: Handle,
    accept: Callable[[Delivery], None] = lambda _: None,
    every: float = EVERY,
    rounds: int | None = None,
    prefix: str = "wa",
) -> None:
    """Take the pending deliveries in order, each marked after it was sent: `accept` is what people
    get. Killed between the two, it is sent twice.
    """
    db.record.add("ready")
    while rounds is None or rounds > 0:
        for delivery in get_pending_deliveries(db, prefix):
            accept(delivery)
            db.record.add(
                "sent",
                id=delivery.id,
                task_id=delivery.task_id,
                conversation=delivery.conversation,
                message=delivery.message,
            )
            mark_delivered(db, delivery.id)
        if rounds is not None:
            rounds -= 1
        if rounds != 0:
            await asyncio.sleep(every)


def receive(db: Handle, jid: str, sender: str, text: str) -> None:
    """A message of a chat: three transactions of one row each."""
    at = now()
    db.execute(
        "INSERT INTO wa_messages (chat_jid, sender, text, timestamp, is_from_me) VALUES (?, ?, ?, ?, 0)",
        (jid, sender, text, at),
    )
    db.commit()
    db.record.add("message", jid=jid, text=text)
    db.execute(
        "INSERT INTO wa_chats (jid, name, last_timestamp) VALUES (?, ?, ?)"
        " ON CONFLICT(jid) DO UPDATE SET last_timestamp=excluded.last_timestamp",
        (jid, jid, at),
    )
    db.commit()
    db.execute("INSERT OR REPLACE INTO wa_config (key, value) VALUES ('last_message', ?)", (at,))
    db.commit()


async def flush(db: Handle, data: Path, engine: Engine, jid: str, agent: str = "Andy") -> Reply:
    """Give the messages since the last batch to the agent; the cursor moves also after an error."""
    rows = db.execute(
        "SELECT sender, text, timestamp FROM wa_messages WHERE chat_jid = ? AND is_from_me = 0 AND timestamp >"
        " COALESCE((SELECT last_agent_timestamp FROM wa_chats WHERE jid = ?), '') ORDER BY timestamp",
        (jid, jid),
    ).fetchall()
    lines = [f'<message sender="{row["sender"]}">{row["text"]}</message>' for row in rows]
    batch = "\n".join(["<messages>", *lines, "</messages>"])
    try:
        return await dispatch_to_agent(
            batch,
            "wa",
            f"{agent.lower()}-{jid}",
            db,
            data,
            engine,
            system_prompt=SYSTEM_PROMPT,
            partial=False,
        )
    finally:
        db.execute("UPDATE wa_chats SET last_agent_timestamp = ? WHERE jid = ?", (now(), jid))
        db.commit()
