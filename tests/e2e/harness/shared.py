"""A daemon that runs already, for tests that only talk to one: what they have of it, and what they
must leave of it.
"""

from __future__ import annotations

import asyncio
import subprocess
from pathlib import Path
from typing import Final, NoReturn

from pykoclaw_acp.front.call import call
from pykoclaw_acp.scripted_model.process import ScriptedModel
from tests.e2e.harness import processes
from tests.e2e.harness.client import Client
from tests.e2e.harness.stack import PROGRAM, Stack
from tests.waiting import eventually, eventually_sync

STOP_WAIT: Final = 60.0  # s
RESIDENTS: Final = (processes.FORK_SERVER, processes.READER)  # what the daemon may keep


class Resident:
    """A home with a daemon, for one test after the other; there is one for each process that runs
    tests.
    """

    def __init__(self, root: Path, model: ScriptedModel) -> None:
        self.root = root
        self.log = root / "daemon.log"
        self._process: subprocess.Popen[bytes] | None = None
        self._stack = Stack(root, model)

    @property
    def home(self) -> Path:
        return self._stack.home

    def serve(self) -> None:
        """Start the daemon if there is none."""
        if self._process is not None and self._process.poll() is None:
            return
        with self.log.open("ab") as log:
            process = self._process = subprocess.Popen(
                [*PROGRAM, "serve"], stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                env=self._stack.environment, cwd="/",
            )  # fmt: skip
        eventually_sync(lambda: process.poll() is not None or self._stack.serves(process.pid))
        assert process.poll() is None, self.log.read_text()[-2000:]

    def end(self) -> None:
        """As an operator does; nothing of it may be left."""
        if self._process is None:
            return
        self._process.terminate()
        try:
            assert self._process.wait(STOP_WAIT) == 0, self.log.read_text()[-2000:]
            eventually_sync(lambda: not self._stack.processes())
        finally:
            self.discard()

    def discard(self) -> None:
        """SIGKILL all of it; the next test starts it anew."""

        def killed() -> bool:
            found = self._stack.processes()
            for one in found:
                one.kill()
            return not found

        eventually_sync(killed)
        if self._process is not None:
            self._process.wait()
            self._process = None


class Guest(Stack):
    """A test at a resident daemon: directories, clients and sessions of its own, and nothing else.

    For tests that look at their own sessions alone, in the daemon's usual settings, and let it
    live.
    """

    def __init__(self, root: Path, model: ScriptedModel, resident: Resident) -> None:
        super().__init__(root, model, resident.home)
        self._resident = resident
        self._logged = resident.log.stat().st_size

    async def spawn(self, **environment: str) -> Client:
        """A client behind a front, not initialized."""
        assert not environment, "the settings are the daemon's"
        return await self.spawn_front()

    def server_log(self, client: Client) -> str:
        with self._resident.log.open("rb") as log:
            log.seek(self._logged)
            return log.read().decode(errors="replace")

    async def daemon(self, **_: object) -> NoReturn:
        raise AssertionError("it runs already")

    async def close(self) -> None:
        """End the clients and the workers, and see that nothing else is left."""
        try:
            statuses = [
                await client.close() for client in self.clients if client.process.returncode is None
            ]
            await asyncio.to_thread(
                call, self.places, "_pykoclaw.dev/workers/stop", {"all": True, "now": True}
            )
            await eventually(lambda: self.strays() == [])
        except BaseException:
            self._resident.discard()
            for client in self.clients:
                await client.gone()
            raise
        for client in self.clients:
            if client.fault is not None:
                raise client.fault
        assert not any(statuses), f"exit statuses {statuses}"

    def strays(self) -> list[processes.Process]:
        """What is neither the daemon nor its fork server nor a reader of transcripts, which ends
        by itself.
        """
        pid = self.daemon_pid()
        return [
            one
            for one in self.processes()
            if one.pid != pid
            and not (
                one.parent == pid
                and any(command in one.command for command in RESIDENTS)
                and not one.is_worker
            )
        ]
