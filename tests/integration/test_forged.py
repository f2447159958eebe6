"""Absurd and forged values from a client: refused at the door, or its own affair; nobody else is
the worse for them.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pykoclaw_acp.errors import ParseError
from pykoclaw_acp.server.introduction import MAX_FOLLOWED
from pykoclaw_acp.server.link import FrontPeer
from tests.integration.callers import caller, prompted
from tests.integration.linked import INITIALIZE, Front, front, new, words
from tests.integration.rig import Rig, rig
from tests.integration.wires import client
from tests.integration.wires import new as new_session
from tests.waiting import eventually

ABSURD = [-1, -(2**63) - 1, 2**53 + 1, 2**63, 2**64, 10**400]


class Said:
    """A connection that brings these bytes."""

    def __init__(self, said: bytes) -> None:
        self.said = [said]

    async def read(self) -> bytes:
        return self.said.pop() if self.said else b""

    def gather(self) -> None: ...

    async def write(self, line: bytes) -> None:
        raise AssertionError("it is not welcome")


def hello(**fields: Any) -> bytes:
    return b"front " + json.dumps({"front": "f", **fields}).encode() + b"\n"


@pytest.mark.parametrize("value", ABSURD, ids=range(len(ABSURD)))
@pytest.mark.parametrize("field", ["seq", "seen", "line", "clocks", "pid", "link"])
async def test_front_with_out_of_range_number_is_refused(field: str, value: int) -> None:
    followed = {"seq": 1, **({field: value} if field in ("seq", "seen", "line") else {})}
    given = (
        {"clocks": [value, 1]}
        if field == "clocks"
        else {field: value}
        if field in ("pid", "link")
        else {}
    )
    said = hello(sessions={"s": followed}, **given)
    with pytest.raises(ParseError):
        await FrontPeer.meet(Said(said), b"")


@pytest.mark.parametrize(
    "fields",
    [
        {"front": ""},
        {"front": "f" * 300},
        {"asked": ["q"] * (MAX_FOLLOWED + 1)},
        {"asked": ["q" * 300]},
        {"sessions": {"s" * 300: {"seq": 1}}},
        {"initialize": [[0] * 10] * 1_000_000},
        {"version": "v" * 300_000},
        {"asked": ["q" * 300_000]},
        {"deaths": {"1" * 300_000: 1}},
        {"deaths": {str(n): 1 for n in range(600_000)}},
        {"environment": {"A": [[]] * 200_000}},
    ],
    ids=[
        "no name",
        "long name",
        "many questions",
        "long question",
        "long session",
        "longer than 8 MiB",
        "version that fills memory",
        "question that fills memory",
        "line number that fills memory",
        "very many deaths",
        "very many values",
    ],
)
async def test_a_front_is_refused_whose_introduction_is_absurd(fields: dict[str, Any]) -> None:
    with pytest.raises(ParseError):
        await FrontPeer.meet(Said(hello(**fields)), b"")


async def test_costly_parameters_in_an_introduction_are_left_out(tmp_path: Path) -> None:
    costly = {"protocolVersion": 1, "_meta": {"a": [0] * 30_000}}
    async with rig(tmp_path) as r, front(r, initialize=costly) as one:
        assert one.connection is not None
        await one.result(1, "session/new", cwd="/", mcpServers=[])
        assert one.connection.client.name == "unknown"


async def follow_up(r: Rig, session: str, name: str) -> str:
    """What a client of the same name is shown that resumes the session next."""
    async with front(r, name, parent=None) as other:
        await other.result(1, "session/resume", sessionId=session, cwd="/")
        await eventually(lambda: other.text().endswith("2 "))
        return other.text()


async def answered(one: Front, session: str) -> None:
    one.call(2, "session/prompt", **words(session, "say 3"))
    await one.answer(2)


@pytest.mark.parametrize(
    "seq", ["{last}", "{beyond}", "9007199254740992", "9223372036854775808", "1" + "0" * 300, "-1"]
)
async def test_a_forged_confirmation_hides_nothing_from_namesakes(tmp_path: Path, seq: str) -> None:
    """The forger says that it was shown what was never sent to it."""
    async with rig(tmp_path) as r:
        async with front(r, "honest", parent=None) as honest:
            session = await new(honest)
        async with front(r, "forger", parent=None) as forger:
            await forger.result(1, "session/resume", sessionId=session, cwd="/")
            last = r.sessions.live[session].last_seq
            for token in range(1, 5):
                forger.say(f"seen {token} {seq.format(last=last + 4, beyond=last + 1000)}")
            await forger.result(3, "session/resume", sessionId=session, cwd="/")
        async with front(
            r, "author", initialize=INITIALIZE | {"clientInfo": {"name": "another"}}
        ) as author:
            await author.result(1, "session/resume", sessionId=session, cwd="/")
            await answered(author, session)
        assert await follow_up(r, session, "namesake") == "0 1 2 "


@pytest.mark.parametrize(
    "line", ["> {n} {request}", ">> {n} 5 {request}", ">> 1 {n} {request}", "done {n}"]
)
@pytest.mark.parametrize(
    "number", [2**53 + 1, 2**63, 10**400, -1], ids=["2^53", "2^63", "10^400", "-1"]
)
async def test_out_of_range_line_numbers_are_ignored(
    tmp_path: Path, line: str, number: int
) -> None:
    request = json.dumps(
        {
            "jsonrpc": "2.0",
            "id": 9,
            "method": "session/new",
            "params": {"cwd": "/", "mcpServers": []},
        }
    )
    async with rig(tmp_path) as r, front(r) as one:
        one.say(line.format(n=number, request=request))
        session = await new(one)
        await answered(one, session)
        assert len(one.rests("answer")) == 2
        await r.sessions.confirmations.flush()


@pytest.mark.parametrize("value", [*ABSURD, True, "1", 1.5])
async def test_a_place_out_of_range_is_refused(tmp_path: Path, value: Any) -> None:
    async with rig(tmp_path) as r, client(r) as wire:
        session = await new_session(wire)
        refused = await wire.call(
            "session/resume", sessionId=session, cwd="/", _meta={"pykoclaw.dev/after": value}
        )
        assert refused["error"]["code"] == -32602
        assert "pykoclaw.dev/after" in refused["error"]["message"]


@pytest.mark.parametrize("value", ABSURD, ids=range(len(ABSURD)))
@pytest.mark.parametrize("field", ["after", "turns"])
async def test_follower_with_out_of_range_number_is_refused(
    tmp_path: Path, field: str, value: int
) -> None:
    async with rig(tmp_path) as r, caller(r, tmp_path) as cli:
        session = await prompted(r)
        refused = await cli.refused("follow", session=session.id, **{field: value})
        assert refused["code"] == -32602
        assert f"`{field}`" in refused["message"]
        assert await cli.call("follow", session=session.id, turns=2**53) == {
            "seq": session.last_seq
        }


@pytest.mark.parametrize(
    ("params", "says"),
    [
        (
            {
                "mcpServers": [
                    {"name": f"s{n}", "command": "c", "args": [], "env": []} for n in range(201)
                ]
            },
            "mcpServers",
        ),
        ({"mcpServers": [], "additionalDirectories": ["/a"] * 1001}, "additionalDirectories"),
    ],
)
async def test_servers_and_directories_of_session_are_bounded(
    tmp_path: Path, params: dict[str, Any], says: str
) -> None:
    async with rig(tmp_path) as r, client(r) as wire:
        refused = await wire.call("session/new", cwd="/", **params)
        assert refused["error"]["code"] == -32602
        assert refused["error"]["message"].startswith(f"`{says}`: are more than")


async def test_a_name_that_is_too_long_is_none(tmp_path: Path) -> None:
    async with rig(tmp_path) as r, client(r) as wire:
        await wire.call(
            "initialize", protocolVersion=1, clientInfo={"name": "x" * 300, "version": "1"}
        )
        assert wire.connection.client.name == "unknown"
