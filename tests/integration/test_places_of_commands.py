"""Commands where nothing is as usual: in a directory that is gone, with a closed standard input."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest


def ran(line: str, directory: Path) -> tuple[int, str, str]:
    """Exit status and output of a shell's line; `$P` is the program."""
    program = f"{sys.executable} -m pykoclaw_acp"
    done = subprocess.run(
        ["sh", "-c", line],
        cwd=directory,
        env={**os.environ, "P": program, "PYTHONPATH": str(Path(__file__).parents[2])},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize("command", ["doctor", "trust show", "trust add", "prompt --new hello"])
def test_a_directory_that_is_gone_is_one_line(tmp_path: Path, command: str) -> None:
    status, out, error = ran(f"mkdir gone && cd gone && rmdir ../gone && $P {command}", tmp_path)
    assert (status, out) == (1, "")
    assert error == (
        "pykoclaw-acp: The working directory was deleted. Change to another one, and run the command again.\n"
    )


def test_a_closed_input_is_an_empty_one(tmp_path: Path) -> None:
    status, out, error = ran("$P prompt --new <&-", tmp_path)
    assert (status, out, error) == (1, "", "pykoclaw-acp: The prompt is empty.\n")


def test_prompt_too_long_for_command_says_so(tmp_path: Path) -> None:
    status, _, error = ran("head -c 1100000 /dev/zero | tr '\\0' x | $P prompt --new", tmp_path)
    assert status == 1
    assert "The prompt is longer than 896 KiB; nothing was sent." in error
