from __future__ import annotations

import fcntl
import io
import json
import logging
import os
import select
import threading
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TextIO

import pytest
import structlog

from pykoclaw_acp.logging import setup
from pykoclaw_acp.model.turns import TurnState
from pykoclaw_acp.system.secrets import looks_secret

logger = setup.get_logger("tests.log")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def stream() -> Iterator[io.StringIO]:
    yield from configured("info", io.StringIO())


@pytest.fixture
def debug_stream() -> Iterator[io.StringIO]:
    yield from configured("debug", io.StringIO())


def configured(level: Any, stream: io.StringIO) -> Iterator[io.StringIO]:
    root = logging.getLogger()
    handlers, old_level = root.handlers[:], root.level
    logging.captureWarnings(capture=False)  # else one that another test has begun stays
    setup.configure(level, "auto", stream)
    yield stream
    root.handlers[:] = handlers
    root.setLevel(old_level)
    logging.captureWarnings(capture=False)


def lines(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_line_is_json_with_action_and_bound_values(stream: io.StringIO) -> None:
    with structlog.contextvars.bound_contextvars(session="s1", turn="t1", epoch=3, worker_pid=99):
        logger.info(
            "The turn was dispatched", action="turn_dispatched", path=Path("/a"), input_tokens=5
        )
    (line,) = lines(stream)
    assert line.pop("timestamp").endswith("Z")
    assert line == {
        "event": "The turn was dispatched",
        "action": "turn_dispatched",
        "level": "info",
        "logger": "tests.log",
        "session": "s1",
        "turn": "t1",
        "epoch": 3,
        "worker_pid": 99,
        "path": "/a",
        "input_tokens": 5,
    }


def test_a_line_without_an_action_gets_one(stream: io.StringIO) -> None:
    logger.warning("Something")
    logging.getLogger("uvicorn.error").warning("Something of %s", "uvicorn")
    assert [line["action"] for line in lines(stream)] == ["log", "log"]


def test_a_state_is_written_as_its_value(stream: io.StringIO) -> None:
    logger.info("Turn ended", state=TurnState.CANCELLED)
    assert lines(stream)[0]["state"] == "cancelled"


@pytest.mark.parametrize("name", ["uvicorn", "uvicorn.error", "claude_agent_sdk.client", "asyncio"])
def test_libraries_write_into_the_same_stream(name: str, stream: io.StringIO) -> None:
    with structlog.contextvars.bound_contextvars(session="s1"):
        logging.getLogger(name).error("It went %s", "wrong")
    (line,) = lines(stream)
    assert (line["event"], line["logger"], line["session"]) == ("It went wrong", name, "s1")


def test_pythons_warnings_are_lines_too(stream: io.StringIO) -> None:
    warnings.simplefilter("default")
    warnings.warn("mind the gap", stacklevel=1)
    assert "mind the gap" in lines(stream)[0]["event"]


def test_lines_below_the_level_are_dropped(stream: io.StringIO) -> None:
    logger.debug("no")
    logging.getLogger("asyncio").debug("no")
    assert stream.getvalue() == ""


def test_terminal_gets_console_form_and_json_is_forcible() -> None:
    for _ in configured("info", Terminal()):
        terminal = Terminal()
        setup.configure("info", "auto", terminal)
        logger.info("For people", action="shown")
        assert "For people" in terminal.getvalue()
        assert not terminal.getvalue().startswith("{")
        forced = Terminal()
        setup.configure("info", "json", forced)
        logger.info("For programs")
        assert lines(forced)[0]["event"] == "For programs"
        assert "For programs" not in terminal.getvalue()


@pytest.mark.parametrize("form", ["json", "console"])
def test_a_value_from_outside_forges_no_line(form: Any, stream: io.StringIO) -> None:
    output = io.StringIO()
    setup.configure("info", form, output)
    name = "Zed\n2026-01-01 [error] Forged\x1b[2J\u202e\x9b\x7f"
    logger.info("A client came", client=name, deep=[name])
    logging.getLogger("asyncio").error("Task of %s", name)
    try:
        raise ValueError(name)
    except ValueError:
        logger.exception("It failed", action="failed")
    written = output.getvalue()
    assert not set(written) & set("\x1b\x9b\u202e\x7f")
    begun = [line for line in written.splitlines() if not line.startswith("    ")]
    assert [("Forged" in line[:40], line[:1] in "2{") for line in begun] == [(False, True)] * 3


@pytest.mark.parametrize("form", ["json", "console"])
def test_a_traceback_shows_no_local_variables(form: Any, stream: io.StringIO) -> None:
    output = io.StringIO()
    setup.configure("info", form, output)
    hidden = "hunter" + "2"
    try:
        raise ValueError(len(hidden))
    except ValueError:
        logger.exception("It failed", action="failed")
    assert "Traceback" in output.getvalue()
    assert "hunter2" not in output.getvalue()


def test_prompt_text_is_written_by_debug_lines_alone(debug_stream: io.StringIO) -> None:
    words = {
        "prompt": "p-words",
        "text": "t-words",
        "frame": {"content": ["c-words"], "Raw": "r-words", "n": 1},
    }
    logger.info("One", **words)
    assert "words" not in debug_stream.getvalue()
    assert lines(debug_stream)[0]["frame"] == {"n": 1}
    logger.debug("Two", **words)
    assert lines(debug_stream)[1].items() >= words.items()


def test_unknown_object_does_not_reveal_its_content(stream: io.StringIO) -> None:
    class Prompt:
        def __repr__(self) -> str:
            return "Prompt('words')"

    logger.info("One", message=Prompt(), messages=[Prompt()])
    assert lines(stream)[0]["messages"] == ["<Prompt>"]
    assert "words" not in stream.getvalue()


@pytest.mark.parametrize(
    "name",
    [
        "key",
        "api_key",
        "apiKey",
        "APIKEY",
        "ANTHROPIC_AUTH_TOKEN",
        "Authorization",
        "password",
        "secret",
        "headers",
        "env",
    ],
)
def test_secrets_are_masked_at_every_level_and_depth(name: str, debug_stream: io.StringIO) -> None:
    logger.debug("One", **{name: "hunter2"}, options=[{"deep": {name: {"x": "hunter2"}}}])
    (line,) = lines(debug_stream)
    assert line[name] == "***"
    assert "hunter2" not in debug_stream.getvalue()


@pytest.mark.parametrize(
    "name", ["tokens", "input_tokens", "session", "environment_count", "keyboard"]
)
def test_ordinary_names_are_no_secrets(name: str) -> None:
    assert not looks_secret(name)


@pytest.mark.parametrize(
    "alarm", ["broken pipe", "connection reset by peer", "EOF received from CLI stdout"]
)
def test_no_line_holds_words_mitto_takes_for_death(alarm: str, stream: io.StringIO) -> None:
    logger.warning(f"write |1: {alarm}", error=OSError(alarm))
    logging.getLogger("uvicorn").error(alarm)
    try:
        raise OSError(alarm)
    except OSError:
        logger.exception("It failed")
    assert len(lines(stream)) == 3
    assert alarm not in stream.getvalue()
    assert alarm[4:] in stream.getvalue() or "End of file from CLI stdout" in stream.getvalue()


def test_every_mitto_alarm_word_is_replaced_despite_overlap(stream: io.StringIO) -> None:
    alarms = [
        "broken pipe",
        "connection reset by peer",
        "stream ended unexpectedly",
        "EOF received from CLI stdout",
        "background reader: stream ended",
        "received message with neither id nor method",
        "failed to queue notification; closing connection",
    ]
    logger.error(" ".join(alarms) + " background reader: stream ended unexpectedly")
    assert [alarm for alarm in alarms if alarm in stream.getvalue()] == []


def test_logging_never_raises(stream: io.StringIO, monkeypatch: pytest.MonkeyPatch) -> None:
    root = logging.getLogger()
    ours = [handler for handler in root.handlers if type(handler).__module__ == setup.__name__]
    monkeypatch.setattr(root, "handlers", ours)  # pytest's own handlers raise

    class Hostile:
        def __str__(self) -> str:
            raise RuntimeError("no")

        __repr__ = __str__

    endless: dict[str, Any] = {}
    endless["self"] = endless
    logger.info(
        "Values",
        hostile=Hostile(),
        endless=endless,
        error=Hostile(),
        nan=float("nan"),
        odd={(1, 2): b"x"},
    )
    logger.info("Too few %s %s", "arguments", action="odd")
    logger.info(
        "A broken exception", error=type("Broken", (Exception,), {"__str__": Hostile.__str__})()
    )
    logging.getLogger("uvicorn").error("Not a number: %d", "x")
    logger.info("A lone surrogate \ud800")
    assert [line["action"] for line in lines(stream)] == ["log", "log", "log", "log_failed", "log"]


def test_a_closed_stream_is_nobodys_problem(
    stream: io.StringIO, capfd: pytest.CaptureFixture[str]
) -> None:
    stream.close()
    logger.error("Nobody reads this")
    assert capfd.readouterr().err == ""


def test_full_pipe_never_blocks_and_loss_is_reported(stream: io.StringIO) -> None:
    reader, writer = os.pipe()
    fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, 8192)
    os.set_blocking(writer, False)  # a failure must not hang the test
    with (
        open(reader, encoding="utf-8") as read,
        open(writer, "w", encoding="utf-8", buffering=1) as written,
    ):
        setup.configure("info", "json", written)
        for number in range(100):
            logger.info("A line that nobody reads", number=number)
        first = drained(read)
        assert 0 < len(first) < 100
        logger.info("The reader is back")
        lost, back = drained(read)
    assert (lost["action"], lost["lines"]) == ("log_lines_lost", 100 - len(first))
    assert back["event"] == "The reader is back"


