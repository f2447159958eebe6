"""Workers as processes on this machine, forked by our own fork server."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import stat
from collections.abc import Collection
from pathlib import Path
from typing import Final

import structlog

from pykoclaw_acp.channel.files import WorkerFiles
from pykoclaw_acp.channel.processes import ForkRequest, WorkerHandle, WorkerProcess, WorkerRecord
from pykoclaw_acp.channel.spec import LaunchSpec, WorkerIdentity
from pykoclaw_acp.error_kinds import ErrorKind
from pykoclaw_acp.errors import ConfigurationError, LaunchFailed, RestartWanted
from pykoclaw_acp.link.places import secure_directory
from pykoclaw_acp.pool import leftovers
from pykoclaw_acp.pool.forkserver_process import LOG_NAME, StartingForkServer
from pykoclaw_acp.pool.launcher import Deliver, Inheritance
from pykoclaw_acp.pool.local_channel import LocalChannel
from pykoclaw_acp.pool.local_forkserver import ForkServer
from pykoclaw_acp.pool.local_whereabouts import LocalWhereabouts
from pykoclaw_acp.pool.whereabouts import Whereabouts
from pykoclaw_acp.system import processes, reaper, shortage, trusted_path

# s; for workers that are ended: to interrupt, and to keep what they have to tell
RECOVER_GRACE: Final = 3.0
STRAYS_GRACE: Final = 1.0  # s; for what workers of earlier daemons have left

log: Final = structlog.get_logger()


class LocalLauncher:
    """Implements `Launcher`."""

    def __init__(
        self,
        directory: Path,
        state: Path,
        *,
        resident: bool,
        begun: StartingForkServer | None = None,
    ) -> None:
        """`directory` has the log, `state` the directory of each instance. `resident`: workers
        outlive this process. `begun`: the fork server, if it was started already.
        """
        self.whereabouts: Whereabouts = LocalWhereabouts()
        self._state = state
        self._fork_server = ForkServer(directory / LOG_NAME, resident=resident, begun=begun)
        self._boot_id = processes.boot_id()
        self._pids: dict[str, int] = {}  # of live workers, by their cookies
        self._patience = leftovers.Patience()
        self._inherited: dict[
            str, WorkerFiles
        ] = {}  # by cookie: they may be in another state directory
        processes.become_subreaper()

    async def warm(self) -> None:
        """Start the fork server; raises OSError."""
        await self._fork_server.warm()

    async def launch(self, spec: LaunchSpec) -> LocalChannel:
        """Fork a worker and connect to it; raises LaunchFailed."""
        files = self._files(spec)
        try:
            _make_places(files)
        except (OSError, ConfigurationError) as error:
            raise _failed(error, "its directories cannot be made") from error
        forked = await self._fork_server.fork(ForkRequest(spec, files))
        if forked.error is not None:
            raise LaunchFailed(forked.kind, forked.error)
        process = WorkerProcess(forked.pid, forked.start_time, self._boot_id)
        try:
            channel = await LocalChannel.open(WorkerHandle(process, files.socket))
        except (OSError, LaunchFailed) as error:
            reaper.send(process.pid, process.start_time, signal.SIGKILL)
            raise _failed(error, "the worker cannot be reached") from error
        self._pids[spec.cookie] = process.pid
        return channel

    async def recover(self, inherited: Inheritance) -> list[WorkerRecord]:
        """End processes of earlier daemons' workers, found by pid and by cookie; returns the
        workers that go on.
        """
        for worker in inherited.workers:
            self._inherited[worker.identity.cookie] = WorkerFiles.beside(worker.handle.socket)
        return await asyncio.to_thread(self._recover, inherited)

    def _recover(self, inherited: Inheritance) -> list[WorkerRecord]:
        alive = [worker for worker in inherited.workers if self.whereabouts.lives(worker)]
        adopted = list(inherited.choose(alive))
        surplus = [_stray(worker.handle.process) for worker in alive if worker not in adopted]
        surplus += [_stray(one.process) for one in inherited.unlisted]
        reaper.end_these(surplus, RECOVER_GRACE)
        kept, own = (
            {worker.identity.cookie for worker in some} for some in (adopted, inherited.workers)
        )
        pids = {worker.handle.process.pid for worker in adopted}

        def ends(cookie: str) -> bool:
            return cookie not in kept and (cookie in own or inherited.owns(cookie))

        ended = surplus + reaper.end_now(ends, STRAYS_GRACE, pids)
        if ended:
            log.warning(
                "Ended processes of an earlier server",
                action="strays_ended",
                pids=[s.pid for s in ended],
            )
        return adopted

    async def attach(self, worker: WorkerRecord) -> LocalChannel:
        """Connect to a worker that another daemon launched; raises LaunchFailed."""
        cookie = worker.identity.cookie
        self._pids[cookie] = worker.handle.process.pid
        self._inherited[cookie] = WorkerFiles.beside(worker.handle.socket)
        try:
            return await LocalChannel.open(worker.handle)
        except OSError as error:
            raise LaunchFailed(
                ErrorKind.START_FAILED, f"the worker cannot be reached: {error}"
            ) from error

    async def end(self, worker: WorkerRecord, grace: float) -> None:
        """SIGTERM, after `grace` (s) SIGKILL."""
        await asyncio.to_thread(reaper.end_these, [_stray(worker.handle.process)], grace)

    async def deliver_spool(self, worker: WorkerIdentity, after: int, into: Deliver) -> None:
        """Hand on the frames of its spool file."""
        await leftovers.deliver(
            Path(self._files(worker).spool), worker.epoch, after, into, self._patience
        )

    async def clean(
        self, worker: WorkerIdentity, grace: float, *, keep_spool: bool = False
    ) -> None:
        """End the processes with its cookie, collect the dead ones, remove its files."""
        self._pids.pop(worker.cookie, None)
        strays = await reaper.end(
            lambda cookie: cookie == worker.cookie, grace, frozenset(self._pids.values())
        )
        if strays:
            log.info(
                "Ended what a dead worker left behind",
                action="strays_ended",
                pids=[s.pid for s in strays],
            )
        fork_server = self._fork_server.pid
        processes.reap_orphans(frozenset() if fork_server is None else frozenset([fork_server]))
        await asyncio.to_thread(_clear, self._files(worker).temporary)
        await self.discard(worker, keep_spool=keep_spool)

    async def discard(self, worker: WorkerIdentity, *, keep_spool: bool = False) -> None:
        """Remove its files."""
        await asyncio.to_thread(_remove, self._files(worker), keep_spool=keep_spool)
        if not keep_spool:
            self._inherited.pop(worker.cookie, None)

    async def damaged_spools(self, instances: Collection[str]) -> list[str]:
        """The files that are kept beside the spools."""
        return await asyncio.to_thread(leftovers.kept_of, self._state, instances)

    async def prepare(
        self, instance: str, kept: Collection[WorkerRecord], *, spare: bool = False
    ) -> None:
        """Make the instance's directories, and remove what is in them but the files of `kept`
        workers.

        Where they cannot be made no worker can be launched, and everything else goes on. Raises
        ConfigurationError if others can use them.
        """
        names = {WorkerFiles.beside(worker.handle.socket).name for worker in kept}
        await asyncio.to_thread(_prepare, self._state / instance, names, spare=spare)

    async def probe(self) -> None:
        """Raises RestartWanted when the fork server has failed several launches in a row."""
        if self._fork_server.broken:
            raise RestartWanted(f"The fork server cannot run; its log is {self._fork_server.log}.")

    async def close(self) -> None:
        """End the fork server."""
        await self._fork_server.close()

    def _files(self, worker: WorkerIdentity) -> WorkerFiles:
        return self._inherited.get(worker.cookie) or WorkerFiles.of(
            self._state / worker.instance, worker
        )


def _failed(error: OSError | ConfigurationError | LaunchFailed, what: str) -> LaunchFailed:
    if (found := shortage.of(error, forks=True)) is not None:
        return LaunchFailed(*found)
    return LaunchFailed(ErrorKind.START_FAILED, f"{what}: {error}")


def _stray(process: WorkerProcess) -> reaper.Stray:
    return reaper.Stray(process.pid, process.start_time)


def _remove(files: WorkerFiles, *, keep_spool: bool) -> None:
    for path in (files.socket,) if keep_spool else (files.socket, files.spool):
        with contextlib.suppress(OSError):
            os.unlink(path)
    shutil.rmtree(files.temporary, ignore_errors=True)


def _clear(directory: str) -> None:
    """Remove it; raises what passes, as a lack of descriptors. What else is in the way stays."""
    try:
        shutil.rmtree(directory)
    except OSError as error:
        if shortage.of(error) is not None:
            raise
        shutil.rmtree(directory, ignore_errors=True)


def _make_places(files: WorkerFiles) -> None:
    """The directories of a worker, which somebody may have removed under the server."""
    socket, spool = Path(files.socket), Path(files.spool)
    secure_directory(socket.parents[1])
    for place in (socket.parent, spool.parent, Path(files.temporary)):
        trusted_path.make(str(place))


def _close_to_readers(directory: Path) -> None:
    """Removed while a worker runs, it is made anew by Claude's CLI, for its temporary files."""
    with contextlib.suppress(OSError):
        found = os.lstat(directory)
        ours = stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid()
        if ours and not found.st_mode & 0o022:
            os.chmod(directory, 0o700)


def _prepare(directory: Path, kept: set[str], *, spare: bool) -> None:
    try:
        _close_to_readers(directory)
        secure_directory(directory)
        for name in ("sockets", "tmp", "spool"):
            place = directory / name
            trusted_path.make(str(place))
            for entry in place.iterdir():
                if spare or entry.name.removesuffix(".ndjson") in kept:
                    continue
                if entry.suffix == f".{leftovers.DAMAGED}":
                    continue
                if entry.is_dir() and not entry.is_symlink():
                    shutil.rmtree(entry, ignore_errors=True)
                else:
                    entry.unlink(missing_ok=True)
    except (OSError, ConfigurationError) as error:
        if isinstance(error, ConfigurationError) and not isinstance(error.__cause__, OSError):
            raise
        log.warning(
            "The workers' directories cannot be used", action="directories_failed", error=str(error)
        )
