"""Lines of any length are read in little memory: their long strings are cut, and they stay JSON."""

from __future__ import annotations

import json
import os
import random
from pathlib import Path
from typing import Any

import pytest

from pykoclaw_acp.transcripts import lines


def read(path: Path, data: bytes, offset: int = 0, upto: int | None = None) -> list[lines.Line]:
    path.write_bytes(data)
    descriptor = os.open(path, os.O_RDONLY)
    try:
        return list(lines.read(descriptor, offset, len(data) if upto is None else upto))
    finally:
        os.close(descriptor)


def one(path: Path, value: Any) -> Any:
    data = json.dumps(value, ensure_ascii=False).encode(errors="surrogatepass") + b"\n"
    (line,) = read(path, data)
    assert (line.begin, line.end) == (0, len(data))
    assert line.text is not None
    assert len(line.text) < 8 * 1024 * 1024
    return json.loads(line.text)


def test_lines_have_their_places(tmp_path: Path) -> None:
    data = b"one\n\n  \ntwo\nthree"
    found = read(tmp_path / "x", data)
    assert [(line.begin, line.end, line.text) for line in found] == [
        (0, 4, b"one"),
        (8, 12, b"two"),
    ]
    assert [line.text for line in read(tmp_path / "x", data, 4, 11)] == []
    assert [line.text for line in read(tmp_path / "x", data, 4)] == [b"two"]


def test_lines_cross_the_borders_of_reads(tmp_path: Path) -> None:
    many = [b"%d" % n * 50_000 for n in range(1, 40)]
    found = read(tmp_path / "x", b"\n".join(many) + b"\n")
    assert [line.text for line in found] == many


@pytest.mark.parametrize(
    "text",
    ["x" * 3_000_000, "é" * 900_000, "\\" * 2_000_001, '"' * 1_000_001, "\n\t" * 700_000, "😀" * 400_000],
)  # fmt: skip
def test_long_strings_keep_their_ends(tmp_path: Path, text: str) -> None:
    begin, end = "begin ", " end"
    found = one(tmp_path / "x", {"a": [1, begin + text + end], "uuid": "u", "s": "short"})
    assert (found["uuid"], found["s"]) == ("u", "short")
    kept = found["a"][1]
    assert kept.startswith(begin)
    assert kept.endswith(end.strip())  # nothing before it may be half an escape
    assert "bytes left out" in kept
    assert len(kept) < 300_000
    whole, _, rest = kept.partition("\n… ")
    assert set(whole.removeprefix(begin)) <= set(text)
    assert set(rest.partition("…\n")[2].removesuffix(end.strip())) <= {*text, " "}


def test_escaped_long_strings_stay_valid(tmp_path: Path) -> None:
    made = random.Random(7)
    for n in range(16):
        some = ["\\", '"'] if n % 2 else ["\\", '"', "a", "é", "😀", "\n"]
        text = "".join(made.choices(some, k=5_003)) * 100 + "a" * (n % 3)
        data = json.dumps({"t": text, "u": "u"}).encode() + b"\n"
        (line,) = read(tmp_path / "x", data)
        assert line.text is not None
        assert json.loads(line.text)["u"] == "u"


def test_images_are_whole_or_gone(tmp_path: Path) -> None:
    small, large = "a" * 2_000_000, "b" * 6_000_000
    found = one(tmp_path / "x", {"one": {"data": small}, "two": {"data": large}, "u": "u"})
    assert (found["one"]["data"] == small, found["two"]["data"], found["u"]) == (True, None, "u")


def test_many_long_strings_share_a_budget(tmp_path: Path) -> None:
    found = one(tmp_path / "x", {"all": ["x" * 200_000] * 60, "uuid": "u"})
    assert (found["uuid"], len(found["all"])) == ("u", 60)


@pytest.mark.parametrize("kind", [list, dict])
def test_too_much_besides_strings_is_no_line(tmp_path: Path, kind: type) -> None:
    value = list(range(400_000)) if kind is list else {str(n): n for n in range(200_000)}
    data = json.dumps(value).encode() + b"\nafter\n"
    found = read(tmp_path / "x", data)
    assert [line.text for line in found] == [None, b"after"]


def test_string_without_an_end_is_no_line(tmp_path: Path) -> None:
    found = read(tmp_path / "x", b'{"a": "' + b"x" * 2_000_000 + b"\nafter\n")
    assert [line.text for line in found] == [None, b"after"]


@pytest.mark.parametrize("string", [True, False])
def test_a_hole_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, string: bool
) -> None:
    """Also inside of a long string: 20 GB that are nowhere cost a few reads."""
    path, size = tmp_path / "x", 20 * 2**30
    begun = b'{"a": "' + b"x" * 1_000_000 if string else b""
    with path.open("wb") as file:
        file.write(b"one\n" + begun)
        file.seek(size)
        file.write(b'"}\ntwo\n')
    reads: list[int] = []
    pread = os.pread

    def counted(*given: int) -> bytes:
        reads.append(given[1])
        return pread(*given)

    monkeypatch.setattr(os, "pread", counted)
    descriptor = os.open(path, os.O_RDONLY)
    found = list(lines.read(descriptor, 0, os.fstat(descriptor).st_size))
    rest = list(lines.read(descriptor, 4, size))
    os.close(descriptor)
    assert [(one.begin, one.end, one.text) for one in found] == [
        (0, 4, b"one"),
        (4, size + 3, None),
        (size + 3, size + 7, b"two"),
    ]
    assert rest == [], "its end is not there"
    assert len(reads) < 30
