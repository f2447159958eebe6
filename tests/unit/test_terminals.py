"""A client that has terminals sees in each what its command has written, whatever it missed."""

from __future__ import annotations

import random
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pykoclaw_acp.model.code_blocks import unfenced
from pykoclaw_acp.model.cutting import MOST, cut
from pykoclaw_acp.model.events import (
    Event,
    Output,
    TextPart,
    ToolEnded,
    ToolProgressed,
    ToolStarted,
    encode,
)
from pykoclaw_acp.model.log import Logged
from pykoclaw_acp.model.plain import COLOUR, plain
from pykoclaw_acp.protocol import projection
from pykoclaw_acp.protocol.terminals import CLEAR, Capability, Terminals
from pykoclaw_acp.server import command_client
from pykoclaw_acp.translation.tasks import newest, shown
from pykoclaw_acp.translation.texts import coloured, fenced
from pykoclaw_acp.translation.translator import Translation

BEGUN = ToolStarted("call", "Bash", "make", "execute")


class Screen:
    """A client as Zed is: it appends, and obeys a terminal's control sequences."""

    def __init__(self, *, deltas: bool = False) -> None:
        self.capability = Capability(deltas)
        self.terminals = Terminals(self.capability)
        self.text = ""
        self.update: dict[str, Any] = {}

    def connect_again(self) -> None:
        """To another daemon, which does not know what was shown."""
        self.terminals = Terminals(self.capability)

    def take(self, event: Event) -> dict[str, Any]:
        update = self.terminals.dress("s", event, projection.update(1, event))
        self.update = msgspec.to_builtins(update)
        meta = self.update["_meta"]
        if whole := meta.get("terminal_output"):
            assert whole["terminal_id"] == "call"
            new = self.capability.deltas or whole["data"].startswith(CLEAR)
            self.text = ("" if new else self.text) + whole["data"].removeprefix(CLEAR)
        if more := meta.get("terminal_output_delta"):
            self.text += more["data"]
        return self.update


def progressed(text: str) -> ToolProgressed:
    output = newest(text)
    return ToolProgressed("call", shown(output), output)


def ended(text: str, code: int = 0) -> ToolEnded:
    return ToolEnded("call", "completed", shown(Output(text), ended=True), exit_code=code)


def test_allowed_command_gets_terminal_in_questions_place() -> None:
    calls = Translation("/w")
    (began,) = calls.start_tool("call", "Bash", {"command": "make\nmake test"})
    screen = Screen()
    shown = screen.take(began)
    (allowed,) = calls.allowed("call")
    again = screen.take(allowed)
    assert again["status"] == "in_progress"
    assert (again["title"], again["content"]) == (shown["title"], shown["content"])
    assert again["content"][-1] == {"type": "terminal", "terminalId": "call"}
    assert "make test" in str(again["content"][0])
    screen.connect_again()
    assert screen.take(allowed)["content"] == shown["content"]


@pytest.mark.parametrize(
    ("meta", "found"),
    [
        (None, None),
        ({"terminal_output": False}, None),
        ({"terminal_output": True}, Capability()),
        ({"terminal_output_delta": True}, Capability(deltas=True)),
        ({"terminal_output": "yes", "terminal_output_delta": 1}, None),
    ],
)
def test_only_clients_that_say_so_have_terminals(
    meta: dict[str, Any] | None, found: Capability | None
) -> None:
    assert Capability.of(meta) == found


def test_command_begins_writes_and_ends_in_terminal() -> None:
    screen = Screen()
    begun = screen.take(BEGUN)
    assert begun["content"] == [{"type": "terminal", "terminalId": "call"}]
    assert begun["_meta"]["terminal_info"] == {"terminal_id": "call"}
    first = screen.take(progressed("one\n"))
    assert first["_meta"]["terminal_output"] == {"terminal_id": "call", "data": "one\n"}
    assert "content" not in first
    assert screen.take(progressed("one\ntwo\n"))["_meta"]["terminal_output"]["data"] == "two\n"
    end = screen.take(ended("one\ntwo\nthree", code=3))
    assert end["_meta"]["terminal_output"]["data"] == "three"
    assert end["_meta"]["terminal_exit"] == {"terminal_id": "call", "exit_code": 3, "signal": None}
    assert end["content"] == [{"type": "terminal", "terminalId": "call"}]
    assert end["rawOutput"] == {"output": "one\ntwo\nthree", "exitCode": 3}


@pytest.mark.parametrize("deltas", [False, True])
@pytest.mark.parametrize(
    ("live", "more", "appended"),
    [
        ("\x1b[31mred\x1b[0m\r\n", "", None),
        ("\x1b[31mred\x1b[0m\n", "\x1b[32mgreen\x1b[0m\n", "\x1b[32mgreen\x1b[0m"),
        ("\x1b[1mone", " line\x1b[0m", " line\x1b[0m"),
        ("\x1b[1mone\x1b[0m", "\x1b[2J\x07two", "\x1b[0mtwo"),
        (" 10%\r\x1b[1m 20%\x1b[0m\r", "\x1b[1mdone\x1b[0m", "\x1b[1mdone\x1b[0m"),
    ],
)
def test_what_was_shown_in_colours_keeps_them(
    live: str, more: str, appended: str | None, deltas: bool
) -> None:
    screen = Screen(deltas=deltas)
    screen.take(BEGUN)
    screen.take(progressed(live))
    put_out = live + more
    whole = TextPart(fenced(put_out), coloured=coloured(put_out))  # as the CLI tells it at the end
    screen.take(ToolEnded("call", "completed", (whole,), exit_code=0))
    assert screen.text == live + (appended or "")


