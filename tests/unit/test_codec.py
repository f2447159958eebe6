"""The protocol core, fed with anything: it never stops, and every request gets exactly
one answer.
"""

from __future__ import annotations

import asyncio
import itertools
import json
from typing import Any, cast

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pykoclaw_acp.errors import InvalidParams
from pykoclaw_acp.link.framing import LineFramer, Oversized
from pykoclaw_acp.protocol import jsonrpc, lenient
from pykoclaw_acp.protocol.content import TextContent
from pykoclaw_acp.protocol.control.permissions import AnswerParams
from pykoclaw_acp.protocol.jsonrpc import Invalid, Notification, Request, Response
from pykoclaw_acp.protocol.messages import (
    Implementation,
    InitializeParams,
    NewSessionParams,
    PromptParams,
    SessionParams,
    StdioServer,
    WebServer,
)
from pykoclaw_acp.server.call import Call
from pykoclaw_acp.server.connection import ClientConnection
from pykoclaw_acp.server.dispatch import Method
from pykoclaw_acp.server.order import SessionOrder
from pykoclaw_acp.server.peer import DirectPeer
from pykoclaw_acp.sessions.fronts import Fronts
from pykoclaw_acp.sessions.live_sessions import LiveSessions
from pykoclaw_acp.sessions.registry import Sessions
from pykoclaw_acp.sessions.showing import Showing

JUNK = st.binary(max_size=80).filter(lambda line: b"\n" not in line)
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=10),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4)
    ),
    max_leaves=12,
)
METHOD = st.sampled_from(
    ["initialize", "echo", "boom", "ordered", "session/nothing", "$/cancel_request", ""]
)
IDS = st.integers() | st.text(max_size=6)


class Wire:
    """Bytes in chunks, lines out."""

    def __init__(self, chunks: list[bytes]) -> None:
        self.chunks = chunks
        self.lines: list[bytes] = []

    async def read(self) -> bytes:
        await asyncio.sleep(0)
        return self.chunks.pop(0) if self.chunks else b""

    def gather(self) -> None: ...

    async def write(self, line: bytes) -> None:
        self.lines.append(line)


async def _initialize(call: Call, params: InitializeParams) -> dict[str, Any]:
    call.client.initialized(params)
    return {}


async def _echo(call: Call, params: NewSessionParams) -> dict[str, Any]:
    return {"cwd": params.cwd * 10}


async def _boom(call: Call, params: InitializeParams) -> None:
    raise RuntimeError("a secret")


async def _ordered(call: Call, params: SessionParams) -> dict[str, Any]:
    await asyncio.sleep(0)
    return {}


async def _waits(call: Call, params: SessionParams) -> None:
    await asyncio.Event().wait()


TABLE: dict[str, Method[Call, Any]] = {
    "initialize": Method(InitializeParams, _initialize, before_initialize=True),
    "echo": Method(NewSessionParams, _echo),
    "boom": Method(InitializeParams, _boom, before_initialize=True),
    "ordered": Method(SessionParams, _ordered),
    "waits": Method(SessionParams, _waits),
}


class NoAliases:
    """Sessions of which each is known by one id."""

    awaits_recovery = False
    showing = Showing()
    fronts = Fronts()
    live = LiveSessions()

    def owner(self, session_id: str) -> str:
        return session_id


def answers(stream: bytes, cuts: list[int]) -> list[dict[str, Any]]:
    """What a connection writes when it is fed the stream, cut at these places."""
    places = [0, *sorted(cut % (len(stream) + 1) for cut in cuts), len(stream)]
    chunks = [stream[a:b] for a, b in itertools.pairwise(places) if a < b]
    wire = Wire(chunks)

    async def run() -> None:
        connection = ClientConnection(cast("Sessions", NoAliases()), TABLE, DirectPeer(wire))
        await connection.serve()
        await connection.settle()

    asyncio.run(run())
    return [json.loads(line) for line in wire.lines]


@settings(deadline=None)
@given(st.binary(max_size=400), st.lists(st.integers(min_value=0), max_size=8))
def test_arbitrary_bytes_cut_anywhere_never_stop_the_server(stream: bytes, cuts: list[int]) -> None:
    probe = (
        b'\n{"jsonrpc":"2.0","id":"probe","method":"initialize","params":{"protocolVersion":1}}\n'
    )
    answered = answers(stream + probe, cuts)
    assert [answer["id"] for answer in answered if answer["id"] == "probe"] == ["probe"]
    assert answers(stream + probe, []) == answered


