"""`python -m bench`: measures, prints a table, leaves nothing behind. See docs/performance.md."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import signal
import sys
from dataclasses import asdict
from functools import partial
from pathlib import Path

from rich.console import Console

from bench.callbacks import callbacks
from bench.crowd import crowd
from bench.figures import Figures
from bench.holdings import fill, loads, memory
from bench.lab import Lab
from bench.lists import lists
from bench.logbook import write
from bench.outside import deliveries
from bench.replays import replays
from bench.resident import attached, fronted, recovery, starts
from bench.transcripts import imports
from bench.turns import pacing, turns
from bench.unwritable import unwritable
from bench.waits import waits
from bench.weight import live, stored
from pykoclaw_acp.demo.home import environment, temporary_home
from pykoclaw_acp.scripted_model.process import ScriptedModel


def main() -> None:
    """Measure in rounds, the subjects of a round one after the other."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="one small round")
    parser.add_argument(
        "--peer", help="claude-agent-acp, to measure it too; found on PATH by itself"
    )
    parser.add_argument(
        "--patience", type=float, default=15, help="seconds to wait for a quiet machine, each time"
    )
    parser.add_argument(
        "--only",
        action="append",
        metavar="PART",
        help="a part of a round, as the progress names it",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write every value")
    chosen = parser.parse_args()
    for ending in (signal.SIGTERM, signal.SIGHUP, signal.SIGALRM):
        signal.signal(ending, lambda caught, _: sys.exit(128 + caught))
    console, figures, busy = (
        Console(width=None if sys.stdout.isatty() else 150),
        Figures(),
        os.getloadavg(),
    )
    commands = {
        "ours": [sys.executable, "-m", "pykoclaw_acp", "serve", "--stdio"],
        "bare": [sys.executable, "-m", "bench.bare"],
    }
    if peer := chosen.peer or shutil.which("claude-agent-acp"):
        commands["peer"] = [peer]
    else:
        console.print("No claude-agent-acp on PATH, and no --peer: the peer is not measured.")
    rounds, deltas, sizes = (
        (1, 2_000, [10, 1_000]) if chosen.quick else (chosen.rounds, 20_000, [10, 1_000, 10_000])
    )
    logged = 100_000 if chosen.quick else 1_000_000
    with ScriptedModel() as model, temporary_home() as home:
        # As users start it: without a developer's PYTHON* variables, and with bytecode, which is
        # not left behind.
        kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
        places = {
            "PYTHONPATH": str(Path(__file__).parents[1]),
            "PYTHONPYCACHEPREFIX": str(home / "bytecode"),
        }
        variables = environment(kept, model.url, home) | places
        lab = Lab(home, model.url, variables, commands, 0 if chosen.quick else chosen.patience)
        turns(
            lab, Figures(), 1_000
        )  # what only a first run pays: bytecode, caches, Claude's own set-up
        ids = asyncio.run(fill(lab, sizes))
        book = asyncio.run(write(lab, logged))
        for number in range(1, rounds + 1):
            for measure in (
                partial(turns, deltas=deltas),
                partial(pacing, deltas=deltas // 50),
                partial(waits, times=5 if chosen.quick else 20),
                partial(unwritable, times=5 if chosen.quick else 20),
                partial(loads, ids=ids),
                partial(replays, events=50_000, times=5 if chosen.quick else 20),
                partial(memory, few=4, many=50),
                partial(starts, times=5),
                partial(fronted, deltas=deltas // 50),
                partial(attached, few=4, many=20),
                partial(recovery, book=book),
                partial(
                    deliveries,
                    times=30 if chosen.quick else 200,
                    idle=10 if chosen.quick else 30,
                ),
                partial(live, deltas=deltas // 50),
                partial(crowd, requests=200 if chosen.quick else 1000),
                partial(callbacks),
                partial(stored, answers=30 if chosen.quick else 300, deltas=400),
                partial(imports, messages=10_000),
                partial(
                    lists,
                    sessions=10_000 if chosen.quick else 100_000,
                    transcripts=2_000 if chosen.quick else 20_000,
                    times=100 if chosen.quick else 300,
                ),
            ):
                if chosen.only and measure.func.__name__ not in chosen.only:
                    continue
                console.print(f"round {number} of {rounds}: {measure.func.__name__}", style="dim")
                lab.wait_until_quiet()
                measure(lab, figures)
    load = (
        f"load average {busy[0]:.1f} before, {os.getloadavg()[0]:.1f} after, {os.cpu_count()} cores"
    )
    console.print(
        figures.table(), f"\n{rounds} rounds, {load}; ratio: pykoclaw-acp to baseline, by round"
    )
    if chosen.json:
        rows = [asdict(row) for row in figures.rows.values()]
        chosen.json.write_text(
            json.dumps({"load": load, "rounds": rounds, "rows": rows}, indent=1) + "\n"
        )


if __name__ == "__main__":
    main()
