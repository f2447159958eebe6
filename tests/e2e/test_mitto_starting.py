"""Mitto starts a front: its daemon and Claude may be away, its pipes and its stderr are watched.

mitto_helpers.py lists what the numbers and letters in the names of the tests stand for.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time

import pytest

from tests.e2e.harness import RpcError, ServerGone, Stack
from tests.e2e.harness.stack import PROGRAM
from tests.e2e.mitto import Conversation, Mitto, Wire, mitto, reading
from tests.e2e.mitto_helpers import AT_ONCE, fold, play, ticks, wire_of
from tests.waiting import eventually


def descriptors(pid: int) -> set[str]:
    """What the process has open; nothing of one that is gone."""
    found = set()
    with contextlib.suppress(OSError):
        for entry in os.scandir(f"/proc/{pid}/fd"):
            with contextlib.suppress(OSError):
                found.add(os.readlink(entry.path))
    return found


@pytest.mark.long
async def test_2_conversations_survive_a_killed_daemon(stack: Stack, web: Mitto) -> None:
    conversation = Conversation()
    await web.open(conversation)
    await web.prompt(conversation, play("text Before."))
    for _ in range(3):  # the third failure in a row would archive it
        await web.shutdown()
        await stack.kill_everything()
        await web.open(conversation)
    assert conversation.methods == ["new", *["resume"] * 3]
    assert (conversation.start_failures, conversation.archived) == (0, False)
    await web.prompt(conversation, play("text After."))
    assert conversation.text.endswith("After.")


@pytest.mark.long
async def test_2_conversations_survive_when_claude_cannot_start(stack: Stack, web: Mitto) -> None:
    conversation = Conversation()
    await web.open(conversation)
    await web.prompt(conversation, play("text Before."))
    away = Mitto(stack, PYKOCLAW_CLI_PATH="/bin/false")
    for _ in range(3):
        await (away.shutdown() if away.wire else web.shutdown())
        await stack.kill_everything()
        await away.open(conversation)
    assert await away.prompt(conversation, play("text Never said.")) is None
    assert conversation.errors[-1].startswith("Prompt failed: ")
    await away.shutdown()
    await stack.kill_everything()
    await web.open(conversation)
    assert set(conversation.methods[1:]) == {"resume"}
    assert conversation.start_failures == 0
    assert await web.prompt(conversation, play("text After.")) == "end_turn"


@pytest.mark.long
async def test_2_a_front_waits_for_a_late_daemon(stack: Stack, web: Mitto) -> None:
    """It starts although no daemon can start yet."""
    conversation = Conversation()
    await web.open(conversation)
    await web.prompt(conversation, play("text Before."))
    await web.shutdown()
    await stack.end_daemon()
    holder = await stack.start()  # has the data directory: no daemon can have it
    opening = asyncio.ensure_future(web.open(conversation))
    await eventually(lambda: web.wire)
    assert not opening.done()
    await holder.close()
    await opening
    assert conversation.methods == ["new", "resume"]
    assert conversation.start_failures == 0


@pytest.mark.long
async def test_5_no_start_error_reads_as_permanent(stack: Stack) -> None:
    """A broken setting is final for us; nothing that Mitto takes for a missing program is said
    about it.
    """
    web = Mitto(stack, PYKOCLAW_IDLE_TIMEOUT="soon")
    with pytest.raises((RpcError, ServerGone)):
        await web.open(Conversation())
    (wire,) = [one for one in stack.clients if isinstance(one, Wire)]
    assert await wire.gone() == 78
    assert "PYKOCLAW_IDLE_TIMEOUT" in wire.stderr
    assert not [word for word in reading.HOPELESS if word in wire.stderr.lower()]
    assert wire.alarms == []


async def test_5_pipes_close_with_a_killed_front(shared: Stack) -> None:
    """Mitto notices the end by the pipe, not by the process; daemon, workers and tools live on."""
    web = Mitto(shared)
    conversation = Conversation()
    await web.open(conversation)
    turn = asyncio.ensure_future(
        web.prompt(conversation, play("bash touch begun; sleep 300", "text Never said."))
    )
    await eventually(lambda: shared.find("sleep 300"))
    wire = wire_of(web)
    pipes = {os.readlink(f"/proc/{wire.process.pid}/fd/{number}") for number in range(3)}
    for process in shared.processes():
        if process.pid != wire.process.pid:
            assert not pipes & descriptors(process.pid), process.command
    turn.cancel()
    began = time.monotonic()
    await web.shutdown()
    assert time.monotonic() - began < AT_ONCE
    assert shared.find("sleep 300")
    await web.open(conversation)
    web.stop(conversation)
    await eventually(lambda: not shared.find("sleep 300"))


@pytest.mark.long
async def test_18_a_front_killed_while_starting_is_harmless(stack: Stack, web: Mitto) -> None:
    """It leaves nothing behind, and the next front works."""
    for _ in range(4):
        wire = await stack.connect(Wire, *PROGRAM)
        wire.begin("initialize", **mitto.INITIALIZE)
        await wire.kill_group()
    conversation = Conversation()
    await web.open(conversation)
    assert await web.prompt(conversation, play("text Well.")) == "end_turn"
    assert stack.daemon_pid() is not None


@pytest.mark.long
async def test_b_a_front_starts_and_outlives_the_daemon(stack: Stack, web: Mitto) -> None:
    """Its stderr stays a single line, whatever tools write, and although the daemon dies (5)."""
    conversation = Conversation()
    await web.open(conversation)
    words = "; ".join(reading.ALARMS)
    await web.prompt(conversation, play(f"bash echo '{words}' >&2", f"text {words}"))
    wire, pid = wire_of(web), stack.daemon_pid()
    assert pid is not None
    assert wire.process.pid not in (pid, os.getsid(pid), os.getpgid(pid))
    assert wire.stderr  # one line, early: that quiets a watchdog of Mitto's
    turn = asyncio.ensure_future(
        web.prompt(conversation, play("repeat 300x10ms tick{n}. ", "text The end."))
    )
    await wire.until(lambda: "tick9." in fold(wire, conversation.session))
    os.kill(pid, 9)
    assert await turn == "end_turn"
    assert wire is web.wire
    assert fold(wire, conversation.session).endswith(f"{ticks(1, 300)}\nThe end.")
    assert len(wire.stderr.splitlines()) == 1
    assert (wire.alarms, wire.noise) == ([], [])
