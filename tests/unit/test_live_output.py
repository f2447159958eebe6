"""Output of commands as they run, from files as the CLI writes them; real files, no CLI."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from pykoclaw_acp.model.events import Event, Output, TextPart, ToolEnded, ToolProgressed
from pykoclaw_acp.translation.tasks import TaskEnd, shown
from pykoclaw_acp.translation.texts import settled
from pykoclaw_acp.translation.translator import ToolResult, Translation
from pykoclaw_acp.worker import live_output, output_files
from pykoclaw_acp.worker.live_output import LiveOutput
from pykoclaw_acp.worker.output_files import OutputFile, OutputSnapshot
from tests.waiting import eventually, running


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where the CLI keeps the files of a session."""
    made = tmp_path / f"claude-{os.getuid()}" / "-work" / "session" / "tasks"
    made.mkdir(parents=True)
    return made


class Watching:
    """A worker's calls, and what it shows of them."""

    def __init__(self, temporary: Path) -> None:
        self.shown: list[Event] = []
        self.calls = Translation("/work")
        self.live = LiveOutput(str(temporary), self.calls, self.shown.append)

    def bash(self, *calls: str) -> None:
        for call in calls:
            self.calls.start_tool(call, "Bash", {"command": HANG})
        self.live.refresh()

    def background(self, call: str, task: str) -> None:
        self.bash(call)
        self.calls.long.known.named(call, task, background=True)
        self.calls.end_tools([ToolResult(call, "")], {"backgroundTaskId": task})

    def end(self, call: str) -> None:
        self.calls.end_tools([ToolResult(call, "out")], None)
        self.live.refresh()

    def texts(self, call: str) -> list[str]:
        return [
            one.output.text
            for one in self.shown
            if isinstance(one, ToolProgressed) and one.tool_call_id == call and one.output
        ]


@pytest.fixture
def w(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Watching]:
    for name in ("INTERVAL", "QUIET"):
        monkeypatch.setattr(live_output, name, 0.01)
    watching = Watching(tmp_path)
    yield watching
    watching.live.close()


HANG = "sleep 60"
SHELL = (
    "source /nowhere/snapshot.sh 2>/dev/null || true && shopt -u extglob 2>/dev/null || true"
    " && eval {} < /dev/null && pwd -P >| /dev/null"
)


def quoted(command: str) -> str:
    return "'" + command.replace("'", "'\"'\"'") + "'"


