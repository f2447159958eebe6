"""How tests start a role, look at its record, and end it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

from tests.double.record import entries
from tests.waiting import eventually

CHECKOUT: Final = Path(__file__).parents[2]
PATIENCE: Final = 120.0  # s


class Role:
    """A process of the double. `record` is a file of its own."""

    def __init__(self, process: asyncio.subprocess.Process, record: Path, log: Path) -> None:
        self.process = process
        self.record = record
        self.log = log

    @classmethod
    async def start(
        cls,
        data: Path,
        environment: Mapping[str, str],
        role: str,
        *arguments: str,
        stdin: int = asyncio.subprocess.DEVNULL,
    ) -> Role:
        """Start a role on a data directory; its record and its output go next to that directory,
        `<data>.double/`.

        With `--claude` the environment must lead to the scripted model. As root the CLI needs
        IS_SANDBOX for `bypassPermissions`, which is set here.
        """
        place = data.with_name(f"{data.name}.double")
        place.mkdir(exist_ok=True, parents=True)
        number = len(list(place.glob("*.log")))
        record, log = place / f"{role}-{number}.ndjson", place / f"{role}-{number}.log"
        with log.open("wb") as output:
            process = await asyncio.create_subprocess_exec(
                *command(role, *arguments, data=data, record=record),
                stdin=stdin, stdout=output if stdin == asyncio.subprocess.DEVNULL else asyncio.subprocess.PIPE,
                stderr=output, env=with_checkout(environment), cwd="/",
            )  # fmt: skip
        return cls(process, record, log)

    @classmethod
    @asynccontextmanager
    async def started(
        cls, data: Path, environment: Mapping[str, str], role: str, *arguments: str
    ) -> AsyncIterator[Role]:
        """`start`, and SIGKILL at the end of the block if it still runs."""
        made = await cls.start(data, environment, role, *arguments)
        try:
            yield made
        finally:
            made.kill()
            await made.process.wait()

    @classmethod
    async def run(
        cls, data: Path, environment: Mapping[str, str], role: str, *arguments: str
    ) -> Role:
        """`start`, and wait for its end, which must be a success."""
        async with cls.started(data, environment, role, *arguments) as made:
            await made.ended()
        return made

    def entries(self, did: str | None = None, **values: Any) -> list[dict[str, Any]]:
        """What it has done, in order: of this kind, with these values."""
        return [
            one
            for one in entries(self.record)
            if (did is None or one["did"] == did) and one.items() >= values.items()
        ]

    async def until(self, did: str, **values: Any) -> dict[str, Any]:
        """Wait for such an entry; AssertionError with its output if it ends before."""

        def found() -> list[dict[str, Any]]:
            over = self.process.returncode is not None
            seen = self.entries(did, **values)
            assert seen or not over, f"it has ended, {self.process.returncode}: {self.output()}"
            return seen

        return (await eventually(found, PATIENCE))[0]

    async def ended(self) -> None:
        """Wait for its end, which must be a success."""
        status = await asyncio.wait_for(self.process.wait(), PATIENCE)
        assert status == 0, f"exit status {status}: {self.output()}"

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            self.process.kill()

    def failures(self) -> list[dict[str, Any]]:
        """Errors that people would see, and locks that the program passes over in silence."""
        return [
            one
            for one in self.entries()
            if one["did"] == "failed" or "locked" in str(one.get("error") or "")
        ]

    def output(self) -> str:
        return self.log.read_text(errors="replace")


def command(role: str, *arguments: str, data: Path, record: Path | None = None) -> list[str]:
    """The command line of a role."""
    recorded = [] if record is None else ["--record", os.fspath(record)]
    return [
        sys.executable, "-m", "tests.double", role, "--data", os.fspath(data), *recorded, *arguments,
    ]  # fmt: skip


def with_checkout(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment with which a process finds the double, whatever its cwd is."""
    paths = [os.fspath(CHECKOUT), environment.get("PYTHONPATH", "")]
    return {
        **environment,
        "PYTHONPATH": os.pathsep.join(filter(None, paths)),
        "IS_SANDBOX": "1",
    }