def test_colours_stay_in_a_long_output_too() -> None:
    live = "".join(f"\x1b[3{n % 8}mline {n}\x1b[0m\n" for n in range(2000))
    screen = Screen()
    screen.take(BEGUN)
    screen.take(progressed(live))
    before = screen.text
    screen.take(ended(live + "\x1b[31mthe end\x1b[0m"))
    assert screen.text == before + "\x1b[31mthe end\x1b[0m"


def test_terminal_is_rewritten_where_it_showed_something_else() -> None:
    """Such as a command that writes its errors first, which the CLI tells last."""
    screen = Screen()
    screen.take(BEGUN)
    screen.take(progressed("\x1b[31merror\x1b[0m\nout\n"))
    screen.take(ended("out\n\x1b[31merror\x1b[0m"))
    assert screen.text == "out\n\x1b[31merror\x1b[0m"


@pytest.mark.parametrize("out", ["one\ntwo", "\x1b[1;31mone\x1b[0m\n\x1b[38;5;9mtwo\x1b[0m"])
def test_a_replay_shows_all_of_it_once(out: str) -> None:
    screen = Screen()
    screen.take(BEGUN)
    end = screen.take(ended(out))
    assert end["_meta"]["terminal_output"]["data"] == screen.text == out
    assert end["rawOutput"]["output"] == "one\ntwo"


def test_events_for_programs_have_no_sequences() -> None:
    told = command_client.without_bulk(ended("\x1b[31mred\x1b[0m"))
    assert told is not None
    assert [*told["content"]] == [{"type": "text", "text": "```\nred\n```"}]


def test_long_output_is_cut_without_unfinished_sequence() -> None:
    out = "".join(f"\x1b[3{n % 8}m{n}\x1b[0m\n" for n in range(8000))
    whole = ended(out)
    logged = cut("s", Logged(1, None, whole, len(encode(whole))))
    screen = Screen()
    screen.take(BEGUN)
    assert isinstance(logged.event, ToolEnded)
    screen.take(logged.event)
    assert screen.text == plain(out).rstrip()


def test_replayed_long_output_is_in_terminal_too() -> None:
    out = "".join(f"line {n}\n" for n in range(8000))
    whole = ended(out)
    live, replayed = Screen(), Screen()
    for screen, event in (
        (live, whole),
        (replayed, cut("s", Logged(1, None, whole, len(encode(whole)))).event),
    ):
        screen.take(BEGUN)
        assert event is not None
        screen.take(event)
        assert screen.update["content"][0]["type"] == "terminal"
        assert screen.update["_meta"]["terminal_exit"]["exit_code"] == 0
    assert live.text == out.rstrip()
    assert replayed.text == out[:MOST]
    (_, mark) = replayed.update["content"]
    assert mark["content"]["text"].startswith("… [cut: ")
    assert replayed.update["rawOutput"]["output"].startswith("line 0\nline 1\n")


@pytest.mark.parametrize("count", [150, 250, 100_000])
def test_output_of_many_backticks_is_in_terminal(count: int) -> None:
    out = "`" * count + "\nhello"
    screen = Screen()
    screen.take(BEGUN)
    screen.take(ended(out))
    assert screen.text == out
    assert len(screen.update["content"]) == 1


@given(st.text(alphabet=st.sampled_from("ab \n\r\t\x1b[0;1m]2J\x07\x9b"), max_size=40))
def test_coloured_output_adds_nothing_but_colours(text: str) -> None:
    found = coloured(text)
    assert not found or plain(found) == unfenced(fenced(text))
    assert plain(COLOUR.sub("", found)) == COLOUR.sub("", found)


def test_notes_and_reasons_stand_below_the_terminal() -> None:
    screen = Screen()
    screen.take(BEGUN)
    note = TextPart("It was moved to the background.")
    output = Output("one\n")
    noted = screen.take(ToolProgressed("call", (*shown(output), note), output))
    assert [part["type"] for part in noted["content"]] == ["terminal", "content"]
    end = screen.take(ToolEnded("call", "failed", shown(output), reason="Stopped by the user."))
    assert end["content"][1]["content"]["text"] == "Stopped by the user."
    assert "terminal_output" not in end["_meta"]
    assert end["_meta"]["terminal_exit"]["exit_code"] is None
    assert screen.text == "one\n"


def test_other_tools_are_shown_as_ever() -> None:
    screen = Screen()
    for event in (
        ToolStarted("call", "Read", "Read a", "read"),
        ToolProgressed("call", (TextPart("I look."),)),
        ToolEnded("call", "completed", (TextPart("```\na\n```"),)),
    ):
        plain = msgspec.to_builtins(projection.update(1, event))
        assert screen.take(event) == plain


@pytest.mark.parametrize("deltas", [False, True])
@pytest.mark.parametrize("seed", range(40))
def test_outputs_end_is_in_terminal_whatever_was_missed(seed: int, deltas: bool) -> None:
    dice = random.Random(seed)
    screen = Screen(deltas=deltas)
    screen.take(BEGUN)
    said = ""
    for step in range(12):
        said += "".join(
            f"{step} {dice.choice('aé✓')} {n}\n" for n in range(dice.choice((0, 1, 5, 900)))
        )
        if dice.random() < 0.2:
            screen.connect_again()
        if said and dice.random() < 0.6:
            screen.take(progressed(said))
            assert screen.text.endswith(said[-100:])
    screen.take(ended(said))
    assert screen.text.rstrip().endswith(said.rstrip()[-100:])
    if "left out" not in screen.text:
        assert screen.text.rstrip() in (said.rstrip(), said.rstrip()[-len(screen.text.rstrip()) :])
