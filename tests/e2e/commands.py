"""Commands, run as a user does."""

from __future__ import annotations

import asyncio
import json
from asyncio.subprocess import DEVNULL, PIPE
from dataclasses import dataclass
from typing import Any

from tests.e2e.harness import Stack
from tests.e2e.harness.stack import PROGRAM


@dataclass(frozen=True)
class Result:
    """What a command left; `out` is its standard output."""

    status: int
    out: str
    error: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


async def run(
    stack: Stack, *arguments: str, program: tuple[str, ...] = PROGRAM, **environment: str
) -> Result:
    process = await asyncio.create_subprocess_exec(
        *program, *arguments, stdin=DEVNULL, stdout=PIPE, stderr=PIPE,
        env={**stack.environment, **environment}, cwd=stack.root,
    )  # fmt: skip
    out, error = await asyncio.wait_for(process.communicate(), 240)
    assert process.returncode is not None
    return Result(process.returncode, out.decode(), error.decode())


async def done(
    stack: Stack, *arguments: str, program: tuple[str, ...] = PROGRAM, **environment: str
) -> Result:
    """A command that succeeds and has nothing to complain about."""
    result = await run(stack, *arguments, program=program, **environment)
    assert (result.status, result.error) == (0, "")
    return result
