"""pykoclaw's scheduler. Its loop catches nothing: one lock of more than 5 s ends it."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from pathlib import Path

from tests.double.agent import Engine, ProcessFailed, query_agent
from tests.double.handle import Handle, use_wal
from tests.double.rules import delivery_target, next_run, prompt_hash, without_reply_tags
from tests.double.tables import (
    Task,
    enqueue_delivery,
    get_conversation,
    get_due_tasks,
    log_task_run,
    update_task_after_run,
    upsert_conversation,
)

EVERY = 60.0
"""Seconds between two looks."""


async def run_scheduler(
    db: Handle, data: Path, engine: Engine, every: float = EVERY, rounds: int | None = None
) -> None:
    """Look at once, run what is due one after the other from that snapshot, sleep; for ever, or so
    many times.
    """
    use_wal(db)
    db.record.add("ready")
    while rounds is None or rounds > 0:
        for task in get_due_tasks(db):
            await run_task(task, db, data, engine)
        if rounds is not None:
            rounds -= 1
        if rounds != 0:
            await asyncio.sleep(every)


async def run_task(task: Task, db: Handle, data: Path, engine: Engine) -> None:
    """Run a task: its turn, then up to three transactions."""
    begin = datetime.now(UTC)
    text, failed = "", None
    try:
        text = await _run(task, db, data, engine)
    except Exception as error:
        failed = str(error)
        summary = f"Error: {failed}"
    else:
        summary = text[:200] or "Completed"
    recurring = task.schedule_type in ("cron", "interval")
    following = next_run(task.schedule_type, task.schedule_value) if recurring else None
    took = int((datetime.now(UTC) - begin).total_seconds() * 1000)
    update_task_after_run(db, task.id, following, summary)
    status = "success" if failed is None else "error"
    log_task_run(db, task.id, begin.isoformat(), took, status, text or None, failed)
    if text and failed is None:
        target, prefix = delivery_target(task.conversation, task.target_conversation)
        enqueue_delivery(db, task.id, target, prefix, without_reply_tags(text))


async def _run(task: Task, db: Handle, data: Path, engine: Engine) -> str:
    row = get_conversation(db, task.conversation)
    resume = None
    if task.context_mode == "group" and row is not None and row.session_id:
        resume = row.session_id
        mine = prompt_hash(task.prompt)
        if row.system_prompt_hash and mine and row.system_prompt_hash != mine:
            resume = None
    try:
        return await _turn(task, db, data, engine, resume)
    except ProcessFailed:
        if resume is None:
            raise
        upsert_conversation(db, task.conversation, None, str(data))
        return await _turn(task, db, data, engine, None)


async def _turn(task: Task, db: Handle, data: Path, engine: Engine, resume: str | None) -> str:
    text = ""
    async for piece in query_agent(
        task.prompt,
        db=db,
        data=data,
        conversation=task.conversation,
        engine=engine,
        resume=resume,
    ):
        if piece.kind == "text" and piece.text:
            text += piece.text
            print(f"[task:{task.id}] {piece.text}", flush=True)
    return text
