"""A client that asks for much: its share, a bound for what waits, answers that it has to take;
others do not notice.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from pykoclaw_acp import tasks
from pykoclaw_acp.model.turns import SessionRecord
from pykoclaw_acp.protocol.control.sessions import SessionSummary
from pykoclaw_acp.server import calls, share
from pykoclaw_acp.server.share import CALLS
from pykoclaw_acp.sessions.subscription import Subscription
from pykoclaw_acp.sessions.turns import queue
from pykoclaw_acp.sessions.turns.queue import MOST_WAITING
from pykoclaw_acp.store import summaries
from pykoclaw_acp.store.session_journal import SessionJournal
from tests.integration.callers import caller, prompted
from tests.integration.linked import front
from tests.integration.rig import rig
from tests.integration.wires import client, hanging, prompt
from tests.waiting import eventually


async def test_session_bounds_waiting_prompts_and_advises_on_more(tmp_path: Path) -> None:
    async with rig(tmp_path) as r, client(r) as wire:
        session, _, channel, turn = await hanging(r, wire)
        asked = [
            wire.begin("session/prompt", **prompt(session, f"say {n}"))
            for n in range(MOST_WAITING + 20)
        ]
        refused = [await wire.answer(message_id) for message_id in asked[MOST_WAITING:]]
        for answer in refused:
            assert answer["error"]["code"] == -32012
            assert answer["error"]["data"] == {"errorKind": "too_many_prompts", "retryable": True}
            assert "`pykoclaw-acp workers stop SESSION`" in answer["error"]["message"]
        assert len(await r.states()) == MOST_WAITING + 1, "of a refused prompt nothing is kept"
        channel.say(channel.ended(turn))
        await wire.answer(asked[0])
        assert "result" in await wire.call("session/prompt", **prompt(session, "say 1"))


async def test_repeated_prompt_joins_turn_however_many_wait(tmp_path: Path) -> None:
    async with rig(tmp_path) as r, client(r) as wire:
        session, _, channel, turn = await hanging(r, wire)
        key = {"_meta": {"pykoclaw.dev/idempotencyKey": "k"}}
        first = wire.begin("session/prompt", **prompt(session, "say 1"), **key)
        for n in range(MOST_WAITING):
            wire.begin("session/prompt", **prompt(session, f"say {n}"))
        again = wire.begin("session/prompt", **prompt(session, "say 1"), **key)
        channel.say(channel.ended(turn))
        assert "result" in await wire.answer(first)
        assert "result" in await wire.answer(again)


async def test_long_prompts_that_wait_have_a_bound_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue, "MOST_TEXT", 1000)
    async with rig(tmp_path) as r, client(r) as wire:
        session, _, _, _ = await hanging(r, wire)
        wire.begin("session/prompt", **prompt(session, "x" * 600))
        refused = await wire.call("session/prompt", **prompt(session, "y" * 600))
        assert refused["error"]["data"]["errorKind"] == "too_many_prompts"
        wire.begin("session/prompt", **prompt(session, "z" * 300))
        await eventually(lambda: len(r.sessions.live[session].turns) == 3)


async def test_prompt_above_the_bound_is_refused_for_good(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue, "MOST_TEXT", 1000)
    async with rig(tmp_path) as r, client(r) as wire:
        session, _, channel, turn = await hanging(r, wire)
        for way in ("steer", "queue"):
            more = {"_meta": {"pykoclaw.dev/steering": way}}
            refused = await wire.call("session/prompt", **prompt(session, "x" * 1001), **more)
            assert refused["error"]["code"] == -32602
            assert "1,001 characters" in refused["error"]["message"]
        assert "errorKind" not in (refused["error"].get("data") or {})
        channel.say(channel.ended(turn))


async def test_waiting_prompts_are_bounded_over_all_sessions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue, "MOST_WAITING_ALL", 3)
    async with rig(tmp_path) as r, client(r) as wire:
        (session, _, channel, turn), (other, *_) = await hanging(r, wire), await hanging(r, wire)
        first, *_ = [
            wire.begin("session/prompt", **prompt(one, "say 1"))
            for one in (session, session, other)
        ]
        await eventually(
            lambda: len(r.sessions.live[session].turns + r.sessions.live[other].turns) == 5
        )
        refused = await wire.call("session/prompt", **prompt(other, "say 2"))
        assert refused["error"]["data"] == {"errorKind": "too_many_prompts", "retryable": True}
        channel.say(channel.ended(turn))
        assert "result" in await wire.answer(first)
        wire.begin("session/prompt", **prompt(other, "say 3"))
        await eventually(lambda: len(r.sessions.live[other].turns) == 3)


def counted_listings(monkeypatch: pytest.MonkeyPatch) -> list[None]:
    """One for each listing that is made from now on."""
    made: list[None] = []
    listing = summaries.listing

    async def counting(*arguments: Any, **options: Any) -> Any:
        made.append(None)
        return await listing(*arguments, **options)

    monkeypatch.setattr(summaries, "listing", counting)
    return made


async def test_client_runs_one_large_call_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three hundred listings, and nobody who reads: one was made, and the others cost what a call
    costs.
    """
    made = counted_listings(monkeypatch)
    async with rig(tmp_path) as r, caller(r, tmp_path) as deaf, caller(r, tmp_path) as other:
        await prompted(r)
        reads = asyncio.Event()
        take = deaf.write

        async def write(line: bytes) -> None:
            await reads.wait()
            await take(line)

        monkeypatch.setattr(deaf, "write", write)
        for _ in range(300):
            deaf.begin("sessions/list", limit=10_000)
        await eventually(lambda: len(deaf.connection.calls) == 300)
        for _ in range(3):
            assert len((await other.call("sessions/list"))["sessions"]) == 1
        assert len(made) == 1 + 3
        reads.set()
        await eventually(lambda: len(deaf.answers) == 300)
        assert len(made) == 303


