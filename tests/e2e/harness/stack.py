"""A home, a directory to work in, the scripted model, and servers on top of them."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import Any, Final, TypeVar

from pykoclaw_acp.link.places import Places, connect, lock_holder
from pykoclaw_acp.scripted_model.environment import offline_environment
from pykoclaw_acp.scripted_model.process import ScriptedModel
from pykoclaw_acp.store.sqlite import sqlite3
from tests.e2e.harness import frames, processes, tee
from tests.e2e.harness.client import Client
from tests.e2e.harness.processes import Process
from tests.waiting import eventually

ClientT = TypeVar("ClientT", bound=Client)

PROGRAM: Final = (sys.executable, "-m", "pykoclaw_acp")
STREAM_LIMIT = 64 * 1024 * 1024  # bytes; above what the server may ever write in a line


def script(*lines: str) -> str:
    """A prompt that the scripted model plays."""
    return "\n".join(("[[script", *lines, "]]"))


def text(answer: str) -> str:
    """A prompt that is answered so."""
    return script(f"text {answer}")


class Stack:
    """Everything that one test needs; nothing of it is left when the test is over."""

    def __init__(self, root: Path, model: ScriptedModel, home: Path | None = None) -> None:
        """`home`: one that is there already."""
        self.root = root
        self.home = home or root / "home"
        self.work = root / "work"
        self.home.mkdir(exist_ok=True)
        self.work.mkdir()
        self.model = model
        model.clear()  # what earlier tests asked would only make each look at it longer
        self.clients: list[Client] = []
        self.records = root / "records"
        self.daemons: list[asyncio.subprocess.Process] = []
        self.environment = {**os.environ, **offline_environment(model.url, self.home)}
        self.data = self.home / ".local/share/pykoclaw"

    def use(self, data: Path) -> None:
        """From now on everything is about this data directory: servers that are started, and what
        is asked here.
        """
        self.data = data
        self.environment["PYKOCLAW_DATA"] = os.fspath(data)

    async def spawn(self, **environment: str) -> Client:
        """A server and its client, not initialized."""
        return await self.connect(Client, *PROGRAM, "serve", "--stdio", **environment)

    async def start(self, **environment: str) -> Client:
        """A server and its client, initialized."""
        client = await self.spawn(**environment)
        await client.initialize()
        return client

    def recorded(self, *command: str) -> tuple[str, ...]:
        """The command of a server for a client of its own; `close` validates what the server wrote."""
        self.records.mkdir(exist_ok=True)
        return (sys.executable, tee.__file__, os.fspath(self.records), *command)

    # --- the resident daemon

    @property
    def places(self) -> Places:
        """Where the daemon of this home is."""
        return Places(self.data, self.home / ".local/state/pykoclaw")

    async def daemon(
        self, *, program: tuple[str, ...] = PROGRAM, **environment: str
    ) -> asyncio.subprocess.Process:
        """A daemon that serves."""
        process = await self._begin_daemon(program, environment)
        await eventually(lambda: process.returncode is not None or self.serves(process.pid))
        assert process.returncode is None, (self.root / "daemon.log").read_text()[-2000:]
        return process

    async def doomed(self, step: str, **environment: str) -> None:
        """A daemon that kills itself at this step; returns when it is dead."""
        process = await self._begin_daemon(PROGRAM, {"PYKOCLAW_CRASH_AT": step, **environment})
        status = await asyncio.wait_for(process.wait(), 120)
        assert status == -signal.SIGKILL, (self.root / "daemon.log").read_text()[-2000:]

    async def _begin_daemon(
        self, program: tuple[str, ...], environment: dict[str, str]
    ) -> asyncio.subprocess.Process:
        with (self.root / "daemon.log").open("ab") as stderr:
            process = await asyncio.create_subprocess_exec(
                *program, "serve", stdin=asyncio.subprocess.DEVNULL, stdout=stderr, stderr=stderr,
                env={**self.environment, **environment}, cwd="/",
            )  # fmt: skip
        self.daemons.append(process)
        return process

    def serves(self, pid: int) -> bool:
        """Whether this process is the daemon, and can be connected to."""
        holder = lock_holder(os.fspath(self.data))
        if holder is None or holder[0] != pid:
            return False
        try:
            connect(self.places.socket).close()
        except OSError:
            return False
        return True

    def daemon_pid(self) -> int | None:
        """Pid of the daemon that has the data directory, whoever started it."""
        holder = lock_holder(os.fspath(self.data))
        return None if holder is None else holder[0]

    async def end_daemon(self, number: signal.Signals = signal.SIGTERM) -> None:
        """Send the daemon that runs a signal, and wait until it is gone."""
        pid = self.daemon_pid()
        assert pid is not None
        os.kill(pid, number)
        await eventually(lambda: not processes.alive(pid))
        for process in self.daemons:
            if process.pid == pid:
                await process.wait()

    async def front(self, *, program: tuple[str, ...] = PROGRAM, **environment: str) -> Client:
        """A client behind a front, initialized; the front finds the daemon, or starts it."""
        client = await self.spawn_front(program=program, **environment)
        await client.initialize()
        return client

    async def spawn_front(
        self, *, program: tuple[str, ...] = PROGRAM, **environment: str
    ) -> Client:
        """A client behind a front, not initialized."""
        return await self.connect(Client, *program, **environment)

    async def connect(self, kind: type[ClientT], *command: str, **environment: str) -> ClientT:
        """A client of this class, and the process that the command starts for it."""
        log = self.root / f"client-{len(self.clients) + 1}.log"
        with log.open("wb") as stderr:
            process = await asyncio.create_subprocess_exec(
                *command, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=stderr,
                env={**self.environment, **environment}, cwd=self.root, limit=STREAM_LIMIT, start_new_session=True,
            )  # fmt: skip
        client = kind(process, log)
        self.clients.append(client)
        return client

    async def _end_residents(self) -> None:
        """The daemon, then the workers that outlive it, each as an operator would."""
        if self.daemon_pid() is not None:
            await self.end_daemon()
        for process in self.find("pykoclaw_acp serve"):  # one that a front has just started
            process.signal(signal.SIGTERM)
        for daemon in self.daemons:  # one that could not write down its pid
            if daemon.returncode is None:
                daemon.terminate()
                await daemon.wait()
        for process in self.processes():
            if process.is_worker:
                process.signal(signal.SIGTERM)

    async def close(self) -> None:
        """End every server as a client does, at the end of its input, and see that nothing of it is
        left.
        """
        statuses = [
            await client.close() for client in self.clients if client.process.returncode is None
        ]
        faults = [client.fault for client in self.clients if client.fault is not None]
        try:
            await self._end_residents()
            await self.nothing_left()
        finally:
            await self.kill_everything()
        if faults:
            raise faults[0]
        assert not any(statuses), f"exit statuses {statuses}"
        records = list(self.records.glob("*.out"))
        assert bool(records) == self.records.exists()
        assert all(frames.validate_record(one) for one in records), "a server said nothing"

    async def kill_everything(self) -> None:
        """SIGKILL every process of this home, whatever it is, until none is left."""

        def killed() -> bool:
            found = self.processes()
            for process in found:
                process.kill()
            return not found

        await eventually(killed)
        for client in self.clients:
            await client.gone()
        for process in self.daemons:
            await process.wait()

    # --- processes

    def processes(self) -> list[Process]:
        """All of this home."""
        return processes.of_home(self.home)

    def find(self, command: str) -> list[Process]:
        """Those whose command line holds this, the CLI (whose prompt might) left out."""
        return [one for one in self.processes() if command in one.command and not one.is_claude]

    def claude(self, session: str) -> Process | None:
        """The session's CLI."""
        return next(
            (one for one in self.processes() if one.is_claude and one.session == session), None
        )

    def worker(self, session: str) -> Process:
        """The session's worker, whose CLI runs."""
        every = {one.pid: one for one in self.processes()}
        claude = next(one for one in every.values() if one.is_claude and one.session == session)
        return every[claude.parent]

    def fork_server(self, client: Client) -> Process:
        """The fork server of this client's server, which has no worker as an orphan now."""
        (found,) = [
            one for one in self.find(processes.FORK_SERVER) if one.parent == client.process.pid
        ]
        return found

    async def no_worker(self, within: float = 60) -> None:
        """Wait until only the server and its fork server are left."""

        def only_servers() -> bool:
            left = self.processes()
            return (
                not any(one.session for one in left)
                and sum(processes.FORK_SERVER in one.command for one in left) < 2
            )

        await eventually(only_servers, within)

    async def nothing_left(self, within: float = 60) -> None:
        """Wait until no process of this home is left."""
        try:
            await eventually(lambda: not self.processes(), within)
        except AssertionError:
            raise AssertionError(f"left behind after {within} s: {self.processes()}") from None

    # --- model, log and database

    def server_log(self, client: Client) -> str:
        """What the server of this client has logged."""
        return client.log.read_text()

    def asked(self) -> list[dict[str, Any]]:
        """The requests that reached the model in this test, without those that Claude makes for
        itself.
        """
        return self.model.requests()

    def transcript(self, session: str) -> str:
        """What Claude has written down of the session; it does so some 100 ms late."""
        found = self.transcripts(session)
        return found[0].read_text() if found else ""

    def transcripts(self, session: str = "*") -> list[Path]:
        """Claude's files of the session, or of all."""
        return list((self.home / ".claude/projects").glob(f"*/{session}.jsonl"))

    def log(self, session: str) -> list[dict[str, Any]]:
        """The rows of a session's log: `first` and last `seq`, `kind` and `turn_id`."""
        return self.rows(
            "SELECT e.first_seq AS first, e.seq, e.kind, t.turn_id FROM acp_sessions s JOIN acp_log e USING (log_key)"
            " LEFT JOIN acp_turns t ON t.acp_session_id = s.acp_session_id AND t.position = e.turn"
            " WHERE s.acp_session_id = ? UNION ALL SELECT seq, seq, kind, turn_id FROM acp_events"
            " WHERE acp_session_id = ? ORDER BY 2",
            session,
            session,
        )

    def covered(self, session: str) -> list[int]:
        """The places that the log's rows cover: from 1 to its end, each once."""
        return [seq for row in self.log(session) for seq in range(row["first"], row["seq"] + 1)]

    def rows(self, query: str, *parameters: Any) -> list[dict[str, Any]]:
        """Rows of the server's database."""
        connection = sqlite3.connect(
            f"file:{self.data / 'pykoclaw.db'}?mode=ro", uri=True, timeout=30
        )
        try:
            connection.row_factory = sqlite3.Row
            return [dict(row) for row in connection.execute(query, parameters)]
        finally:
            connection.close()
