from __future__ import annotations

import fcntl
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
import threading
import time
from pathlib import Path

import pytest

from pykoclaw_acp.demo import script, story
from pykoclaw_acp.demo.client import Agent
from pykoclaw_acp.demo.findings import EXPECTED
from tests.waiting import eventually_sync

COMMAND = [sys.executable, "-u", "-m", "pykoclaw_acp", "demo"]
LONGEST = 180  # s; it takes 15 on a machine that has nothing else to do
ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


@pytest.fixture
def temporary(tmp_path: Path) -> Path:
    """Where the demo under test has its temporary files."""
    path = tmp_path / "tmp"
    path.mkdir()
    return path


def variables(temporary: Path, **more: str) -> dict[str, str]:
    return {**os.environ, "TMPDIR": str(temporary), **more}


def rows(output: str) -> dict[str, str]:
    """The table of a plain output: the mark of each step."""
    table = output.partition("What was seen")[2]
    return {
        step: match[1]
        for step in EXPECTED
        if (match := re.search(rf"^  (\S+) +{step} ", table, re.MULTILINE))
    }


def left_behind(temporary: Path) -> list[str]:
    """Files, and processes that were started with this directory."""
    mark = os.fsencode(temporary)
    found = [str(path) for path in temporary.iterdir()]
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if mark in (entry / "environ").read_bytes():
                    found.append((entry / "cmdline").read_text().replace("\0", " "))
            except OSError:
                continue
    return found