async def test_listings_that_nobody_awaits_are_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = counted_listings(monkeypatch)
    async with rig(tmp_path) as r, caller(r, tmp_path) as gone:

        async def write(line: bytes) -> None:
            raise ConnectionError

        monkeypatch.setattr(gone, "write", write)
        for _ in range(300):
            gone.begin("sessions/list")
        await eventually(lambda: made and not gone.connection.calls)
    assert len(made) < 30, "those that were read later"


async def test_a_listing_is_made_in_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks, "SLICE", 0)
    rounds = 0

    async def count() -> None:
        nonlocal rounds
        while True:
            await asyncio.sleep(0)
            rounds += 1

    async with rig(tmp_path) as r, caller(r, tmp_path) as wire:
        ids = {(await r.sessions.create("/", (), ())).id for _ in range(100)}
        counting = asyncio.ensure_future(count())
        encode, at = msgspec.json.encode, list[int]()

        def encoding(value: Any) -> bytes:
            if isinstance(value, SessionSummary):
                at.append(rounds)
            return encode(value)

        monkeypatch.setattr(msgspec.json, "encode", encoding)
        found = await wire.call("sessions/list", all=True, limit=100)
        less = await wire.call("sessions/list", all=True, limit=99)
        counting.cancel()
    assert {one["id"] for one in found["sessions"]} == ids
    assert (found["more"], less["more"], len(less["sessions"])) == (False, True, 99)
    assert max(at.count(one) for one in at) <= 2, "all else goes on between two sessions"


async def test_the_confirmations_of_a_front_have_their_share(tmp_path: Path) -> None:
    """Of a chunk that holds nothing else."""
    async with rig(tmp_path) as r, front(r) as wire:
        wire.say("seen 1 1\n" * 100_000)
        await eventually(lambda: wire.connection is not None and wire.connection.share.waited >= 5)


async def test_too_many_calls_are_refused_then_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calls, "MAX_CALLS", 10)
    monkeypatch.setattr(calls, "MOST_OPEN", 20)
    async with rig(tmp_path) as r, client(r) as wire:
        wire.blocked.clear()
        asked = [wire.begin("session/new", cwd="/", mcpServers=[]) for _ in range(100)]
        await eventually(lambda: len(wire.connection.calls) == 20)
        assert wire.incoming.qsize() >= 70, "what it says more is not read"
        wire.blocked.set()
        answers = [await wire.answer(message_id) for message_id in asked]
        refused = [answer["error"] for answer in answers if "error" in answer]
        assert refused
        assert {error["code"] for error in refused} == {-32012}
        assert {error["data"]["errorKind"] for error in refused} == {"too_many_calls"}