@pytest.fixture
def looked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Each time that it was looked for the files of calls."""
    looks: list[str] = []
    find = output_files.find

    def counting(temporary: str) -> list[OutputFile]:
        looks.append(temporary)
        return find(temporary)

    monkeypatch.setattr(output_files, "find", counting)
    return looks


@contextmanager
def shell(folder: Path, name: str, command: str) -> Iterator[None]:
    """A command as the CLI runs it in the foreground."""
    with (folder / f"{name}.output").open("wb") as out:
        line = ["/bin/bash", "-c", SHELL.format(quoted(command))]
        process = subprocess.Popen(line, stdout=out, start_new_session=True)
    try:
        yield
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


async def test_output_grows_with_file_and_stops_with_call(w: Watching, folder: Path) -> None:
    w.bash("call")
    file = folder / "b1.output"
    with shell(folder, "b1", HANG):
        file.write_text("one\n")
        await eventually(lambda: w.texts("call") == ["one\n"])
        with file.open("a") as more:
            more.write("two\n")
        await eventually(lambda: w.texts("call")[-1:] == ["one\ntwo\n"])
    assert w.shown[-1] == ToolProgressed(
        "call", (TextPart("```\none\ntwo\n```"),), Output("one\ntwo\n")
    )
    w.end("call")
    file.write_text("three\n")
    await eventually(lambda: not running("watch-output"))
    assert w.texts("call")[-1] == "one\ntwo\n"


async def test_call_ending_during_read_shows_nothing_after_end(
    w: Watching, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, go_on = threading.Event(), threading.Event()
    look = output_files.look

    def slow(path: str, most: int, known: tuple[int, int] | None = None) -> OutputSnapshot | None:
        found = look(path, most, known)
        begun.set()
        go_on.wait(60)
        return found

    monkeypatch.setattr(output_files, "look", slow)
    (folder / "b1.output").write_text("late\n")
    w.bash("call")
    w.calls.long.known.named("call", "b1", background=False)
    await eventually(begun.is_set)
    w.end("call")
    go_on.set()
    await eventually(lambda: not running("watch-output"))
    assert w.shown == []


async def test_two_commands_at_once_show_their_own_output(w: Watching, folder: Path) -> None:
    (folder / "b1.output").write_text("first\n")
    (folder / "b2.output").write_text("second\n")
    w.background("one", "b1")
    w.background("two", "b2")
    await eventually(lambda: w.texts("one") and w.texts("two"))
    assert (set(w.texts("one")), set(w.texts("two"))) == ({"first\n"}, {"second\n"})


async def test_two_unnamed_foreground_commands_show_own_output(w: Watching, folder: Path) -> None:
    """Of two calls in one answer, the CLI may run one after the other."""
    commands = {"one": 'echo "it\'s $((1 + 1))"; sleep 60', "two": "echo 'x  y' | cat; sleep 60"}
    for call, command in commands.items():
        w.calls.start_tool(call, "Bash", {"command": command})
    w.live.refresh()
    with shell(folder, "b1", commands["one"]):
        await eventually(lambda: w.texts("one") == ["it's 2\n"])
        assert w.texts("two") == []
        with shell(folder, "b2", commands["two"]):
            await eventually(lambda: w.texts("two") == ["x  y\n"])
    assert w.texts("one") == ["it's 2\n"]


async def test_same_command_twice_differs_once_cli_names_one(
    w: Watching, folder: Path, looked: list[str]
) -> None:
    w.bash("one", "two")
    w.calls.start_tool("three", "Bash", {"command": "echo three; sleep 60"})
    w.live.refresh()
    with shell(folder, "b1", HANG), shell(folder, "b3", "echo three; sleep 60"):
        (folder / "b1.output").write_text("the first\n")
        await eventually(lambda: w.texts("three") == ["three\n"])
        assert w.texts("one") + w.texts("two") == []
        with shell(folder, "b2", HANG):
            (folder / "b2.output").write_text("the second\n")
            looked.clear()
            await eventually(lambda: len(looked) > 2)
            assert w.texts("one") + w.texts("two") == []
            w.calls.long.known.named("one", "b1", background=False)
            await eventually(lambda: w.texts("one") and w.texts("two"))
    assert (w.texts("one"), w.texts("two")) == (["the first\n"], ["the second\n"])


async def test_waiting_command_does_not_show_anothers_output(
    w: Watching, folder: Path, looked: list[str]
) -> None:
    """As one that waits for its permission, while the CLI runs something of its own."""
    w.bash("call")
    with shell(folder, "b1", "echo hook; sleep 60"):
        looked.clear()
        await eventually(lambda: len(looked) > 1 and (folder / "b1.output").stat().st_size)
        assert w.texts("call") == []
        with shell(folder, "b2", HANG):
            (folder / "b2.output").write_text("its own\n")
            await eventually(lambda: w.texts("call") == ["its own\n"])


async def test_neither_of_two_alike_shells_is_taken(
    w: Watching, folder: Path, looked: list[str]
) -> None:
    """As while the other call is yet to be told."""
    with shell(folder, "b1", HANG), shell(folder, "b2", HANG):
        for name in ("b1", "b2"):
            (folder / f"{name}.output").write_text(f"{name}\n")
        w.bash("one")
        looked.clear()
        await eventually(lambda: len(looked) > 2)
        assert w.shown == []


async def test_command_restarted_during_search_shows_own_output(
    w: Watching, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The shell that was found is that of the call before."""
    found, go_on = threading.Event(), threading.Event()
    shells = output_files.shells

    def slow(places: list[OutputFile]) -> dict[str, str]:
        commands = shells(places)
        if commands and not found.is_set():
            found.set()
            go_on.wait(60)
        return commands

    monkeypatch.setattr(output_files, "shells", slow)
    w.bash("one")
    with shell(folder, "b1", HANG):
        (folder / "b1.output").write_text("first\n")
        await eventually(found.is_set)
    w.end("one")
    w.bash("two")
    go_on.set()
    with shell(folder, "b2", HANG):
        (folder / "b2.output").write_text("second\n")
        await eventually(lambda: w.texts("two") == ["second\n"])
    assert w.texts("one") == []


@pytest.mark.parametrize(
    "command",
    ["ls", "echo \"it's\" 'a b' \\ \\n", " sleep 1 # é\n", "a && pwd -P", "a < /dev/null"],
)
def test_shells_command_is_known_to_the_character(command: str) -> None:
    assert output_files.command(SHELL.format(quoted(command))) == command


