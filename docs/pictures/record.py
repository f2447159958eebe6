"""`make pictures`: records the output of the demo in a terminal and writes scenes of it, unchanged,
as SVG.
"""

from __future__ import annotations

import fcntl
import io
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.terminal_theme import MONOKAI
from rich.text import Text

COLUMNS: Final = 96
SCENES: Final = (
    2,
    3,
    4,
)  # a turn; the daemon killed in mid-answer; the editor killed in mid-answer
PICTURE: Final = Path(__file__).with_name("demo.svg")
_HEADING: Final = re.compile(r" *(\d+)  \S")
_FONT: Final = re.compile(
    r"\s*@font-face \{.*?\}", re.DOTALL
)  # from the network: an image may not fetch it


def main() -> int:
    """Record and write it; the demo's exit status."""
    output, status = in_terminal([sys.executable, "-m", "pykoclaw_acp", "demo"])
    if status == 0:
        PICTURE.write_text(svg(chosen(Text.from_ansi(output))))
    else:
        print(output)
    return status


def in_terminal(command: list[str]) -> tuple[str, int]:
    """What a command writes to a terminal, and its exit status."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, COLUMNS, 0, 0))
    environment = {**os.environ, "TERM": "xterm-256color", "COLORTERM": "truecolor"}
    process = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment)
    os.close(theirs)
    written = b""
    try:
        while data := os.read(ours, 65536):
            written += data
    except OSError:  # how the end of a terminal looks
        pass
    os.close(ours)
    return written.decode().replace("\r\n", "\n"), process.wait()


def chosen(output: Text) -> Iterator[Text]:
    """The lines of the title, of the chosen scenes and of the verdict."""
    scene = 0
    verdict = [line for line in output.split("\n") if line.plain.strip()][-1]
    for line in output.split("\n"):
        if (heading := _HEADING.match(line.plain)) and "───" in line.plain:
            scene = int(heading[1])
        if scene in (0, *SCENES):
            yield line
    yield verdict


def svg(lines: Iterator[Text], title: str = "pykoclaw-acp demo", name: str = "demo") -> str:
    """The lines as a picture of a terminal; `name` is unique among those of a page."""
    console = Console(
        record=True,
        width=COLUMNS,
        file=io.StringIO(),
        force_terminal=True,
        color_system="truecolor",
    )
    for line in lines:
        console.print(line, soft_wrap=True)
    return _FONT.sub("", console.export_svg(title=title, theme=MONOKAI, unique_id=name))


if __name__ == "__main__":
    sys.exit(main())
