"""What a line may cost before anybody knows what it means: bytes, values, depth, and the memory of
unfinished ones.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import tracemalloc
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pykoclaw_acp.errors import AcpError
from pykoclaw_acp.front import words
from pykoclaw_acp.link import line_id
from pykoclaw_acp.link.framing import MAX_LINE_EARLY, SMALL, LineFramer, Oversized
from pykoclaw_acp.long_texts import finished
from pykoclaw_acp.protocol import long_lines, prompt
from pykoclaw_acp.protocol.content import TextContent
from pykoclaw_acp.protocol.jsonrpc import Invalid, Request, Response
from pykoclaw_acp.protocol.messages import PromptParams
from pykoclaw_acp.server import line_room, reading
from pykoclaw_acp.server.line_room import LineRoom

MIB = 1024 * 1024


def read(line: bytes | bytearray | Oversized) -> reading.ReadMessage:
    return asyncio.run(reading.read(line))


def request(method: str, message_id: Any = 7, **params: Any) -> bytes:
    return json.dumps(
        {"jsonrpc": "2.0", "id": message_id, "method": method, "params": params}
    ).encode()


def refusal(line: bytes | bytearray | Oversized) -> tuple[Any, AcpError]:
    message = read(line).message
    assert isinstance(message, Invalid)
    return json.loads(message.id), message.error


# --- lines that are not complete


def test_a_line_in_tiny_pieces_holds_its_size() -> None:
    framer = LineFramer()
    tracemalloc.start()
    try:
        for at in range(25_000):
            framer.feed(b"%02d" % (at % 100))
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held < 1.3 * 50_000
    (line,) = framer.feed(b"\n")
    assert len(line) == 50_000  # type: ignore[arg-type]


def test_long_line_is_handed_over_without_copy() -> None:
    framer = LineFramer()
    piece = b"x" * MIB
    tracemalloc.start()
    try:
        for _ in range(16):
            framer.feed(piece)
        tracemalloc.reset_peak()
        lines = framer.feed(b"\n")
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(lines) == 1
    assert peak < 20 * MIB


def test_the_lines_of_all_clients_share_a_room() -> None:
    room = LineRoom(most=3 * MIB)
    one, other = LineFramer(room=room), LineFramer(room=room)
    assert one.feed(b"x" * 2 * MIB) == []
    (refused,) = other.feed(b'{"id":1,' + b"y" * 2 * MIB)
    assert isinstance(refused, Oversized)
    assert refused.crowded
    assert other.feed(b"y" * MIB + b"\nshort\n") == [b"short"], (
        "the rest of the line is passed over"
    )
    assert room.total == 2 * MIB
    (line,) = one.feed(b"\n")
    assert len(line) == 2 * MIB  # type: ignore[arg-type]
    assert room.total == 2 * MIB, "a line that is being read counts"
    one.feed(b"next")
    assert room.total == 0


def test_kept_line_counts_while_others_are_read() -> None:
    room = LineRoom(most=3 * MIB)
    one, other = LineFramer(room=room), LineFramer(room=room)
    one.feed(b"x" * 2 * MIB)
    one.feed(b"\n")
    let_go = one.keep(2 * MIB)
    assert one.feed(b"short\n") == [b"short"]
    (refused,) = other.feed(b"y" * 2 * MIB)
    assert isinstance(refused, Oversized)
    let_go()
    assert other.feed(b"\n" + b"y" * 2 * MIB) == []
    assert room.total == 2 * MIB


def test_small_lines_need_no_room() -> None:
    room = LineRoom(most=0)
    assert LineFramer(room=room).feed(b"x" * SMALL) == []


def test_a_line_that_stopped_coming_gives_way() -> None:
    now = 0.0
    room = LineRoom(most=3 * MIB, clock=lambda: now)
    stalled, fresh, comes = (LineFramer(room=room) for _ in range(3))
    stalled.feed(b"a" * MIB)
    now = line_room.PATIENCE + 1
    fresh.feed(b"b" * MIB)
    assert comes.feed(b"c" * (MIB + 1)) == []
    (lost,) = stalled.feed(b"a" * 10)
    assert isinstance(lost, Oversized)
    assert lost.crowded
    assert stalled.feed(b"a\nnext\n") == [b"next"]
    assert len(fresh.feed(b"\n")) == 1


def test_trickling_line_gives_way() -> None:
    now = 0.0
    room = LineRoom(most=2 * MIB, clock=lambda: now)
    trickles, comes = LineFramer(room=room), LineFramer(room=room)
    trickles.feed(b"a" * MIB)
    while now <= line_room.WHOLE:
        assert trickles.feed(b"a") == []
        now += line_room.PATIENCE / 2
    assert comes.feed(b"c" * 2 * MIB) == []
    (lost,) = trickles.feed(b"a")
    assert isinstance(lost, Oversized)
    assert lost.crowded
    now += line_room.WHOLE
    assert comes.feed(b"\n" + b"d" * MIB) == [b"c" * 2 * MIB], "the next line begins anew"
    assert isinstance(LineFramer(room=room).feed(b"e" * 2 * MIB)[0], Oversized)


def test_process_with_more_than_its_share_gives_way() -> None:
    """Only to one with less, and no more lines than needed."""
    room = LineRoom(most=4 * MIB)
    greedy = [LineFramer(room=room.of("greedy")) for _ in range(4)]
    modest, other = LineFramer(room=room.of("modest")), LineFramer(room=room.of("greedy"))
    for one in greedy:
        assert one.feed(b"x" * MIB) == []
    (refused,) = other.feed(b"y" * MIB)
    assert isinstance(refused, Oversized)
    assert modest.feed(b"y" * MIB) == []
    assert room.total == 4 * MIB
    lost = [one.feed(b"\n") for one in greedy]
    assert [isinstance(each[0], Oversized) for each in lost] == [True, False, False, False]
    assert modest.feed(b"\n") == [b"y" * MIB]


def test_a_client_that_leaves_leaves_its_room() -> None:
    room = LineRoom()
    framer = LineFramer(room=room)
    framer.feed(b"x" * MIB)
    framer.close()
    assert room.total == 0


# --- what a line holds

COSTLY = {
    "values": {"a": [1] * 400_000},
    "texts": {"a": ["x"] * 400_000},
    "empty arrays": {"a": [[]] * 300_000},
    "members": {f"k{n}": n for n in range(100_000)},
    "long texts": {"a": ["x" * 1200] * 21_000},
    "texts below the length of long ones": {"a": ["x" * 1000] * 10_000},
}


@pytest.mark.parametrize("costly", COSTLY)
@pytest.mark.parametrize("method", ["session/new", "session/prompt"])
def test_line_with_too_many_values_refused_before_parsing(
    method: str, costly: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = request(method, cwd="/", mcpServers=[], prompt=[], sessionId="s", _meta=COSTLY[costly])
    decoded: list[int] = []
    decode = msgspec.json.decode

    def counting(data: bytes, **options: Any) -> Any:
        decoded.append(len(data))
        return decode(data, **options)

    monkeypatch.setattr(msgspec.json, "decode", counting)
    message_id, error = refusal(line)
    assert (message_id, error.code) == (7, -32600)
    assert "20,000 values" in error.message
    assert max(decoded, default=0) <= long_lines.PIECE


def test_deep_values_are_refused() -> None:
    deep = request("session/new", _meta=json.loads("[" * 900 + "]" * 900))
    message_id, error = refusal(deep)
    assert (message_id, error.code) == (7, -32600)
    assert "inside of each other" in error.message


def test_text_full_of_commas_and_brackets_stays_text() -> None:
    text = '[{"a": [1, 2]}, ' * (10 * MIB // 16)
    params = read(
        request("session/prompt", sessionId="s", prompt=[{"type": "text", "text": text}])
    ).long
    assert isinstance(params, PromptParams)
    (block,) = params.prompt
    assert isinstance(block, TextContent)
    assert block.text == text


def test_image_of_64_mib_refused_and_not_kept() -> None:
    tracemalloc.start()
    try:
        line = bytearray(
            b'{"jsonrpc":"2.0","id":7,"method":"session/prompt","params":{"sessionId":"s","prompt":['
        )
        line += b'{"type":"image","mimeType":"image/png","data":"'
        for _ in range(63):
            line += b"A" * MIB
        line += b'"}]}}'
        tracemalloc.reset_peak()
        before, _ = tracemalloc.get_traced_memory()
        params = read(line).long
        after, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak - before < 40 * MIB, "what an image may have, and pieces"
    assert after < MIB
    assert isinstance(params, AcpError)
    assert params.message.startswith("`prompt[0]`: has 47.2 MiB; this agent takes 10 MiB at most.")


def test_long_line_memory_is_released_in_parts() -> None:
    line = bytearray(
        b'{"jsonrpc":"2.0","id":7,"method":"session/prompt","params":{"sessionId":"s","prompt":['
    )
    line += b'{"type":"text","text":"' + b"A" * (9 * MIB) + b'"}]}}'
    assert len(list(long_lines.released(bytearray(line)))) > 5, (
        "each step gives back half of what is left"
    )
    assert read(line).message is not None
    assert line == b"", "whatever still refers to it, a turn for instance"


def test_what_is_seen_of_a_line_stays() -> None:
    short = bytearray(
        b'{"jsonrpc":"2.0","id":7,"method":"session/new","params":{"a":"' + b"x" * 1000 + b'"}}'
    )
    kept = bytes(short)
    with memoryview(short):
        assert list(long_lines.released(short)) == []
    assert short == kept
    long = bytearray(
        b'{"jsonrpc":"2.0","id":7,"method":"session/prompt","params":{"sessionId":"s","prompt":[]},"x":['
    )
    long += b",".join([b'"' + b"y" * 1000 + b'"'] * 1200) + b"]}"
    message = read(long).message
    assert isinstance(message, Request)
    assert bytes(message.params) == b'{"sessionId":"s","prompt":[]}'


def test_a_line_that_grows_is_not_copied() -> None:
    """Counted in pages that one piece touches: a copy touches all of them anew."""
    program = (
        "import resource; from pykoclaw_acp.system import allocator; allocator.keep_large_blocks_apart();"
        "faults = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_minflt; piece = b'x' * 262144; most = 0\n"
        "del (first := bytearray(30 << 20))[:]; del first; line = bytearray(); beside = []\n"
        "for at in range(120):\n"
        "    before = faults(); line += piece; most = max(most, faults() - before); beside.append(bytearray(900_000))\n"
        "print(most)"
    )
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    )
    assert int(result.stdout) <= 16 * 64, "a piece has 64 pages"


def test_overlong_prompt_is_refused_without_joining() -> None:
    texts = [{"type": "text", "text": "x" * (prompt.MAX_TEXT // 2 + 1)}] * 2
    refused = read(request("session/prompt", sessionId="s", prompt=texts)).long
    assert isinstance(refused, AcpError)
    assert "its text is longer than" in refused.message


@pytest.mark.parametrize(("size", "says"), [(60_000, None), (70_000, "the link is longer")])
def test_a_long_link_in_a_long_prompt(size: int, says: str | None) -> None:
    link = {"type": "resource_link", "uri": "file:///" + "x" * size, "name": "n"}
    text = {"type": "text", "text": "y" * 300_000}
    params = read(request("session/prompt", sessionId="s", prompt=[link, text])).long
    if says is None:
        assert isinstance(params, PromptParams)
        assert finished(prompt.accepted(params.prompt)).blocks == [link, text]
    else:
        assert isinstance(params, AcpError)
        assert says in params.message


def test_long_non_prompt_message_is_refused_with_id() -> None:
    message_id, error = refusal(
        request("session/new", cwd="/", mcpServers=[], _meta={"a": "x" * 2 * MIB})
    )
    assert (message_id, error.code) == (7, -32600)
    assert "Only a prompt" in error.message
    answer = json.dumps({"jsonrpc": "2.0", "id": "q", "result": {"action": "x" * 2 * MIB}}).encode()
    message = read(answer).message
    assert isinstance(message, Response)
    assert message.result is None, "it counts as a refusal"


def test_half_mebibyte_message_is_read_whole() -> None:
    line = request("session/new", cwd="/" + "x" * 500_000, mcpServers=[])
    message = read(line).message
    assert isinstance(message, Request)
    assert len(json.loads(message.params)["cwd"]) == 500_001


@pytest.mark.parametrize("message_id", ["i" * 1000, "ü" * 150, -5, 10**30])
def test_id_is_echoed_for_any_line(message_id: Any) -> None:
    text = [{"type": "text", "text": "x" * 400_000}]
    for method in ("session/prompt", "session/new"):
        message = read(request(method, message_id, sessionId="s", prompt=text)).message
        assert isinstance(message, Request)
        assert json.loads(message.id) == message_id


def test_overlong_id_is_refused_in_long_line_too() -> None:
    line = request(
        "session/prompt",
        "i" * 2000,
        sessionId="s",
        prompt=[{"type": "text", "text": "x" * 400_000}],
    )
    assert refusal(line)[0] is None


@pytest.mark.parametrize(
    "line", [b"{" + b"x" * 2 * MIB, b'{"a":"' + b"x" * 2 * MIB, b'{"a":"\xff' + b"x" * MIB + b'"}']
)
def test_long_line_without_json_is_reported_as_such(line: bytes) -> None:
    message_id, error = refusal(line)
    assert (message_id, error.code) == (None, -32700 if b'"' in line else error.code)


# --- the id of a line that is not read

PLACES = {
    "first": '{"id": %s, "jsonrpc": "2.0", "method": "m", "params": {"id": 1, "x": "',
    "after the method": '{"jsonrpc":"2.0","method":"m","id":%s,"params":{"id": 1, "x": "',
}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("message_id", ["7", '"a\\"b"', "-3"])
def test_the_id_of_an_oversized_line_is_found(place: str, message_id: str) -> None:
    assert line_id.find((PLACES[place] % message_id).encode()).decode() == message_id
    framer = LineFramer(limit=MAX_LINE_EARLY)
    (line,) = framer.feed((PLACES[place] % message_id).encode() + b"x" * MAX_LINE_EARLY)
    assert isinstance(line, Oversized)
    found, error = refusal(line)
    assert (found, error.code) == (json.loads(message_id), -32600)
    assert "longer than 1 MiB before `initialize`" in error.message


@given(
    st.sampled_from([{"id": 5}, {"method": "m", "id": "x"}, {"id": 6, "jsonrpc": "2.0"}]), st.text()
)
def test_id_at_end_of_line_is_found(after: dict[str, Any], text: str) -> None:
    line = json.dumps({"params": {"id": 3, "a": [text, 'x","id":4}']}, **after}).encode()
    assert json.loads(line_id.find(line[:100], line[-200:])) == after["id"]


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize(
    "message_id", [rb'"\q"', b'"\xff"', b"007", b"-01", rb'"\u12"', b'"\xed\xa0\x80"']
)
def test_an_id_that_is_no_json_is_null(place: str, message_id: bytes) -> None:
    head = PLACES[place].encode() % message_id
    assert line_id.find(head) == b"null"
    assert json.loads(words.too_long(Oversized(head, 1024)))["id"] is None
    tail = b'{"params":{},"id":%b}' % message_id
    assert line_id.find(tail[:5], tail) == b"null"


@given(st.text(st.sampled_from('{}[]",:\\ id1x'), max_size=60))
def test_id_inside_parameters_is_not_message_id(text: str) -> None:
    line = json.dumps({"params": {"a": text, "id": 3}}).encode()
    assert line_id.find(line, line) == b"null"


# --- pieces


def test_many_short_strings_are_passed_in_bounded_steps() -> None:
    """Each costs its own length, and no piece is copied for it."""
    looked = [0]

    class Counting(bytes):
        def find(self, sub: Any, start: Any = 0, end: Any = None) -> int:
            found = bytes.find(self, sub, start, end)
            looked[0] += (min(end, len(self)) if found < 0 else found + 1) - start
            return found

        def __getitem__(self, key: Any) -> Any:
            cut = bytes.__getitem__(self, key)
            looked[0] += len(cut)
            return cut

    def work(count: int) -> tuple[int, int]:
        line = Counting(b'{"a":[' + b'"word",' * count + b'"w"]}')
        looked[0] = 0
        steps = sum(1 for _ in long_lines.shorten(line))
        return looked[0], steps

    (few, _), (many, steps) = work(5_000), work(15_000)
    assert many <= 3.2 * few
    assert many <= 6 * 15_000 * len(b'"word",')
    assert steps >= 15_000 / long_lines.STEP


def test_three_million_escaped_emoji_are_joined_in_pieces() -> None:
    text = long_lines.LongText(pieces=["😀" * 10_000] * 300)
    steps = sum(1 for _ in text.joined())
    assert steps == 300
    assert finished(text.joined()) == "😀" * 3_000_000


async def test_client_waits_for_next_slice_between_line_pieces(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rests = 0
    now = 0.0

    def thread_time() -> float:
        nonlocal now
        now += 0.0006
        return now

    async def rest() -> None:
        nonlocal rests
        rests += 1

    monkeypatch.setattr("pykoclaw_acp.tasks.time.thread_time", thread_time)
    text = [{"type": "text", "text": "x" * 4 * MIB}]
    found = await reading.read(request("session/prompt", sessionId="s", prompt=text), rest)
    assert isinstance(found.long, PromptParams)
    assert rests >= 4 * MIB / long_lines.PIECE / 2
