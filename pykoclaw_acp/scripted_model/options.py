"""Options of `pykoclaw-acp scripted-model`, which needs no web server to tell them."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Final

LAST_PORT: Final = 65535


def parser(called: str) -> tuple[argparse.ArgumentParser, list[argparse.Action]]:
    """The parser of the command, as it was `called`, and its options."""
    made = argparse.ArgumentParser(
        prog=called,
        description="Run a local Messages API that plays scripts, for use offline.",
        add_help=False,
    )
    options = [
        made.add_argument("-h", "--help", action="help", help="show this help message and exit"),
        made.add_argument(
            "--port", type=_port, default=0, help="TCP port on 127.0.0.1; 0 selects a free one"
        ),
        made.add_argument(
            "--record", type=Path, help="append one JSON line per request to this file"
        ),
        made.add_argument("--exit-with-stdin", action="store_true", help="exit at end of input"),
        made.add_argument(
            "--environment",
            type=Path,
            metavar="HOME",
            help="print shell commands that set up clients to use --port with this home directory, and exit",
        ),
    ]
    return made, options


def _port(word: str) -> int:
    if not word.isdecimal() or int(word) > LAST_PORT:
        raise argparse.ArgumentTypeError(f"{word} is no port; give one from 0 to {LAST_PORT}")
    return int(word)
