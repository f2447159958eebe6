"""Calls that are announced while Claude writes their input."""

from __future__ import annotations

import json

import pytest

from pykoclaw_acp.model.events import Event, ToolEnded, ToolStarted
from pykoclaw_acp.model.log import Logged
from pykoclaw_acp.protocol.pending_calls import PendingCalls
from pykoclaw_acp.protocol.presentation import Presentation, update
from pykoclaw_acp.protocol.updates import ToolCall, ToolCallUpdate
from pykoclaw_acp.worker.announcing import AFTER, MOST, Announcing

CWD = "/home/me"
PATH = '/home/me/a "b".py'


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


class Stream:
    """A model that writes a call's input, so many characters at a time."""

    def __init__(self, name: str = "Write", plans: str = "") -> None:
        self.clock = Clock()
        self.announcing = Announcing(CWD, plans, self.clock)
        self.announcing.begin(1, {"type": "tool_use", "id": "t1", "name": name})

    def write(self, text: str, pause: float, step: int = 20) -> list[ToolStarted]:
        told: list[ToolStarted] = []
        for at in range(0, len(text), step):
            self.clock.now += pause
            told += self.announcing.more(1, text[at : at + step])
        return told


def arguments(path: str = PATH, content: str = "x" * 3000) -> str:
    return json.dumps({"file_path": path, "content": content})


def test_file_is_named_while_its_content_is_written() -> None:
    (told,) = Stream().write(arguments(), 0.1)
    assert (told.tool_call_id, told.title, told.pending) == ("t1", 'Write a "b".py', True)
    assert [one.path for one in told.locations] == [PATH]


@pytest.mark.parametrize(
    ("stream", "text", "pause"),
    [
        (Stream(), arguments(), AFTER / 1000),
        (Stream("Bash"), arguments(), 0.1),
        (Stream(plans="/plans"), arguments("/plans/one.md"), 0.1),
        (Stream(), '{"content": "' + "x" * 3 * MOST, 0.1),
        (Stream(), '{"file_path": "' + "x" * 3 * MOST, 0.1),
        (Stream(), "[]", AFTER),
    ],
    ids=["soon done", "another tool", "a plan", "not first", "endless", "odd"],
)
def test_nothing_is_announced_that_says_nothing(stream: Stream, text: str, pause: float) -> None:
    assert stream.write(text, pause) == []
    assert stream.announcing.over(lambda _: False, "Over.") == []


def test_announced_call_that_is_never_made_has_failed() -> None:
    stream = Stream()
    stream.write(arguments(), 0.1)
    assert stream.announcing.over(lambda _: False, "Over.") == [
        ToolEnded("t1", "failed", reason="Over.")
    ]
    assert stream.announcing.over(lambda _: False, "Over.") == []


def test_call_that_was_made_has_its_own_end() -> None:
    stream = Stream()
    stream.write(arguments(), 0.1)
    assert stream.announcing.over(lambda call: call == "t1", "Over.") == []


def test_client_that_saw_announcement_gets_the_rest() -> None:
    begun = ToolStarted("t1", "Write", "Write a.py", "edit", pending=True)
    whole = ToolStarted("t1", "Write", "Write a.py", "edit", input={"file_path": "a.py"})

    def shown(client: PendingCalls, event: Event) -> object:
        made = update(1, event, Presentation())
        assert made is not None
        return client.dress("s", Logged(1, None, event), made)

    client, later = PendingCalls(), PendingCalls()
    first, second = shown(client, begun), shown(client, whole)
    assert isinstance(first, ToolCall)
    assert first.status == "pending"
    assert isinstance(second, ToolCallUpdate)
    assert (second.status, second.raw_input) == ("in_progress", {"file_path": "a.py"})
    assert isinstance(shown(later, whole), ToolCall)