def start_in_terminal(
    columns: int, environment: dict[str, str]
) -> tuple[subprocess.Popen[bytes], list[bytes]]:
    """Start it in a terminal of that width; what it writes there is collected in the list."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    process = subprocess.Popen(COMMAND, stdin=theirs, stdout=theirs, stderr=theirs, env=environment)
    os.close(theirs)
    written: list[bytes] = []

    def read() -> None:
        try:
            while data := os.read(ours, 65536):
                written.append(data)
        except OSError:  # how the end of a terminal looks
            pass
        os.close(ours)

    threading.Thread(target=read).start()
    return process, written


def check_in_terminal(columns: int, process: subprocess.Popen[bytes], written: list[bytes]) -> None:
    """It passes, and its table fits the terminal."""
    assert process.wait(LONGEST) == 0, b"".join(written).decode()
    eventually_sync(lambda: b"All as expected" in b"".join(written))
    shown = b"".join(written).decode()
    lines = ESCAPES.sub("", shown).splitlines()
    assert shown != ESCAPES.sub("", shown)
    assert all(any(line.startswith(f"  ✓  {step} ") for line in lines) for step in EXPECTED)
    assert max(map(len, lines)) <= columns


@pytest.mark.parametrize("beside", [False, pytest.param(True, marks=pytest.mark.long)])
def test_demo_passes_in_pipe_beside_terminals_one(
    beside: bool, temporary: Path, tmp_path: Path, empty_home: Path
) -> None:
    # Settings and credentials of the user's, and the wish for colours, must not reach the story or
    # the pipe.
    runtime = tmp_path / "runtime"
    runtime.mkdir(mode=0o700)
    own = {
        **{f"PYKOCLAW_{name}": str(tmp_path / "own") for name in ("DATA", "STATE", "SOCKET")},
        "PYKOCLAW_PERMISSION_MODE": "plan",
        "ANTHROPIC_MODEL": "mine",
        "XDG_RUNTIME_DIR": str(runtime),
    }
    plain = variables(temporary, FORCE_COLOR="1", COLUMNS="200", **own)
    fancy = variables(temporary, TERM="xterm-256color", PYTHONIOENCODING="utf-8")
    terminal = start_in_terminal(80, fancy) if beside else None
    piped = subprocess.run(COMMAND, env=plain, capture_output=True, timeout=LONGEST, check=False)
    if terminal is not None:
        check_in_terminal(80, *terminal)

    output = piped.stdout.decode()
    assert (piped.returncode, piped.stderr) == (0, b""), output
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f\u2500-\u257f]", output)
    assert rows(output) == dict.fromkeys(EXPECTED, "ok")
    assert "Processes after:\n      none\n" in output
    assert (
        output.count("Done: your name stands") == 3
    )  # live, replayed, and before the model's eyes
    assert "All as expected" in output.splitlines()[-2]

    assert left_behind(temporary) == []
    assert list(empty_home.iterdir()) == []
    assert not (tmp_path / "own").exists()
    assert list(runtime.iterdir()) == []


@pytest.mark.parametrize(
    ("environment", "step", "reason"),
    [
        ({"PYKOCLAW_CLI_PATH": "/nonexistent/claude"}, "first token", "/nonexistent/claude"),
        ({"PYKOCLAW_CRASH_AT": "recovered"}, "session/new", "The daemon ended before it was ready"),
    ],
)
@pytest.mark.long
def test_it_says_which_step_is_wrong(
    environment: dict[str, str], step: str, reason: str, temporary: Path
) -> None:
    done = subprocess.run(
        COMMAND,
        env=variables(temporary, **environment),
        capture_output=True,
        timeout=LONGEST,
        check=False,
    )
    output = done.stdout.decode()
    assert (done.returncode, done.stderr) == (1, b""), output
    assert f"WRONG The step '{step}' is wrong. Expected: {EXPECTED[step]}. Seen: " in output
    assert reason in output.splitlines()[-2]
    before = list(EXPECTED).index(step)
    marks = ["ok"] * before + ["WRONG"] + ["-"] * (len(EXPECTED) - before - 1)
    assert list(rows(output).values()) == marks
    assert left_behind(temporary) == []


@pytest.mark.long
def test_unexpected_result_is_reported_and_demo_continues(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], temporary: Path
) -> None:
    load, resume = Agent.load, Agent.resume

    async def resume_too_early(agent: Agent, session_id: str, directory: Path, after: int) -> None:
        await resume(agent, session_id, directory, after - 1)

    async def load_with_a_loss(agent: Agent, session_id: str, directory: Path) -> None:
        await load(agent, session_id, directory)
        del agent.editor.arrivals[5]

    monkeypatch.setattr(Agent, "load", load_with_a_loss)
    monkeypatch.setattr(Agent, "resume", resume_too_early)
    monkeypatch.setattr(script, "ENTRY", "Somebody else was here.\n")
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    handlers = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    assert story.main() == 1
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == handlers
    output = capsys.readouterr().out
    assert {step for step, mark in rows(output).items() if mark == "WRONG"} == {
        "tool",
        "resume",
        "session/load",
    }
    assert "NOT equal" in output
    assert left_behind(temporary) == []


@pytest.mark.long
def test_it_says_that_the_front_died(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], temporary: Path
) -> None:
    new = Agent.new

    async def new_from_a_dying_front(agent: Agent, directory: Path) -> str:
        agent.process.kill()
        return await new(agent, directory)

    monkeypatch.setattr(Agent, "new", new_from_a_dying_front)
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    assert story.main() == 1
    output = capsys.readouterr().out
    assert [step for step, mark in rows(output).items() if mark == "WRONG"] == ["session/new"]
    assert "the front is gone: SIGKILL" in output
    assert left_behind(temporary) == []


@pytest.mark.long
@pytest.mark.parametrize(
    ("number", "moment"),
    [
        (signal.SIGINT, b"Once there was"),
        (signal.SIGTERM, b"May I?"),
        (signal.SIGTERM, b"SIGKILL  the daemon"),
    ],
)
def test_interrupted_it_leaves_nothing(
    number: signal.Signals, moment: bytes, temporary: Path
) -> None:
    # A process group of its own, as in a terminal, where Ctrl-C reaches the scripted model too.
    process = subprocess.Popen(
        COMMAND,
        env=variables(temporary),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        process_group=0,
    )
    assert process.stdout is not None
    with process.stdout:
        output = b""
        while moment not in output:
            data = os.read(process.stdout.fileno(), 65536)
            assert data, output
            output += data
        os.killpg(process.pid, number)
        begun = time.monotonic()
        output += process.stdout.read()
    assert process.wait() == 128 + number
    assert time.monotonic() - begun < 10
    assert output.strip().endswith(b"Interrupted. Its processes are ended, its home is removed.")
    assert b"Traceback" not in output
    assert b"== 4." not in output  # it stopped there and then
    assert left_behind(temporary) == []
