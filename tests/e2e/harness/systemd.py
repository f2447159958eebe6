"""A real `systemd --user` of a test's own: its runtime directory, its units, its control group."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import subprocess
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tests.waiting import eventually

SYSTEMD: Final = Path("/usr/lib/systemd/systemd")
START_WAIT: Final = 60.0  # s
COMMAND_WAIT: Final = 90.0  # s
CGROUPS: Final = ("/sys/fs/cgroup/systemd", "/sys/fs/cgroup/unified", "/sys/fs/cgroup")
# A user's systemd starts only where the machine was booted with systemd: in a mount name space it
# looks so.
PRETEND: Final = """
mount -t tmpfs tmpfs /run && mkdir -p /run/systemd/system || exit
for group in "$@"; do mkdir "$group" && echo $$ > "$group/cgroup.procs" || exit; done
exec env SYSTEMD_UNIT_PATH="$XDG_CONFIG_HOME/systemd/user:/usr/lib/systemd/user" "$SYSTEMD" --user --log-target=console
"""


class CannotRun(Exception):
    """Why there is no systemd here for a test."""


class UserManager:
    """A running `systemd --user`; services get its environment."""

    def __init__(
        self, process: asyncio.subprocess.Process, environment: dict[str, str], groups: list[str]
    ) -> None:
        """Use `start`."""
        self.environment = environment
        self.socket = Path(environment["XDG_RUNTIME_DIR"]) / "pykoclaw/acp.sock"
        self._process = process
        self._groups = groups

    @classmethod
    async def start(cls, runtime: Path, environment: Mapping[str, str]) -> UserManager:
        """`runtime`: an empty directory with a short name, for its sockets. Raises CannotRun."""
        if not _possible():
            raise CannotRun("it needs root, unshare, Debian's systemd package, and another init")
        name = f"pykoclaw-test-{uuid.uuid4().hex[:8]}"
        groups = [f"{root}/{name}" for root in _hierarchies()]
        mine = {**environment, "XDG_RUNTIME_DIR": str(runtime), "SYSTEMD": str(SYSTEMD)}
        process = await asyncio.create_subprocess_exec(
            "unshare", "--mount", "--propagation=private", "sh", "-c", PRETEND, "sh", *groups,
            env=mine, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd="/",
        )  # fmt: skip
        manager = cls(process, mine, groups)

        private = runtime / "systemd/private"
        try:
            await eventually(
                lambda: process.returncode is not None or private.is_socket(), START_WAIT
            )
            await manager.control("start", "basic.target")
        except AssertionError as error:
            await manager.close()
            await manager.remove_groups()
            raise CannotRun(f"systemd --user does not start: {error}") from error
        return manager

    async def run(self, *command: str, status: int = 0) -> str:
        """What a command prints that runs as in a login session of the user."""
        process = await asyncio.create_subprocess_exec(
            *command,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        try:
            output, _ = await asyncio.wait_for(process.communicate(), COMMAND_WAIT)
        except TimeoutError:
            process.kill()
            await process.wait()
            raise AssertionError(f"{command} did not end within {COMMAND_WAIT} s") from None
        assert process.returncode == status, f"{command}: {output.decode()}"
        return output.decode().strip()

    async def control(self, *arguments: str) -> str:
        """`systemctl --user`."""
        return await self.run("systemctl", "--user", *arguments)

    async def show(self, unit: str, property_name: str) -> str:
        """A property of a unit; empty while there is no manager."""
        process = await asyncio.create_subprocess_exec(
            "systemctl", "--user", "show", f"--property={property_name}", "--value", unit,
            env=self.environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        output, _ = await process.communicate()
        return output.decode().strip()

    async def main_pid(self) -> int:
        """The daemon's; 0 if there is none."""
        return int(await self.show("pykoclaw-acp.service", "MainPID") or 0)

    async def close(self) -> None:
        """End the manager with its services; what outlives those is the caller's to end."""
        if self._process.returncode is None:
            with contextlib.suppress(AssertionError):
                await self.control("exit")
            try:
                await asyncio.wait_for(self._process.wait(), 60)
            except TimeoutError:
                self._process.kill()
                await self._process.wait()

    async def remove_groups(self) -> None:
        """Remove its control groups, when no process is left in them."""
        for group in self._groups:
            for directory, _, _ in os.walk(group, topdown=False):
                await eventually(lambda directory=directory: _removed(directory), 5)  # type: ignore[misc]


def _removed(directory: str) -> bool:
    with contextlib.suppress(OSError):
        os.rmdir(directory)
    return not os.path.isdir(directory)


def _hierarchies() -> list[str]:
    """Where systemd keeps control groups: version 1 with version 2 beside it, or
    version 2 alone.
    """
    return [root for root in CGROUPS if os.path.exists(f"{root}/cgroup.procs")]


def _possible() -> bool:
    commands = all(shutil.which(name) for name in ("systemctl", "unshare"))
    return (
        os.geteuid() == 0
        and commands
        and SYSTEMD.exists()
        and not Path("/run/systemd/system").is_dir()
    )
