"""Queries of many clients on two readers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from pykoclaw_acp import on_behalf
from pykoclaw_acp.store.readers import ReaderPool


class Reader:
    """Takes a round of the loop for each query."""

    async def run(self, work: Any) -> Any:
        await asyncio.sleep(0)
        return work(None)

    async def close(self) -> None: ...


@pytest.mark.parametrize("work_for", [on_behalf.of, on_behalf.of_session])
async def test_nobody_waits_for_queue_of_another(work_for: Callable[[str], object]) -> None:
    readers: list[Any] = [Reader(), Reader()]
    pool, order = ReaderPool(readers), []

    async def reading(client: str, times: int) -> None:
        work_for(client)
        await asyncio.gather(
            *(pool.read_with(lambda _: order.append(client)) for _ in range(times))
        )

    async with asyncio.TaskGroup() as group:
        group.create_task(reading("flood", 500))
        await asyncio.sleep(0)
        group.create_task(reading("quiet", 2))
    assert len(order) == 502
    assert [at for at, client in enumerate(order) if client == "quiet"][-1] < 10
    await pool.close()


async def test_query_that_was_cancelled_blocks_no_reader() -> None:
    readers: list[Any] = [Reader()]
    pool = ReaderPool(readers)
    queries = [asyncio.ensure_future(pool.read_with(lambda _: None)) for _ in range(5)]
    await asyncio.sleep(0)
    for query in queries:
        query.cancel()
    assert await asyncio.wait_for(pool.read_with(lambda _: "read"), 10) == "read"
    await pool.close()
