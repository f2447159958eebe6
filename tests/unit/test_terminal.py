"""Nothing from outside is obeyed by a terminal, or invisible in it; and everything that is written
passes there.
"""

from __future__ import annotations

import ast
import io
import json
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import pykoclaw_acp
from pykoclaw_acp import terminal
from pykoclaw_acp.neutral import neutral

if TYPE_CHECKING:
    from pykoclaw_acp.neutral import Kind

PACKAGE = Path(pykoclaw_acp.__file__).parent


@pytest.mark.parametrize(
    ("text", "kind", "shown"),
    [
        ("naïve → 日本 e\u0301", "name", "naïve → 日本 e\u0301"),
        ("\x1b[2J\x1b[31mred", "name", r"\x1b[2J\x1b[31mred"),
        ("\x1b]0;a title\x07after", "prose", r"\x1b]0;a title\x07after"),
        ("\x9b1m\x9d0;x\x9c\x7f\x00", "prose", r"\x9b1m\x9d0;x\x9c\x7f\x00"),
        ("two\nlines\tand\r", "name", r"two\nlines\tand\r"),
        ("two\nlines\tand\rback", "command", "two\nlines\tand" + r"\rback"),
        ("two\r\nlines\rback", "prose", "two\nlines" + r"\rback"),
        ("gnp.\u202egpj.exe\u2066\u200f\u061c", "prose", r"gnp.\u202egpj.exe\u2066\u200f\u061c"),
        (
            "pay\u200bpal\ufeff\u2060\u00ad\u200d\ufe0f",
            "name",
            r"pay\u200bpal\ufeff\u2060\xad\u200d\ufe0f",
        ),
        ("rm\u200b -rf \U000e0041", "command", r"rm\u200b -rf \U000e0041"),
        (
            "👨\u200d👩\u200d👧 ❤\ufe0f नी\u200dल می\u200cخواهم",
            "prose",
            "👨\u200d👩\u200d👧 ❤\ufe0f नी\u200dल می\u200cخواهم",
        ),
        ("one\u2028two\x85three", "prose", r"one\u2028two\x85three"),
        ("half \udc9b", "prose", r"half \udc9b"),
    ],
)
def test_what_is_dangerous_is_escaped_where_it_is(text: str, kind: Kind, shown: str) -> None:
    assert neutral(text, kind) == shown
    assert neutral(shown, kind) == shown


def test_every_control_character_is_escaped_everywhere() -> None:
    controls = [chr(code) for code in (*range(0x20), *range(0x7F, 0xA0)) if chr(code) not in "\n\t"]
    for kind in ("name", "command", "prose", "json"):
        assert [one for one in controls if neutral(one, kind) == one] == []
    assert neutral("\n\t") == r"\n\t"


def test_json_keeps_meaning_without_control_characters(capsys: pytest.CaptureFixture[str]) -> None:
    value = {"title": "\x9b2J\x7f\u202e\u200d\U000e0041 日本\x1b"}
    terminal.as_json(value)
    written = capsys.readouterr().out
    assert json.loads(written) == value
    assert "日本" in written
    assert not set(written) & set("\x9b\x7f\u202e\u200d\U000e0041\x1b")


def test_what_rich_writes_is_neutral_too() -> None:
    stream = io.StringIO()
    terminal.console(stream).print("a\x9bb\u202e", markup=False)
    assert stream.getvalue() == r"a\x9bb\u202e" + "\n"


def test_a_long_text_goes_through_the_pager_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    paged: list[str] = []
    monkeypatch.setattr(terminal, "is_terminal", lambda: True)
    monkeypatch.setattr("click.echo_via_pager", paged.append)
    monkeypatch.setenv("LINES", "10")
    monkeypatch.setenv("COLUMNS", "40")
    for long in ("x\n" * 20, "x" * 1000):
        terminal.paged(terminal.shown(long, "command"))
    terminal.paged(terminal.shown("short"))
    assert paged == ["x\n" * 20, "x" * 1000]


# --- one printer

_STREAMS = {"stdout", "stderr", "__stdout__", "__stderr__"}
_WRITERS = {
    "echo",
    "secho",
    "confirm",
    "prompt",
    "echo_via_pager",
    "style",
    "progressbar",
    "edit",
    "pause",
}  # click's
# without one of these nothing is found
_WORDS = re.compile(r"print|input|sys\.|click|Console|os\.write|Shown")
ALLOWED = {
    "__main__.py": "one constant line where there is no memory for the printer",
    "terminal.py": "the printer",
    "logging/setup.py": "log lines, each made neutral in its processors",
    "front/spawn.py": "one line in the log of a daemon that cannot begin, made neutral",
    "front/words.py": "one line on standard error, made neutral",
    "demo/show.py": "a stream that is handed to the printer",
    "demo/speech.py": "an annotation",
    "server/stdio.py": "standard output speaks ACP",
    "worker/plugins/output.py": "a worker's standard output is its log; what plugins print is dropped",
    "worker/plugins/probing.py": "a child answers on its socket, descriptor 3",
}


def _writes(source: str) -> list[str]:
    """The places in a module that write to a terminal."""
    found = []
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Call(func=ast.Name(id="print" | "input")):
                found.append(ast.unparse(node))
            case ast.Attribute(value=ast.Name(id="sys"), attr=name) if name in _STREAMS:
                found.append(f"sys.{name}")
            case ast.Attribute(value=ast.Name(id="click"), attr=name) if name in _WRITERS:
                found.append(f"click.{name}")
            case ast.ImportFrom(module="click", names=names) if {
                one.name for one in names
            } & _WRITERS:
                found.append(ast.unparse(node))
            case ast.ImportFrom(module="rich.console", names=names) if any(
                one.name == "Console" for one in names
            ):
                found.append(ast.unparse(node))
            case ast.Call(
                func=ast.Attribute(value=ast.Name(id="os"), attr="write" | "writev"),
                args=[ast.Constant(), *_],
            ):
                found.append(ast.unparse(node))
            case ast.Call(func=ast.Name(id="Shown")):
                found.append(ast.unparse(node))
    return found


@pytest.mark.parametrize(
    "source",
    [
        "print(x)",
        "sys.stdout.write(x)",
        "click.echo(x)",
        "os.write(1, x)",
        "Shown(x)",
        "from click import echo",
    ],
)
def test_the_search_finds_who_writes(source: str) -> None:
    assert _writes(source)


def test_only_the_printer_writes_to_a_terminal() -> None:
    writers = {
        str(path.relative_to(PACKAGE)): found
        for path in PACKAGE.rglob("*.py")
        if _WORDS.search(source := path.read_text(encoding="utf-8")) and (found := _writes(source))
    }
    assert {name: found for name, found in writers.items() if name not in ALLOWED} == {}
    assert writers.keys() == ALLOWED.keys()


@pytest.mark.parametrize("errors", ["strict", "surrogateescape"])
@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_output_fits_any_locale(
    encoding: str, errors: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = io.BytesIO()
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(written, encoding=encoding, errors=errors))
    terminal.line("✓ done")
    terminal.table(["id", "title"], [["a", "é" * 3 * terminal.PIPE_WIDTH]])
    terminal.as_json({"title": "naïve 日本 👨"})
    sys.stdout.flush()
    shown = written.getvalue().decode(errors="surrogateescape")
    assert "done" in shown
    assert json.loads(shown[shown.index("{") :]) == {"title": "naïve 日本 👨"}
