"""Checks of the daemon and of the machine that it runs on."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
from pathlib import Path
from typing import Final

from pykoclaw_acp import __version__
from pykoclaw_acp.config.dotenv import IN_HOME
from pykoclaw_acp.doctor.report import TOOL_WAIT, Context, Finding
from pykoclaw_acp.link import places, records
from pykoclaw_acp.pool.unattended import unattended
from pykoclaw_acp.system import trusted_path
from pykoclaw_acp.system import units as systemd_units

# bytes of a unix socket's path (unix(7)), for programs that connect to it directly
LONGEST_SOCKET: Final = 107
LOW_DISK: Final = 1024**3  # bytes
FULL_DISK: Final = 100 * 1024**2  # bytes
HOME_FILE: Final = f"~/{IN_HOME}"
UNITS: Final = ("pykoclaw-acp.service", "pykoclaw-acp.socket")


def settings(context: Context) -> Finding:
    """All settings are valid."""
    if context.bad_settings is not None:
        return Finding(
            "settings", "problem", context.bad_settings, "Correct the value where it comes from."
        )
    if context.unread_settings:
        found = context.why_unread or "./.env is not read, as this directory is not trusted"
        advice = "If they are yours, `pykoclaw-acp trust add` makes them count."
        if "PYKOCLAW_DATA" in context.unread_settings:
            advice += (
                " pykoclaw itself reads that file, and uses another data directory here: set PYKOCLAW_DATA"
                f" in the environment of both, or in {HOME_FILE}."
            )
        return Finding("settings", "warning", found, advice)
    if context.why_unread is not None:
        return Finding(
            "settings", "warning", context.why_unread, "Correct the file, or take it away."
        )
    if context.environment.get("PYKOCLAW_DATA") == "":
        return Finding(
            "settings",
            "warning",
            "PYKOCLAW_DATA is empty: here it counts as unset, for pykoclaw it is the working directory",
            "Unset it, or set it to the full path of the data directory.",
        )
    if context.here_settings:
        return Finding(
            "settings",
            "ok",
            f"data in {context.places.data}; ./.env counts for `serve` here, but not for clients:"
            f" {', '.join(context.here_settings)}",
        )
    return Finding("settings", "ok", f"data in {context.places.data}")


def unknown_settings(context: Context) -> Finding:
    """No variable looks like a setting and is none."""
    if not context.unknown_settings:
        return Finding("names of settings", "ok", "every variable PYKOCLAW_… is a setting")
    found = [
        f"{name} (is {near} meant?)" if near else name for name, near in context.unknown_settings
    ]
    return Finding(
        "names of settings",
        "warning",
        f"no setting, and without effect here: {', '.join(found)}",
        "Correct the name, or remove the variable, unless a plugin reads it. `pykoclaw-acp config`"
        " shows all settings.",
    )


def daemon(context: Context) -> Finding:
    """The daemon answers and has our version, or does not run."""
    if context.unreachable is not None:
        holder = places.lock_holder(context.places.data)
        if holder is None:
            advice = f"Look at its log with `pykoclaw-acp logs`, and restart it. Its socket is {context.places.socket}."
            return Finding("daemon", "problem", context.unreachable, advice)
        found = (
            f"pid {holder[0]} uses the data directory, but cannot be reached: {context.unreachable}"
        )
        return Finding("daemon", "problem", found,
                       f"Look at `pykoclaw-acp logs`, then end the process with `kill {holder[0]}`: turns continue. "
                       f"Its socket is {holder[1] or context.places.socket}.")  # fmt: skip
    if context.status is not None:
        running = context.status["daemon"]
        if running["version"] != __version__:
            found = f"pid {running['pid']} runs version {running['version']}, this is {__version__}"
            return Finding(
                "daemon",
                "warning",
                found,
                "Restart it when it suits you: running turns go on meanwhile.",
            )
        return Finding("daemon", "ok", f"pid {running['pid']} answers on {running['socket']}")
    holder = places.lock_holder(context.places.data)
    if holder is None:
        return Finding("daemon", "ok", "none runs; the first client starts it")
    pid, socket = holder
    if socket is None:
        found = f"pid {pid} (`serve --stdio`) uses the data directory, so no daemon can run"
        return Finding(
            "daemon", "warning", found, "End its client, or set PYKOCLAW_DATA to another directory."
        )
    return Finding("daemon", "problem", f"pid {pid} uses the data directory, but does not answer on {socket}",
                   f"Look at `pykoclaw-acp logs`, then end the process with `kill {pid}`: turns continue.")  # fmt: skip


def socket(context: Context) -> Finding:
    """The socket's path is short enough, and no other user can replace it."""
    path = os.fsencode(context.places.socket)
    if len(path) > LONGEST_SOCKET:
        found = f"the path {context.places.socket} has {len(path)} bytes"
        return Finding("socket", "warning", found,
                       f"pykoclaw-acp can use it, but systemd and others take {LONGEST_SOCKET} at most: "
                       "set PYKOCLAW_SOCKET to a shorter path.")  # fmt: skip
    directory = Path(os.path.dirname(context.places.socket))
    return _private("socket", [directory], 0o077, "nobody has used it yet", "PYKOCLAW_SOCKET")


