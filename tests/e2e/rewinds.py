"""What tests of rewinding share."""

from __future__ import annotations

from tests.e2e.harness import Client, Stack


async def front(stack: Stack) -> Client:
    """A client of the resident daemon, which has these methods."""
    await stack.daemon()
    client = await stack.front()
    await client.initialize()
    return client