@settings(deadline=None)
@given(
    st.lists(st.tuples(IDS, METHOD, JSON), max_size=12, unique_by=lambda call: json.dumps(call[0])),
    st.lists(JUNK, max_size=6),
    st.lists(st.integers(min_value=0), max_size=8),
    st.randoms(use_true_random=False),
)
def test_every_request_gets_exactly_one_answer(
    calls: list[tuple[Any, str, Any]], junk: list[bytes], cuts: list[int], chance: Any
) -> None:
    lines = [
        json.dumps(
            {"jsonrpc": "2.0", "id": message_id, "method": method, "params": params}
        ).encode()
        for message_id, method, params in calls
    ]
    lines += junk
    chance.shuffle(lines)
    answered = answers(b"\n".join(lines), cuts)
    for answer in answered:
        assert answer["jsonrpc"] == "2.0"
        assert ("result" in answer) != ("error" in answer)
    for message_id, _, _ in calls:
        mine = [answer for answer in answered if _same(answer["id"], message_id)]
        assert len(mine) == 1


def _same(one: Any, other: Any) -> bool:
    return type(one) is type(other) and one == other


@given(st.lists(st.binary(max_size=30)), st.lists(st.integers(min_value=0), max_size=6))
def test_lines_do_not_depend_on_chunk_boundaries(pieces: list[bytes], cuts: list[int]) -> None:
    stream = b"\n".join(pieces)
    framer = LineFramer()
    places = [0, *sorted(cut % (len(stream) + 1) for cut in cuts), len(stream)]
    lines: list[bytes | bytearray | Oversized] = []
    for a, b in itertools.pairwise(places):
        lines += framer.feed(stream[a:b])
    lines += framer.end()
    expected = stream.split(b"\n")
    assert lines == (expected if expected[-1] else expected[:-1])


@pytest.mark.parametrize("step", [1, 3, 100])
def test_oversized_line_is_reported_once_then_next_read(step: int) -> None:
    framer = LineFramer(limit=10)
    stream = b"short\n" + b"x" * 35 + b"\nnext\n"
    lines: list[bytes | bytearray | Oversized] = []
    for at in range(0, len(stream), step):
        lines += framer.feed(stream[at : at + step])
    first, long, last = lines
    assert (first, last) == (b"short", b"next")
    assert isinstance(long, Oversized)
    assert long.head == b"x" * len(long.head)


def test_oversized_answer_is_error_with_request_id() -> None:
    lines = (
        b'{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":1}}',
        json.dumps(
            {
                "jsonrpc": "2.0",
                "id": 2,
                "method": "echo",
                "params": {"cwd": "x" * 900_000, "mcpServers": []},
            }
        ),
    )
    stream = b"\n".join(line if isinstance(line, bytes) else line.encode() for line in lines)
    assert [answer["error"]["code"] for answer in answers(stream, []) if answer["id"] == 2] == [
        -32603
    ]


def test_exception_becomes_internal_error_without_details() -> None:
    [answer] = answers(
        b'{"jsonrpc":"2.0","id":1,"method":"boom","params":{"protocolVersion":1}}', []
    )
    assert answer["error"]["code"] == -32603
    assert "secret" not in json.dumps(answer)


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        (b'{"jsonrpc":"2.0","id":1,"method":"a"}', Request),
        (b'{"jsonrpc":"2.0","id":null,"method":"a"}', Request),
        (b'{"jsonrpc":"2.0","method":"a","params":null}', Notification),
        (b'{"jsonrpc":"2.0","id":1,"result":null}', Response),
        (b'{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":"x"}}', Response),
        (b"   ", type(None)),
        (b'{"jsonrpc":"2.0","result":1}', type(None)),
        (b"{}", Invalid),
        (b'{"jsonrpc":"2.0","id":1.5,"method":"a"}', Invalid),
        (b'{"jsonrpc":"2.0","id":{},"method":"a"}', Invalid),
        (b'{"jsonrpc":"1.0","id":1,"method":"a"}', Invalid),
        (b'{"jsonrpc":"2.0","id":1,"method":7}', Invalid),
        (b"[" * 100_000, Invalid),
        (b'{"a":"\xff"}', Invalid),
    ],
)
def test_lines_are_told_apart(line: bytes, kind: type) -> None:
    assert type(jsonrpc.parse(line)) is kind


def test_ids_are_echoed_exactly() -> None:
    for raw in (b"0", b"-7", b"123456789012345678901234567890", b'"a\\u00e9\\/"', b"null"):
        parsed = jsonrpc.parse(b'{"jsonrpc":"2.0","id":' + raw + b',"method":"a"}')
        assert isinstance(parsed, Request)
        assert (
            jsonrpc.encode_result(parsed.id, {})
            == b'{"jsonrpc":"2.0","id":' + raw + b',"result":{}}\n'
        )


