"""What it takes from a refusal of Claude's service to the line that says it is asked again.

Where the baseline of a row is a limit, a ratio above 1 is a regression.
"""

from __future__ import annotations

import json
import time
from contextlib import closing
from http.client import HTTPConnection
from statistics import median
from typing import Final
from urllib.parse import urlsplit

from bench.agents import Agent
from bench.figures import Figures
from bench.lab import Lab
from bench.turns import HELLO, MS

LIMIT: Final = 1000.0  # ms
REFUSED: Final = "[[script error 529 times=1 ;; text There.]]"
TOLD: Final = b"asking again"  # in the title of the wait


def waits(lab: Lab, figures: Figures, times: int) -> None:
    """One refusal in each of so many turns; Claude tells of it before it waits."""
    agent = lab.start("ours")
    session, _ = agent.new()
    agent.prompt(session, HELLO)
    lasted = [_told(agent, lab, session, number) for number in range(times)]
    agent.close()
    figures.note("a refusal of the service → told, ms", median(lasted), "limit", LIMIT)
    figures.note("… the longest", max(lasted), "limit", LIMIT)


def _told(agent: Agent, lab: Lab, session: str, number: int) -> float:
    """Milliseconds; faults are counted by script, so that each has its number."""
    known = len(_asked(lab))
    turn = agent.begin_prompt(session, REFUSED.replace("There.", f"There {number}."))
    told = agent.wait_for_text(TOLD)
    now = time.time() - (time.monotonic() - told)
    agent.wait(turn)
    return now * MS - _asked(lab)[known]


def _asked(lab: Lab) -> list[int]:
    """When requests for answers came to the model (Unix time in ms); it refuses at once."""
    with closing(HTTPConnection(urlsplit(lab.url).netloc)) as model:
        model.request("GET", "/requests?kind=main")
        return [one["at"] for one in json.load(model.getresponse())]