async def test_flood_of_new_sessions_alternates_with_other_client(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The order in which the journal gets them: neither a lock nor its queue is full of one
    client's.
    """
    monkeypatch.setattr(share, "PAUSE", 0)
    gate, made, create = asyncio.Event(), list[str](), SessionJournal.create

    async def creating(journal: SessionJournal, record: SessionRecord) -> None:
        await gate.wait()
        made.append(str(record.cwd))
        await create(journal, record)

    monkeypatch.setattr(SessionJournal, "create", creating)
    async with rig(tmp_path) as r, client(r) as flood, client(r) as other:
        asked = [flood.begin("session/new", cwd="/", mcpServers=[]) for _ in range(400)]
        await eventually(lambda: len(flood.connection.calls) == 400)
        quiet = other.begin("session/new", cwd="/proc", mcpServers=[])
        await eventually(lambda: len(other.connection.calls))
        gate.set()
        assert "result" in await other.answer(quiet)
        assert made.index("/proc") <= 4
        for one in asked:
            assert "result" in await flood.answer(one)


async def test_only_mass_senders_pause_between_sessions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pause is an hour here: whoever has to make one is not answered."""
    monkeypatch.setattr(share, "PAUSE", 3600)
    async with rig(tmp_path) as r, client(r) as greedy, client(r) as other:
        for _ in range(3):  # each after the answer to the one before
            assert "result" in await greedy.call("session/new", cwd=str(tmp_path), mcpServers=[])
        first, second = [
            greedy.begin("session/new", cwd=str(tmp_path), mcpServers=[]) for _ in range(2)
        ]
        assert "result" in await greedy.answer(first)
        assert "result" in await other.call("session/new", cwd=str(tmp_path), mcpServers=[])
        assert "result" in await greedy.call("initialize", protocolVersion=1)
        assert not any(line.get("id") == second for line in greedy.lines)
        greedy.send({"method": "$/cancel_request", "params": {"requestId": second}})
        assert (await greedy.answer(second))["error"]["code"] == -32800


async def test_many_simultaneous_requests_start_in_portions(tmp_path: Path) -> None:
    async with rig(tmp_path) as r, client(r) as flood, client(r) as other:
        lines = [
            json.dumps({"jsonrpc": "2.0", "id": n, "method": "session/set_mode", "params": {}})
            for n in range(2000)
        ]
        most = 0

        async def watch() -> None:
            nonlocal most
            while True:
                most = max(most, len(flood.connection.calls))
                await asyncio.sleep(0)

        watching = asyncio.ensure_future(watch())
        flood.incoming.put_nowait("".join(line + "\n" for line in lines).encode())
        quiet = await other.call("session/new", cwd="/", mcpServers=[])
        assert "result" in quiet
        await eventually(lambda: sum("error" in line for line in flood.lines) == 2000)
        assert flood.connection.share.waited >= 2000 / CALLS - 1
        watching.cancel()
        assert most <= 4 * CALLS


async def test_client_with_many_sessions_leaves_in_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tasks, "SLICE", 0)
    rounds, at, close = 0, list[int](), Subscription.close

    async def count() -> None:
        nonlocal rounds
        while True:
            await asyncio.sleep(0)
            rounds += 1

    def closing(subscription: Subscription) -> None:
        if subscription.alive:
            at.append(rounds)
        close(subscription)

    monkeypatch.setattr(Subscription, "close", closing)
    async with rig(tmp_path) as r, client(r) as wire:
        for _ in range(20):
            assert "result" in await wire.call("session/new", cwd="/", mcpServers=[])
        followed = list(wire.connection.client.subscriber.subscriptions.values())
        counting = asyncio.ensure_future(count())
        await wire.connection.let_go()
        counting.cancel()
        assert len(at) == len(followed) == 20
        assert len(set(at)) == 20, "all else goes on between two sessions"
        await eventually(lambda: not any(one.alive for one in followed))
