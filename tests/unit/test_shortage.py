"""What has run out is known by errors, by words, and by what the kernel has counted."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import msgspec
import pytest

from pykoclaw_acp.channel.files import WorkerFiles
from pykoclaw_acp.channel.processes import Forked, ForkRequest
from pykoclaw_acp.system import memory, shortage
from pykoclaw_acp.worker import forkserver
from tests import workers


def caused(error: BaseException) -> Exception:
    """As libraries pass errors on."""
    try:
        try:
            raise error
        except BaseException as inner:
            raise RuntimeError("It failed") from inner
    except RuntimeError as outer:
        return outer


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (OSError(errno.EMFILE, "x"), "out_of_descriptors"),
        (OSError(errno.ENFILE, "x"), "out_of_descriptors"),
        (OSError(errno.ENOMEM, "x"), "out_of_memory"),
        (MemoryError(), "out_of_memory"),
        (ImportError("x.so: failed to map segment from shared object"), "out_of_memory"),
        (RuntimeError("can't start new thread"), "out_of_processes"),
        (BlockingIOError(errno.EAGAIN, "x"), "out_of_processes"),
        (OSError(errno.EACCES, "x"), None),
        (ValueError(), None),
    ],
)
def test_error_and_errors_caused_by_it_name_shortage(
    error: BaseException, kind: str | None
) -> None:
    for one in (error, caused(error)):
        found = shortage.of(one, forks=True)
        assert (found and found[0]) == kind
    assert shortage.of(BlockingIOError(errno.EAGAIN, "a socket that is not ready")) is None


def test_shortage_in_last_words_of_program_is_recognized() -> None:
    found = shortage.of_words("/bin/sh: 1: Cannot fork")
    assert found == shortage.PROCESSES
    assert shortage.of_words("EMFILE: too many open files, watch") == shortage.DESCRIPTORS
    assert shortage.of_words("a syntax error") is None


def test_refused_fork_is_reported_and_fork_server_continues(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fork() -> int:
        raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")

    monkeypatch.setattr(os, "fork", fork)
    (tmp_path / "sockets").mkdir()
    kind, words = shortage.PROCESSES
    spec = workers.spec(tmp_path)
    request = msgspec.json.encode(ForkRequest(spec, WorkerFiles.of(tmp_path, spec)))
    assert forkserver.launch(request) == Forked(error=words, kind=kind)


def test_kernel_oom_count_is_that_of_cgroup(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    group = Path("/proc/self/cgroup").read_text().rpartition("0::/")[2].partition("\n")[0]
    monkeypatch.setattr(memory, "CGROUPS", tmp_path)
    (tmp_path / group).mkdir(parents=True, exist_ok=True)
    (tmp_path / group / "memory.events").write_text(
        "low 0\nhigh 2\nmax 9\noom 4\noom_kill 3\noom_group_kill 1\n"
    )
    assert memory.kills() == 3


def test_oom_count_without_cgroup_is_the_machines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "Path", lambda path: tmp_path / path.removeprefix("/"))
    monkeypatch.setattr(memory, "CGROUPS", tmp_path / "nothing")
    (tmp_path / "proc/self").mkdir(parents=True)
    assert memory.kills() == 0
    (tmp_path / "proc/vmstat").write_text("oom_group_kill 2\noom_kill 7\n")
    assert memory.kills() == 7


def test_forked_answer_of_old_version_is_understood() -> None:
    assert msgspec.json.decode(b'{"error":"x"}', type=Forked) == Forked(error="x")
