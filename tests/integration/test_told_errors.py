"""The error of a turn, as clients of several kinds are told it: in words, in the answer to their
prompt, or both.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from pykoclaw_acp.error_kinds import ErrorKind
from pykoclaw_acp.model.failures import TurnFailure
from tests.integration.callers import caller
from tests.integration.rig import rig
from tests.integration.wires import Wire, client, hanging, load

SLOW_DOWN = TurnFailure(ErrorKind.RATE_LIMIT, "Claude's rate limit is reached.", 429)


async def failed(wire: Wire, r: Any, failure: TurnFailure) -> tuple[str, dict[str, Any]]:
    """A session whose turn fails so; the error that answers its prompt."""
    session, running, channel, turn = await hanging(r, wire)
    channel.say(replace(channel.ended(turn), stop_reason=None, error=failure))
    return session, (await wire.answer(running))["error"]


@pytest.mark.parametrize(
    ("name", "in_words", "details"),
    [
        ("mitto", False, False),
        ("acpx", False, False),
        ("zed", False, False),
        ("toad", False, True),
        ("opencode", True, False),
        (None, True, False),
    ],
)
async def test_error_is_told_once_to_clients_showing_it(
    tmp_path: Path, name: str | None, in_words: bool, details: bool
) -> None:
    """A client of which that is not known is told in words too, and everyone who opens it later."""
    async with rig(tmp_path) as r, client(r, name) as wire, client(r, name) as other:
        session, error = await failed(wire, r, SLOW_DOWN)
        assert error["message"] == SLOW_DOWN.message
        assert (SLOW_DOWN.message in wire.text()) is in_words
        assert error["data"].get("details") == (SLOW_DOWN.message if details else None)
        await load(other, session)
        assert other.text().count(SLOW_DOWN.message) == 1


@pytest.mark.parametrize(("seconds", "told"), [(7, 7), (413, 414), (4130, 4140), (None, None)])
async def test_an_error_says_when_to_try_again(
    tmp_path: Path, seconds: int | None, told: int | None
) -> None:
    """No earlier, in digits that Mitto does not take for a context that is too large."""
    async with rig(tmp_path) as r, client(r, "mitto") as wire:
        _, error = await failed(wire, r, replace(SLOW_DOWN, retry_after=seconds))
        assert error["data"].get("retryAfter") == told
        assert (error["data"]["errorKind"], error["data"]["retryable"]) == ("rate_limit", True)


BUSY = TurnFailure(ErrorKind.CONVERSATION_BUSY, "It is used by bot (process 41352).")
GONE = TurnFailure(ErrorKind.CWD_MISSING, "The directory /home/u/ticket-4135 is gone.")
FULL = TurnFailure(ErrorKind.CONTEXT_TOO_LARGE, "It is too long. (HTTP status 413)", 413)


@pytest.mark.parametrize("failure", [BUSY, GONE, FULL], ids=["pid", "path", "status"])
@pytest.mark.parametrize(("name", "misreads"), [("mitto", True), (None, True), ("zed", False)])
async def test_digits_are_misread_by_no_client(
    tmp_path: Path, failure: TurnFailure, name: str | None, misreads: bool
) -> None:
    """Mitto takes those of the status 413 for a context that is too large, wherever they are."""
    async with rig(tmp_path) as r, client(r, name) as wire:
        _, error = await failed(wire, r, failure)
        means_it = failure.kind == ErrorKind.CONTEXT_TOO_LARGE
        assert ("413" in json.dumps(error)) is (means_it or not misreads)
        assert error["message"].replace("\u2060", "") == failure.message


async def test_name_of_a_session_is_not_misread(tmp_path: Path) -> None:
    async with rig(tmp_path) as r, client(r, "mitto") as wire:
        prompt = [{"type": "text", "text": "hi"}]
        running = wire.begin("session/prompt", sessionId="a4135b", prompt=prompt)
        error = (await wire.answer(running))["error"]
        assert error["data"]["sessionId"].replace("\u2060", "") == "a4135b"
        assert "413" not in json.dumps(error)


async def test_commands_get_digits_as_they_are(tmp_path: Path) -> None:
    """Whoever reads the error of a command copies the id that is in it."""
    async with rig(tmp_path) as r, caller(r, tmp_path) as cli:
        shown = await cli.refused("sessions/show", session="41352abc")
        asked = await cli.refused("prompt", session="41352abc", text="hi")
        for error in (shown, asked):
            assert error["data"]["sessionId"] == "41352abc"


async def test_own_methods_keep_digits_for_clients(tmp_path: Path) -> None:
    """Who calls them is no Mitto, also where it gives no name."""
    async with rig(tmp_path) as r, client(r) as wire:
        own, other = [await wire.call(f"_{by}/x413", a=1) for by in ("pykoclaw.dev", "other.dev")]
        assert "x413" in own["error"]["message"]
        assert "413" not in json.dumps(other["error"])
