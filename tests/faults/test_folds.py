"""Places inside of a folded message: whoever stands there gets exactly the rest, also of what a
spool has added.
"""

from __future__ import annotations

import asyncio

import pytest

from tests.e2e.harness import Client, Stack, script
from tests.faults.adopting import LONG, alone, history, spools, words
from tests.waiting import eventually


def place(client: Client, session: str, part: float) -> tuple[int, str]:
    """The client's place after this part of the answer's updates, and the text up to there."""
    chunks = client.of(session, "agent_message_chunk")
    shown = chunks[: int(len(chunks) * part)]
    return shown[-1]["_meta"]["pykoclaw.dev/seq"], "".join(one["content"]["text"] for one in shown)


def folded(stack: Stack, session: str, seq: int) -> dict[str, int]:
    """The row that covers this place."""
    (row,) = [one for one in stack.log(session) if one["first"] <= seq <= one["seq"]]
    assert row["kind"] == "text"
    assert row["first"] < row["seq"]
    return row


async def rest_after(stack: Stack, session: str, seq: int) -> Client:
    """A client that has everything up to this place."""
    client = await stack.front()
    await client.resume(session, stack.work, after=seq)
    return client


async def test_clients_at_different_message_places_get_the_rest(stack: Stack) -> None:
    await stack.daemon()
    client = await stack.front()
    session = await client.new(stack.work)
    await client.prompt(session, script("repeat 200x5ms w{n}."))
    (early, before), (late, more) = place(client, session, 0.3), place(client, session, 0.7)
    assert folded(stack, session, early) == folded(stack, session, late)
    whole = client.text(session)
    first, second = await asyncio.gather(
        *(rest_after(stack, session, seq) for seq in (early, late))
    )
    await first.until(lambda: first.text(session) == whole.removeprefix(before))
    await second.until(lambda: second.text(session) == whole.removeprefix(more))
    await client.prompt(session, script("repeat 20x5ms x{n}."))
    whole = client.text(session)
    await first.until(lambda: first.text(session) == whole.removeprefix(before))
    await second.until(lambda: second.text(session) == whole.removeprefix(more))


@pytest.mark.long
async def test_dead_workers_spool_continues_begun_message(stack: Stack) -> None:
    session, seen, worker = await alone(stack, LONG)
    await eventually(lambda: any(path.stat().st_size > 20_000 for path in spools(stack)))
    worker.kill()
    await eventually(lambda: not stack.processes())
    after = await history(stack, session)
    said = words(after, session)
    assert len(said) > len(words(seen, session)) + 50
    assert said == [f"w{n}" for n in range(1, len(said) + 1)]
    places = stack.covered(session)
    assert places == list(range(1, len(places) + 1))
    seq, before = place(seen, session, 0.5)
    row = folded(stack, session, seq)
    assert row["seq"] > seen.of(session)[-1]["_meta"]["pykoclaw.dev/seq"], (
        "what the spool had is in the same row"
    )
    fresh = await rest_after(stack, session, seq)
    await fresh.until(lambda: fresh.text(session) == after.text(session).removeprefix(before))