def directories(context: Context) -> Finding:
    """Data and state directories are ours, and no other user can write to them or replace them."""
    data, state = context.places.data, context.places.state
    settings = "PYKOCLAW_DATA or PYKOCLAW_STATE"
    own = _private("directories", [Path(data), Path(state)], 0o002, "there are none yet", settings)
    found = [*trusted_path.examine(data, context.group), *trusted_path.examine(state)]
    if own.level != "ok" or not found:
        return own
    weak = list(
        {one.directory: one for one in sorted(found, key=lambda one: not one.certain)}.values()
    )
    words, remedies = (
        " ".join(dict.fromkeys(each))
        for each in zip(*((one.words, one.remedy) for one in weak), strict=True)
    )
    return Finding("directories", "problem" if weak[0].certain else "warning", words, remedies)


def instance(context: Context) -> Finding:
    """Sockets, spools and logs are accessible to us alone."""
    paths: list[Path] = []
    for name in records.names(context.places):
        directory = Path(context.places.state, name)
        below = ("sockets", "tmp", "spool", "daemon.log", "workers.log", records.NAME)
        paths += [directory, *(directory / one for one in below)]
    return _private("state files", paths, 0o077, "there are none yet", "PYKOCLAW_STATE")


def copy(context: Context) -> Finding:
    """The data directory is not a copy of another one."""
    original = None if context.status is None else context.status["daemon"].get("copiedFrom")
    if original is None:
        return Finding("copy", "ok", "the daemon does not take the data directory for a copy" if context.status else
                       "a daemon that runs knows whether the data directory is a copy")  # fmt: skip
    return Finding(
        "copy", "ok", f"the data directory is a copy of {original}; what runs there goes on there"
    )


def spools(context: Context) -> Finding:
    """No damaged spool of a worker is kept."""
    damaged = (context.status or {}).get("damaged")
    if damaged is None:
        damaged = unattended(context.places).damaged_spools()
    if not damaged:
        return Finding("spools", "ok", "none was damaged")
    found = f"damaged and kept: {len(damaged)}, the newest is {damaged[-1]}"
    return Finding("spools", "warning", found,
                   "The history of the session says where something is missing. The file may still have it, one "
                   "message of the worker per line: look there, then delete it. "
                   "Check the disk for errors.")  # fmt: skip


def disk(context: Context) -> Finding:
    """There is free disk space for database and spools."""
    least: tuple[int, str] | None = None
    for path in (context.places.data, context.places.directory):
        existing = next(one for one in (Path(path), *Path(path).parents) if one.exists())
        free = shutil.disk_usage(existing).free
        least = min(least or (free, str(existing)), (free, str(existing)))
    assert least is not None
    free, where = least
    found = f"{free // 1024**2:,} MiB free at {where}"
    if free < FULL_DISK:
        return Finding(
            "disk",
            "problem",
            found,
            "Make room: when it is full, turns fail because nothing can be kept.",
        )
    if free < LOW_DISK:
        return Finding("disk", "warning", found, "Make room before it is full.")
    return Finding("disk", "ok", found)


