"""The door for fronts, fed with anything: it never stops, and gives each line of a client's on
under its number.
"""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pykoclaw_acp.errors import Overloaded, ParseError
from pykoclaw_acp.protocol import long_lines
from pykoclaw_acp.server import introduction
from pykoclaw_acp.server.introduction import MAX_HELLO, FrontHello
from pykoclaw_acp.server.line_room import LineRoom
from pykoclaw_acp.server.link import FrontPeer
from pykoclaw_acp.server.peer import ClientLine, DirectPeer

WORDS = st.sampled_from([b">", b">>", b"seen", b"done", b"ack", b"front", b""])
NUMBERS = st.integers().map(lambda n: str(n).encode()) | st.binary(max_size=4)
LINES = st.builds(
    lambda word, numbers, rest: b" ".join([word, *numbers, rest]),
    WORDS,
    st.lists(NUMBERS, max_size=3),
    st.binary(max_size=40),
).map(lambda line: line.replace(b"\n", b""))


class Chunks:
    """Bytes in chunks."""

    def __init__(self, chunks: list[bytes]) -> None:
        self.chunks = chunks

    async def read(self) -> bytes:
        return self.chunks.pop(0) if self.chunks else b""

    def gather(self) -> None: ...

    async def write(self, line: bytes) -> None:
        assert line.startswith(b"welcome ")


class Listener:
    def confirm_updates(self, session_id: str, seq: int) -> None:
        raise AssertionError("the front was told nothing that it could have seen")

    def confirm_answer(self, number: int) -> None:
        assert 0 <= number <= 2**53


@pytest.mark.parametrize("direct", [True, False])
async def test_idle_client_holds_no_room(direct: bool) -> None:
    """After a long line, which was refused, say."""
    room, held = LineRoom(), []

    class Watched(Chunks):
        async def read(self) -> bytes:
            held.append(room.total)
            return await super().read()

    client = Watched([b"> 1 ".ljust(200_000, b"x"), b"x" * 200_000 + b"\n"])
    peer = (
        DirectPeer(client, room=room)
        if direct
        else await FrontPeer.meet(client, b'front {"front":"f"}\n', room=room)
    )
    assert len([line async for some in peer.incoming() for line in some]) == 1
    assert held == [0, 200_000, 0]


def taken(stream: bytes, cuts: list[int]) -> list[ClientLine]:
    """The client's lines, of a stream that is cut at these places."""
    places = [0, *sorted(cut % (len(stream) + 1) for cut in cuts), len(stream)]
    chunks = [stream[a:b] for a, b in itertools.pairwise(places) if a < b]

    async def run() -> list[ClientLine]:
        peer = await FrontPeer.meet(Chunks(chunks), b'front {"front":"f"}\n')
        peer.listener = Listener()
        return [line async for lines in peer.incoming() for line in lines if line is not None]

    return asyncio.run(run())


@given(st.lists(LINES, max_size=12), st.lists(st.integers(min_value=0), max_size=8))
def test_front_lines_do_not_depend_on_chunk_boundaries(lines: list[bytes], cuts: list[int]) -> None:
    stream = b"".join(line + b"\n" for line in lines)
    found = taken(stream + b"> 7 {}\n", cuts)
    assert (found[-1].number, bytes(found[-1].content)) == (7, b"{}")  # type: ignore[arg-type]
    assert [(one.number, one.content) for one in taken(stream + b"> 7 {}\n", [])] == [
        (one.number, one.content) for one in found
    ]
    assert all(0 <= one.number <= 2**53 for one in found)


# --- its introduction

MIB = 1024 * 1024
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=20)
    | st.sampled_from([2**53, 2**53 + 1, "x" * 300, "\n" * 2000, "\ud83d", "😀" * 600]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=6,
)
FIELDS = st.dictionaries(
    st.sampled_from([*FrontHello.__struct_encode_fields__, "unknown"]), VALUES, max_size=8
)


def hello(**fields: Any) -> bytes:
    return b"front %b\n" % json.dumps({"front": "f", **fields}, ensure_ascii=False).encode(
        errors="replace"
    )


def met(said: bytes, room: LineRoom | None = None, size: int = 256 * 1024) -> FrontPeer:
    chunks = [said[at : at + size] for at in range(0, len(said), size)]
    return asyncio.run(FrontPeer.meet(Chunks(chunks), b"", room=room))


