"""The agent in memory as a process on stdio: `python -m tests.conformance.fake [RULE]`, with the
fault that breaks this rule. Another process does not know its sessions.
"""

from __future__ import annotations

import asyncio
import sys

from tests.conformance.fake.installation import Installation
from tests.conformance.fake.wire import Fault, MemoryWire
from tests.conformance.planted import PLANTED

LINE_LIMIT = 64 * 1024 * 1024  # bytes


async def serve(fault: Fault) -> None:
    """Until the end of the input."""
    wire = MemoryWire(Installation(logins=fault.logins), fault)
    said = asyncio.create_task(_say(wire))
    reader = asyncio.StreamReader(limit=LINE_LIMIT)
    loop = asyncio.get_running_loop()
    transport, _ = await loop.connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), sys.stdin
    )
    while line := await reader.readline():
        wire.write(line)
    transport.close()
    wire.end_input()
    await said


async def _say(wire: MemoryWire) -> None:
    while line := await wire.readline():
        sys.stdout.buffer.write(line)
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    asyncio.run(serve(PLANTED[sys.argv[1]] if len(sys.argv) > 1 else Fault()))