def processes(context: Context) -> Finding:
    """All processes with a cookie belong to a known worker."""
    if context.status and context.status.get("sessions", {}) is None:
        return Finding("processes", "warning", "which workers are known cannot be read now")
    known = (
        {f"{one['session']}:{one['epoch']}" for one in context.status["workers"]}
        if context.status
        else set()
    )
    seen = unattended(context.places).processes()
    strays = {worker: number for worker, number in seen.items() if worker not in known}
    if not strays:
        return Finding("processes", "ok", "nothing was left behind")
    number = sum(strays.values())
    if context.status is None:
        found = f"workers that go on without a daemon: {len(strays)} ({number} processes)"
        return Finding("processes", "warning", found,
                       "The next daemon adopts them. To end them instead: `pykoclaw-acp workers stop`.")  # fmt: skip
    found = f"processes of workers that are gone: {number}, of {', '.join(sorted(strays)[:3])}"
    return Finding("processes", "warning", found,
                   "They end when the daemon is restarted, or by `pykoclaw-acp workers stop`.")  # fmt: skip


def units(context: Context) -> Finding:
    """systemd units, of the user and the system, are in order, or not installed."""
    if shutil.which("systemctl", path=context.environment.get("PATH")) is None:
        return Finding("systemd units", "ok", "there is no systemd here; clients start the daemon")
    try:
        known = [
            {**unit, "scope": scope}
            for scope in systemd_units.SCOPES
            for unit in systemd_units.installed(
                scope, UNITS, ("Id", "ActiveState"), context.environment, TOOL_WAIT
            )
        ]
    except subprocess.TimeoutExpired:
        found = f"systemctl has not answered within {TOOL_WAIT:g} s"
        return Finding("systemd units", "warning", found, "Try `systemctl status` yourself.")
    if failed := [
        f"{unit['scope']} {unit['Id']}" for unit in known if unit["ActiveState"] == "failed"
    ]:
        advice = f"See why with `systemctl {failed[0].replace(' ', ' status ')}`."
        return Finding("systemd units", "problem", f"failed: {', '.join(failed)}", advice)
    if broken := [unit for unit in known if unit["LoadState"] != "loaded"]:
        advice = f"Check it with `systemd-analyze {broken[0]['scope']} verify {broken[0]['Id']}`."
        return Finding("systemd units", "problem", f"cannot be loaded: {broken[0]['Id']}", advice)
    if not known:
        return Finding("systemd units", "ok", "not installed; clients start the daemon")
    states = ", ".join(
        f"{unit['Id']} ({unit['scope'].strip('-')}) is {unit['ActiveState']}" for unit in known
    )
    return Finding("systemd units", "ok", states)


CHECKS: Final = (
    settings,
    unknown_settings,
    daemon,
    socket,
    directories,
    instance,
    copy,
    spools,
    disk,
    processes,
    units,
)


def _private(check: str, paths: list[Path], forbidden: int, missing: str, settings: str) -> Finding:
    """The paths, which the settings name, are ours, and others have none of the forbidden
    permissions.
    """
    existing = sorted(path for path in paths if os.path.lexists(path))
    for path in existing:
        status = os.lstat(path)
        if status.st_uid != os.geteuid():
            shared = status.st_mode & stat.S_ISVTX
            given = "" if shared else "; if nobody else needs it, `chown` can give it to you"
            return Finding(check, "problem", f"{path} belongs to user {status.st_uid}, not to you",
                           f"Choose another place in the settings{given}.")  # fmt: skip
        open_to_others = stat.S_IMODE(status.st_mode) & forbidden
        if open_to_others and not stat.S_ISLNK(status.st_mode):
            closed = stat.S_IMODE(status.st_mode) & ~forbidden
            return Finding(check, "problem", f"others may use {path} (mode {stat.S_IMODE(status.st_mode):o})",
                           trusted_path.closing(str(path), status.st_mode, f"{closed:o}", settings))  # fmt: skip
    if not existing:
        return Finding(check, "ok", missing)
    return Finding(
        check,
        "ok",
        f"{existing[0]} is yours alone"
        if forbidden & 0o044
        else f"only you write to {existing[0]}",
    )