@pytest.mark.parametrize("half", [b"\\ud800", b"a\\udfff"])
def test_id_no_answer_could_have_is_refused(half: bytes) -> None:
    parsed = jsonrpc.parse(b'{"jsonrpc":"2.0","id":"' + half + b'","method":"a"}')
    assert isinstance(parsed, jsonrpc.Invalid)
    assert (parsed.id, parsed.error.message) == (b"null", jsonrpc.BAD_ID)


def test_half_an_emoji_does_not_cost_the_prompt() -> None:
    parsed = jsonrpc.parse(
        b'{"jsonrpc":"2.0","id":1,"method":"a","params":{"sessionId":"x\\ud83d"}}'
    )
    assert isinstance(parsed, Request)
    assert jsonrpc.decode_params(parsed.params, SessionParams).session_id == "x?"


@pytest.mark.parametrize(
    ("params", "kind", "message"),
    [
        ({"cwd": 1, "mcpServers": []}, NewSessionParams, "`cwd`: expected `str`, got `int`."),
        ({"cwd": "/"}, NewSessionParams, "`mcpServers` is required."),
        (
            {"sessionId": "s", "prompt": [{"type": "geheim", "text": "geheim"}]},
            PromptParams,
            "`prompt[0].type`: must be one of text, resource_link, image, resource.",
        ),
        (
            {"type": "geheim", "name": "n", "url": "u", "headers": []},
            WebServer,
            "`type`: must be one of http, sse.",
        ),
        (
            {"type": "geheim", "name": "n", "command": "c", "args": [], "env": []},
            StdioServer,
            "`type`: must be stdio.",
        ),
        (
            {"question": "q", "decision": "geheim"},
            AnswerParams,
            "`decision`: must be one of allow_always, allow_former, allow_lasting, allow_once, deny.",
        ),
        (
            {"type": "geheim", "text": "t"},
            TextContent,
            "`type`: must be text.",
        ),
        (
            {"sessionId": "s", "prompt": [{"type": "text"}]},
            PromptParams,
            "`prompt[0].text` is required.",
        ),
        ({"sessionId": "s", "prompt": [], "_meta": "geheim"}, PromptParams, "`_meta`: expected"),
        ([], SessionParams, "`params`: expected `object`, got `array`."),
    ],
)
def test_wrong_parameters_are_named_and_not_echoed(params: Any, kind: type, message: str) -> None:
    with pytest.raises(InvalidParams) as caught:
        jsonrpc.decode_params(msgspec.json.encode(params), kind)
    assert caught.value.message.startswith(message)
    assert "geheim" not in caught.value.message


@given(JSON)
def test_bad_client_information_falls_back_field_by_field(value: Any) -> None:
    assert isinstance(lenient.decode(msgspec.json.encode(value), Implementation), Implementation)
    decoded = lenient.decode(msgspec.json.encode({"name": "zed", "version": value}), Implementation)
    assert decoded.name == "zed"
    assert decoded.version == (value if isinstance(value, str) else "unknown")


@given(JSON)
def test_client_capabilities_of_any_shape_are_accepted(value: Any) -> None:
    params = {"protocolVersion": 1, "clientCapabilities": value}
    assert (
        jsonrpc.decode_params(msgspec.json.encode(params), InitializeParams).protocol_version == 1
    )


def test_immediately_cancelled_request_is_answered_once() -> None:
    lines = (
        b'{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":1}}',
        b'{"jsonrpc":"2.0","id":2,"method":"waits","params":{"sessionId":"s"}}',
        b'{"jsonrpc":"2.0","method":"$/cancel_request","params":{"requestId":2}}',
    )
    withdrawn = [answer for answer in answers(b"\n".join(lines), []) if answer["id"] == 2]
    assert [answer["error"]["code"] for answer in withdrawn] == [-32800]


def test_calls_on_one_session_run_in_their_order() -> None:
    """Also when the first has just left and the second has not begun: a cancel must not overtake
    its prompt.
    """
    order: list[str] = []

    async def run() -> None:
        line = SessionOrder()

        async def call(name: str, pauses: int) -> None:
            async with line.turn("s"):
                order.append(f"in {name}")
                for _ in range(pauses):
                    await asyncio.sleep(0)
                order.append(f"out {name}")

        tasks = []
        for at in range(30):
            tasks.append(asyncio.create_task(call(str(at), at % 3)))
            for _ in range(at % 4):
                await asyncio.sleep(0)
        await asyncio.gather(*tasks)

    asyncio.run(run())
    assert order == [f"{way} {at}" for at in range(30) for way in ("in", "out")]