@given(FIELDS, st.integers(min_value=1, max_value=400))
def test_any_introduction_is_taken_or_refused(fields: dict[str, Any], size: int) -> None:
    room = LineRoom()
    try:
        peer = met(hello(**fields), room, size)
    except ParseError:
        pass
    else:
        peer.stop_reading()
    assert room.total == 0


def counted(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Bytes of everything that is decoded from now on."""
    decoded: list[int] = []

    def counting(decode: Callable[..., Any]) -> Callable[..., Any]:
        def count(data: bytes, **options: Any) -> Any:
            decoded.append(len(data))
            return decode(data, **options)

        return count

    class Counting:
        def __init__(self, decoder: Any) -> None:
            self.decode = counting(decoder.decode)

    monkeypatch.setattr(msgspec.json, "decode", counting(msgspec.json.decode))
    for name in ("_hello", "_environment"):
        monkeypatch.setattr(introduction, name, Counting(getattr(introduction, name)))
    return decoded


COSTLY: dict[str, Callable[[], dict[str, Any]]] = {
    "deaths": lambda: {"deaths": {str(n): 1 for n in range(200_000)}},
    "taken": lambda: {"taken": [1] * 200_000},
    "sessions": lambda: {"sessions": {str(n): {"seq": 1} for n in range(150_000)}},
    "initialize": lambda: {"initialize": {"_meta": [0] * 200_000}},
    "unknown": lambda: {"unknown": [[]] * 200_000},
    "deep": lambda: {"initialize": json.loads("[" * 500 + "]" * 500)},
    "version": lambda: {"version": "\n" * 2 * MIB},
    "front": lambda: {"front": "f" * 2 * MIB},
}


@pytest.mark.parametrize("costly", COSTLY)
def test_costly_introduction_is_refused_before_it_is_decoded(
    costly: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = hello(**COSTLY[costly]())
    decoded = counted(monkeypatch)
    with pytest.raises(ParseError, match="cannot be read"):
        met(said)
    assert max(decoded, default=0) <= long_lines.PIECE + 2


def test_long_introductions_are_decoded_in_pieces(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    text = 'a "long" one\n😀 ' * 50_000
    server = {"name": "s", "command": "c", "args": [text], "env": []}
    said = hello(
        sessions={"s": {"seq": 1, "opened": {"mcpServers": [server]}}},
        environment={"LONG": text, "SHORT": "x"},
        initialize={"protocolVersion": 1, "_meta": {text: text}},
    )
    decoded = counted(monkeypatch)
    peer = met(said)
    assert max(decoded) <= long_lines.PIECE + 2
    assert peer.environment == {"LONG": text, "SHORT": "x"}
    assert json.loads(bytes(peer.hello.sessions["s"].opened)) == {"mcpServers": [server]}
    assert json.loads(bytes(peer.hello.initialize))["_meta"] == {text: text}


def test_introductions_of_all_fronts_share_a_room() -> None:
    room = LineRoom(most=5 * MIB)
    peer = met(hello(environment={"A": "x" * 4 * MIB}), room)
    assert room.total > 4 * MIB, "until it has taken effect"
    with pytest.raises(Overloaded):
        met(hello(environment={"A": "x" * 4 * MIB}), room)
    with pytest.raises(ParseError, match="8 MiB"):
        met(hello(environment={"A": "x" * MAX_HELLO}))
    peer.stop_reading()
    assert room.total == 0


def test_unfinished_introduction_leaves_its_room() -> None:
    room = LineRoom()
    with pytest.raises(ParseError, match="left before"):
        met(hello(environment={"A": "x" * 4 * MIB})[:-1], room)
    assert room.total == 0


def test_little_is_kept_of_a_used_introduction() -> None:
    peer = met(hello(environment={"A": "x" * 1000}, deaths={"1": 1}) + b">> 1 5 {}\n")

    async def first() -> ClientLine | None:
        async for lines in peer.incoming():
            for line in lines:
                return line
        return None

    line = asyncio.run(first())
    assert line is not None
    assert (line.number, line.deaths) == (1, 1)
    assert peer.hello.environment == introduction.NOTHING