async def test_nothing_is_guessed_while_file_may_be_anothers(w: Watching, folder: Path) -> None:
    w.bash("one", "two")
    (folder / "b1.output").write_text("whose?\n")
    w.bash("third")
    w.calls.long.known.named("third", "b2", background=True)
    (folder / "b2.output").write_text("third\n")
    await eventually(lambda: w.texts("third"))
    assert (w.texts("one"), w.texts("two")) == ([], [])
    w.calls.long.known.named("two", "b1", background=False)
    await eventually(lambda: w.texts("two"))
    assert (w.texts("one"), w.texts("two")) == ([], ["whose?\n"])


async def test_wrong_guess_ends_when_cli_names_owner(w: Watching, folder: Path) -> None:
    w.bash("call")
    with shell(folder, "b1", HANG):
        (folder / "b1.output").write_text("anothers\n")
        await eventually(lambda: w.texts("call"))
    w.calls.long.known.named("call", "b2", background=False)
    (folder / "b2.output").write_text("its own\n")
    await eventually(lambda: w.texts("call")[-1] == "its own\n")


async def test_end_has_output_without_clis_mark(w: Watching, folder: Path) -> None:
    w.background("call", "b1")
    (folder / "b1.output").write_text("\x1b[1mall\x1b[0m\n\n[exited with code 3]\n")
    await w.live.finish("b1")
    part = TextPart("```\nall\n```", coloured="\x1b[1mall\x1b[0m")
    assert w.calls.end_task("call", TaskEnd("failed", "failed with exit code 3")) == [
        ToolEnded("call", "failed", (part,), exit_code=3, background=True)
    ]


@pytest.mark.parametrize("mark", ["killed", "exited with code unknown"])
async def test_output_of_stopped_command_has_no_mark(w: Watching, folder: Path, mark: str) -> None:
    w.background("call", "b1")
    (folder / "b1.output").write_text(f"all\n\n[{mark}]\n")
    await w.live.finish("b1")
    (ended,) = w.calls.end_task("call", TaskEnd("killed", "stopped"))
    assert isinstance(ended, ToolEnded)
    assert ended.content == (
        TextPart(
            "```\nall\n```",
        ),
    )


async def test_subagents_words_are_shown_as_they_come(w: Watching) -> None:
    w.calls.start_tool("agent", "Agent", {"description": "Look", "subagent_type": "Explore"})
    w.calls.long.say("agent", "text", "I look.")
    w.live.refresh()
    await eventually(lambda: w.shown)
    w.calls.long.say("agent", "text", "There.")
    await eventually(lambda: len(w.shown) == 2)
    assert w.shown[-1] == ToolProgressed("agent", (TextPart("I look.\n\nThere."),))


async def test_output_that_cannot_be_found_is_not_shown(w: Watching, tmp_path: Path) -> None:
    w.background("call", "b1")
    await w.live.finish("b1")
    assert w.calls.end_task("call", TaskEnd("completed")) == [
        ToolEnded("call", "completed", background=True)
    ]
    assert output_files.find(str(tmp_path / "none")) == []
    assert w.shown == []


def test_links_and_non_files_are_not_read(folder: Path, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("secret")
    (folder / "link.output").symlink_to(secret)
    os.mkfifo(folder / "pipe.output")
    (folder / "folder.output").mkdir()
    (folder / "b1.output").write_text("mine")
    (folder / "b2.txt").write_text("no output")
    assert [one.name for one in output_files.find(str(tmp_path))] == ["b1"]
    for name in ("link", "pipe", "folder", "none"):
        assert output_files.look(str(folder / f"{name}.output"), 100) is None
    elsewhere = tmp_path / f"claude-{os.getuid()}" / "linked"
    elsewhere.symlink_to(folder.parent.parent)
    assert len(output_files.find(str(tmp_path))) == 1


def test_only_large_files_newest_whole_lines_are_read(folder: Path) -> None:
    file = folder / "b1.output"
    file.write_text("".join(f"line {n}\n" for n in range(10_000)))
    found = output_files.look(str(file), 100)
    assert found is not None
    assert found.output.text.startswith("line 999")
    assert found.output.start + len(found.output.text) == file.stat().st_size
    assert output_files.look(str(file), 100, found.mark) is None, "nothing new"
    file.write_text("é" * 100)
    cut = output_files.look(str(file), 101)
    assert cut is not None
    assert (cut.output.text, cut.output.start) == ("é" * 50, 100)


def test_output_is_shown_as_a_terminal_shows_it() -> None:
    assert settled("a\r\n10%\r20%\r30%\nb") == "a\n30%\nb"
    assert settled("10%\r20%\r") == "20%"
    [part] = shown(Output("\x1b[31mred\x1b[0m", 12))
    assert part == TextPart("```\n… 12 bytes before this\nred\n```")