def test_line_longer_than_pipe_never_blocks(stream: io.StringIO) -> None:
    long = "x" * 2 * select.PIPE_BUF
    reader, writer = os.pipe()
    fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, 4 * select.PIPE_BUF)
    with open(writer, "w", encoding="utf-8") as written, open(reader, encoding="utf-8") as read:
        setup.configure("info", "json", written)

        def write() -> None:
            for _ in range(9):
                logger.info("A long line that nobody reads", reason=long)

        writing = threading.Thread(target=write, daemon=True)
        writing.start()
        writing.join(30)
        assert not writing.is_alive()
        begun = os.read(read.fileno(), 1 << 20)
        logger.info("The reader is back")
        rest = os.read(read.fileno(), 1 << 20)
    *whole, lost, back = [json.loads(line) for line in (begun + rest).splitlines()]
    assert 0 < len(whole) < 9
    assert {line["reason"] for line in whole} == {long}
    assert (lost["action"], lost["lines"]) == ("log_lines_lost", 9 - len(whole))
    assert back["event"] == "The reader is back"


def test_last_line_is_whole_for_late_reader(stream: io.StringIO) -> None:
    long = "x" * 2 * select.PIPE_BUF
    reader, writer = os.pipe()
    fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, select.PIPE_BUF)
    with open(writer, "w", encoding="utf-8") as written, open(reader, "rb") as read:
        setup.configure("info", "json", written)
        logger.info("The last line", reason=long)
        reading = threading.Timer(0.1, lambda: got.append(read.readline()))
        got: list[bytes] = []
        reading.start()
        for handler in logging.getLogger().handlers:
            handler.close()
        reading.join(30)
    assert json.loads(got[0])["reason"] == long


def drained(read: TextIO) -> list[dict[str, Any]]:
    os.set_blocking(read.fileno(), False)
    return [json.loads(line) for line in os.read(read.fileno(), 1 << 20).decode().splitlines()]


def test_only_large_log_file_itself_is_rotated(tmp_path: Path) -> None:
    path, other = tmp_path / "daemon.log", tmp_path / "other.log"
    for one in (path, other):
        one.touch()
        os.truncate(one, 11 * 1024 * 1024)
    with path.open("ab") as file:
        setup.trim(str(other), file.fileno())
        assert path.stat().st_size == 11 * 1024 * 1024
        setup.trim(str(path), file.fileno())
        assert path.stat().st_size == 0
