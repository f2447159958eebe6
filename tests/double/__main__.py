"""The roles, as processes: `python -m tests.double <role>`; what they are, the package says."""

from __future__ import annotations

import argparse
import asyncio
import json
import sqlite3
import sys
import time
import traceback
from pathlib import Path

from tests.double import original, whatsapp
from tests.double.agent import Canned, Claude, Engine
from tests.double.handle import Handle, init_db, use_wal
from tests.double.messaging import dispatch_to_agent, send
from tests.double.record import Record
from tests.double.scheduler import run_scheduler
from tests.double.toolcalls import call


def main() -> int:
    arguments = _parser().parse_args()
    if arguments.role == "healthcheck":
        return original.healthcheck(arguments.command, arguments.within)
    record = Record(arguments.record)
    try:
        return asyncio.run(_run(arguments, record))
    except Exception as error:
        record.add("failed", error=f"{type(error).__name__}: {error}")
        traceback.print_exc()
        return 1


async def _run(arguments: argparse.Namespace, record: Record) -> int:
    engine: Engine = Canned(arguments.text, arguments.seconds, set(arguments.unknown))
    if arguments.claude:
        engine = Claude()
    db = init_db(arguments.data / "pykoclaw.db", record)
    db.executescript(whatsapp.TABLES)
    record.add("opened")
    await ROLES[arguments.role](arguments, db, engine)
    db.close()
    record.add("ended")
    return 0


async def _scheduler(arguments: argparse.Namespace, db: Handle, engine: Engine) -> None:
    print("Scheduler started", file=sys.stderr, flush=True)
    await run_scheduler(db, arguments.data, engine, arguments.every, arguments.rounds)


async def _dispatch(arguments: argparse.Namespace, db: Handle, engine: Engine) -> None:
    prefix, _, rest = arguments.conversation.partition("-")
    rounds = arguments.rounds or 1
    while rounds > 0:
        reply = await dispatch_to_agent(
            arguments.prompt,
            prefix,
            rest,
            db,
            arguments.data,
            engine,
            system_prompt=arguments.system_prompt,
            fresh=arguments.fresh,
        )
        print(reply.text, flush=True)
        rounds -= not arguments.loop
        await asyncio.sleep(arguments.every if arguments.loop else 0)


async def _send(arguments: argparse.Namespace, db: Handle, engine: Engine) -> None:
    print(await send(arguments.conversation, arguments.prompt, db, arguments.data, engine))


async def _poller(arguments: argparse.Namespace, db: Handle, engine: Engine) -> None:
    use_wal(db)
    await whatsapp.poll(db, every=arguments.every, rounds=arguments.rounds, prefix=arguments.prefix)


async def _whatsapp(arguments: argparse.Namespace, db: Handle, engine: Engine) -> None:
    use_wal(db)
    rounds = arguments.rounds or 1
    while rounds > 0:
        whatsapp.receive(db, arguments.jid, "someone", arguments.message)
        reply = await whatsapp.flush(db, arguments.data, engine, arguments.jid)
        print(reply.text, flush=True)
        rounds -= not arguments.loop
        await asyncio.sleep(arguments.every if arguments.loop else 0)


async def _tool(arguments: argparse.Namespace, db: Handle, engine: Engine) -> None:
    print(call(db, arguments.conversation, arguments.tool, json.loads(arguments.arguments)))


async def _init(arguments: argparse.Namespace, db: Handle, engine: Engine) -> None:
    """Nothing after what each start does."""


async def _hold(arguments: argparse.Namespace, db: Handle, engine: Engine) -> None:
    db.execute("BEGIN IMMEDIATE")
    db.record.add("ready")
    await asyncio.sleep(arguments.seconds)
    db.rollback()


async def _probe(arguments: argparse.Namespace, db: Handle, engine: Engine) -> None:
    """Each wait is the time for which somebody else has held the lock, to a millisecond or two."""
    db.execute("PRAGMA busy_timeout=0")
    db.record.add("ready")
    begin = None
    while True:
        try:
            db.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError as error:
            if "locked" not in str(error):
                raise
            if begin is None:
                begin = time.monotonic()
                db.record.add("waits")
            await asyncio.sleep(0.001)
            continue
        db.rollback()
        if begin is not None:
            db.record.add("waited", seconds=time.monotonic() - begin)
            begin = None
        await asyncio.sleep(arguments.every)


async def _original(arguments: argparse.Namespace, db: Handle, engine: Engine) -> None:
    await original.serve(db, arguments.data, engine, arguments.every)


ROLES = {
    "scheduler": _scheduler,
    "dispatch": _dispatch,
    "send": _send,
    "poller": _poller,
    "whatsapp": _whatsapp,
    "tool": _tool,
    "init": _init,
    "hold": _hold,
    "probe": _probe,
    "original": _original,
}


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.double", description=__doc__)
    roles = parser.add_subparsers(dest="role", required=True)
    intervals = {"scheduler": 60.0, "poller": whatsapp.EVERY, "original": 10.0, "probe": 0.002}
    for name in ROLES:
        role = roles.add_parser(name)
        role.add_argument("--data", type=Path, required=True, help="PYKOCLAW_DATA")
        role.add_argument("--record", type=Path, help="file for what was done")
        role.add_argument("--every", type=float, default=intervals.get(name, 0.05), help="seconds")
        role.add_argument("--rounds", type=int, help="end after so many; default: never, or one")
        role.add_argument("--claude", action="store_true", help="run the real CLI")
        role.add_argument("--text", default="Done.", help="the canned answer")
        role.add_argument("--seconds", type=float, default=0.0, help="how long a turn takes")
        role.add_argument("--unknown", action="append", default=[], help="an id not to be resumed")
        role.add_argument("--loop", action="store_true", help="again and again")
        if name in ("dispatch", "send", "tool"):
            role.add_argument("conversation")
        if name in ("dispatch", "send"):
            role.add_argument("prompt")
        if name == "dispatch":
            role.add_argument("--system-prompt")
            role.add_argument("--fresh", action="store_true")
        elif name == "tool":
            role.add_argument("tool")
            role.add_argument("arguments", help="JSON")
        elif name == "whatsapp":
            role.add_argument("jid")
            role.add_argument("message")
        elif name == "poller":
            role.add_argument("--prefix", default="wa")
    check = roles.add_parser("healthcheck")
    check.add_argument("--within", type=float, default=10.0, help="seconds")
    check.add_argument("command", nargs="+", help="after --: the program and `acp`")
    return parser


if __name__ == "__main__":
    sys.exit(main())
