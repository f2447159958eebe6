"""The door for fronts, fed with anything: it never stops, and gives each line of a client's on
under its number.
"""

from __future__ import annotations

import asyncio
import itertools

from hypothesis import given, settings
from hypothesis import strategies as st

from pykoclaw_acp.server.link import FrontPeer
from pykoclaw_acp.server.peer import ClientLine

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

    async def write(self, line: bytes) -> None:
        assert line.startswith(b"welcome ")


class Listener:
    def confirm_updates(self, session_id: str, seq: int) -> None:
        raise AssertionError("the front was told nothing that it could have seen")

    def confirm_answer(self, number: int) -> None:
        assert 0 <= number <= 2**53


def taken(stream: bytes, cuts: list[int]) -> list[ClientLine]:
    """The client's lines, of a stream that is cut at these places."""
    places = [0, *sorted(cut % (len(stream) + 1) for cut in cuts), len(stream)]
    chunks = [stream[a:b] for a, b in itertools.pairwise(places) if a < b]

    async def run() -> list[ClientLine]:
        peer = await FrontPeer.meet(Chunks(chunks), b'front {"front":"f"}\n')
        peer.listener = Listener()
        return [line async for lines in peer.incoming() for line in lines if line is not None]

    return asyncio.run(run())


@settings(max_examples=100, deadline=None)
@given(st.lists(LINES, max_size=12), st.lists(st.integers(min_value=0), max_size=8))
def test_front_lines_do_not_depend_on_chunk_boundaries(lines: list[bytes], cuts: list[int]) -> None:
    stream = b"".join(line + b"\n" for line in lines)
    found = taken(stream + b"> 7 {}\n", cuts)
    assert (found[-1].number, bytes(found[-1].content)) == (7, b"{}")  # type: ignore[arg-type]
    assert [(one.number, one.content) for one in taken(stream + b"> 7 {}\n", [])] == [
        (one.number, one.content) for one in found
    ]
    assert all(0 <= one.number <= 2**53 for one in found)
