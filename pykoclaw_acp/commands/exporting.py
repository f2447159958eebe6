"""`pykoclaw-acp sessions export`: a session with its complete history, on standard output."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any, Literal

from pykoclaw_acp import __version__, terminal
from pykoclaw_acp.commands.daemon import ask, follow
from pykoclaw_acp.commands.markdown import markdown
from pykoclaw_acp.commands.page import page
from pykoclaw_acp.protocol.control.exports import FORMAT, VERSION


def export(session: str, form: Literal["markdown", "html", "json"]) -> None:
    """Export the session to standard output."""
    details = ask("sessions/show", session=session)
    told = _told(details["summary"]["id"], as_shown=form != "json")
    if form == "json":
        _json(details, map(_event, told))
        return
    pieces = markdown if form == "markdown" else page
    for piece in pieces(details, ({**one["update"], "at": one.get("at")} for one in told)):
        terminal.prose(piece)


def _json(details: dict[str, Any], events: Iterator[dict[str, Any]]) -> None:
    """Event by event, each in a line: a log may be larger than memory."""
    head = {
        "format": FORMAT, "version": VERSION, "program": __version__,
        "exportedAt": time.time_ns() // 1_000_000,
    }  # fmt: skip
    terminal.json_text("{")
    for name, value in head.items():
        terminal.json_text(f'"{name}": ')
        terminal.as_json(value, indent=None, end=", ")
    terminal.json_text('"session": ')
    terminal.as_json(details, indent=None, end=', "events": [')
    for at, event in enumerate(events):
        terminal.json_text(",\n" if at else "\n")
        terminal.as_json(event, indent=None, end="")
    terminal.json_text("\n]}\n")


def _told(session: str, *, as_shown: bool) -> Iterator[dict[str, Any]]:
    for message in follow(session, events=True, asShown=as_shown):
        yield message["params"]


def _event(told: dict[str, Any]) -> dict[str, Any]:
    event = {"seq": told["seq"], "turnId": told["turnId"], "update": told["update"]}
    if told.get("event") is not None:  # an earlier daemon sends none
        event["event"] = told["event"]
    return event
