"""Log lines on stderr: JSON, or for people on a terminal.

The convention: `log.info("The turn was given to its worker", action="turn_dispatched", attempt=1)`.
The event is a short sentence for people, `action` is for programs, and everything else is a
keyword. Session, turn, epoch and worker_pid are bound once, with
`structlog.contextvars.bound_contextvars`. What users wrote goes under `prompt`, `text`, `content`
or `raw`, which only debug lines keep. Logging never raises, and never waits for a full pipe.
"""

from __future__ import annotations

import contextlib
import io
import json
import logging
import math
import os
import select
import stat
import sys
import time
from collections.abc import Mapping
from enum import Enum
from pathlib import PurePath
from typing import Any, Literal, TextIO
from uuid import UUID

import structlog
from structlog.typing import EventDict, Processor, WrappedLogger

from pykoclaw_acp.logging.share import ration
from pykoclaw_acp.neutral import neutral
from pykoclaw_acp.system.secrets import MASK, looks_secret

_PROMPT_KEYS = frozenset({"prompt", "text", "content", "raw"})
_STRUCTLOG_KEYS = frozenset(
    {"exc_info", "stack_info", "positional_args", "_record", "_from_structlog"}
)
_MOST = 10 * 1024 * 1024  # bytes of a log file
LAST_WAIT = 1.0  # s for room for the end of the last line
_LOOK = 256 * 1024  # characters between two checks of the file's size
_DEEPEST = 6  # levels of nesting in a line

# What the ACP client Mitto, in exactly this spelling on an agent's stderr, takes for the agent's
# death.
_ALARMS = {
    "broken pipe": "Broken pipe",
    "connection reset by peer": "Connection reset by peer",
    "stream ended unexpectedly": "Stream ended unexpectedly",
    "EOF received from CLI stdout": "End of file from CLI stdout",
    "background reader: stream ended": "background reader: Stream ended",
    "received message with neither id nor method": "Received message with neither id nor method",
    "failed to queue notification; closing connection": "Failed to queue notification; closing connection",
}


def trim(path: str, descriptor: int = 2) -> bool:
    """Truncate the log file if it is above 10 MiB and `descriptor` (stderr) is that file."""
    with contextlib.suppress(OSError):
        found = os.fstat(descriptor)
        if found.st_size > _MOST and os.path.samestat(found, os.stat(path)):
            os.ftruncate(descriptor, 0)
            return True
    return False


def keep_small(path: str) -> None:
    """Call `trim` for this file whenever a lot was written to `configure`'s stream; None stops
    that.
    """
    for handler in logging.getLogger().handlers:
        if isinstance(handler, _Handler):
            handler.path = path


def configure(
    level: Literal["debug", "info", "warning", "error"],
    format: Literal["auto", "json", "console"],  # noqa: A002  the setting's name
    stream: TextIO | None = None,
) -> None:
    """Write all log lines, those of libraries and Python's warnings included, to `stream` (default:
    stderr).

    `auto` is `console` on a terminal and `json` elsewhere. A later call replaces an earlier one.
    """
    # stderr is None when it was closed at start; keep its number from being reused by another file.
    stream = stream or sys.stderr or open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115  open for life
    terminal = stream.isatty()
    if format == "console" or (format == "auto" and terminal):
        # The default formatter of tracebacks shows local variables, and so prompts and credentials.
        renderer: list[Processor] = [
            _harmless,
            structlog.dev.ConsoleRenderer(colors=terminal, exception_formatter=_traceback),
        ]
    else:
        renderer = [
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(serializer=_json),
        ]
    handler = _Handler(stream)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=_COMMON,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *renderer],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [other for other in root.handlers if not isinstance(other, _Handler)] + [
        handler
    ]
    root.setLevel(level.upper())
    for name in ("uvicorn", "uvicorn.error", "uvicorn.access", "claude_agent_sdk", "asyncio"):
        library = logging.getLogger(name)
        library.handlers.clear()
        library.propagate = True
    logging.captureWarnings(capture=True)


def get_logger(name: str) -> structlog.stdlib.BoundLogger:
    """Logger of a module, by its `__name__`; lines below `configure`'s level are dropped."""
    return structlog.stdlib.get_logger(name)


def redact(_logger: WrappedLogger, method: str, event: EventDict) -> EventDict:
    """Drop what users wrote, except from debug lines; mask what looks like a secret; keep only
    plain values.
    """
    keep_prompts = method == "debug"
    return {
        key: value if key in _STRUCTLOG_KEYS else _clean(key, value, keep_prompts, _DEEPEST)
        for key, value in event.items()
        if keep_prompts or key.lower() not in _PROMPT_KEYS
    }


def _clean(key: str, value: Any, keep_prompts: bool, depth: int) -> Any:
    if looks_secret(key):
        return MASK
    match value:
        case Enum():
            return value.value if isinstance(value, str) else value.name
        case float() if not math.isfinite(value):
            return str(value)
        case None | bool() | int() | float() | str():
            return value
        case PurePath() | UUID() | BaseException():
            return str(value)
        case Mapping() if depth:
            return {
                str(name): _clean(str(name), item, keep_prompts, depth - 1)
                for name, item in value.items()
                if keep_prompts or str(name).lower() not in _PROMPT_KEYS
            }
        case list() | tuple() | set() | frozenset() if depth:
            return [_clean("", item, keep_prompts, depth - 1) for item in value]
        case _:
            # Not its repr: that of a message holds the prompt.
            return f"<{type(value).__name__}>"


def _harmless(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Escape control characters, so that a value cannot forge a line or control the terminal."""
    return {
        key: neutral(value) if isinstance(value, str) else value for key, value in event.items()
    }


def _traceback(stream: TextIO, exc_info: Any) -> None:
    plain = io.StringIO()
    structlog.dev.plain_traceback(plain, exc_info)
    stream.write(
        "\n".join(f"    {neutral(line)}" for line in plain.getvalue().rstrip("\n").split("\n"))
    )


def _json(value: Any, **options: Any) -> str:
    return neutral(json.dumps(value, **options), "json")


def _with_action(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    event.setdefault("action", "log")
    return event


class _Logger(structlog.stdlib.BoundLogger):
    def _proxy_to_logger(
        self, method_name: str, event: str | None = None, *event_args: str, **event_kw: Any
    ) -> Any:
        try:
            return super()._proxy_to_logger(method_name, event, *event_args, **event_kw)
        except Exception:  # noqa: BLE001  whoever logs has better things to do than to handle this
            logging.getLogger(__name__).warning(
                "A log line could not be made (action=%s)", event_kw.get("action")
            )


class _Handler(logging.StreamHandler[TextIO]):
    """Writes escaped lines; drops lines while a pipe is full."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__(stream)
        self._dropped = 0
        self.path: str | None = None  # of the log file to trim
        self._written = 0
        self._rest = memoryview(b"")  # of what there was no room for
        self._poll: select.poll | None = None  # of what may be full
        try:
            descriptor = stream.fileno()
            if stat.S_ISREG(os.fstat(descriptor).st_mode):
                return
        except (OSError, ValueError):
            return
        self._poll = select.poll()
        self._poll.register(descriptor, select.POLLOUT)

    def emit(self, record: logging.LogRecord) -> None:
        self._send()
        if self._rest or not (self._poll is None or self._poll.poll(0)):
            self._dropped += 1
            return
        if self._dropped:
            lost, self._dropped = self._dropped, 0
            get_logger(__name__).warning(
                "Log lines were lost, nobody read them", action="log_lines_lost", lines=lost
            )
        if self._poll is None:
            super().emit(record)
        else:
            with contextlib.suppress(Exception):  # as the other does
                line = f"{self.format(record)}{self.terminator}".encode(errors="backslashreplace")
                self._rest = memoryview(bytes(self._rest) + line)
                self._send()
        if self.path is not None and self._written > _LOOK:
            self._written = 0
            if trim(self.path, self.stream.fileno()):
                get_logger(__name__).warning(
                    "The log was begun anew: it was too long", action="log_begun_anew"
                )

    def close(self) -> None:
        """Write what is left of the last line, if there is room soon."""
        until = time.monotonic() + LAST_WAIT
        while self._rest and self._poll is not None and (left := until - time.monotonic()) > 0:
            self._poll.poll(left * 1000)
            self._send()
        super().close()

    def _send(self) -> None:
        """Write as far as there is room: each time no more than a pipe that is not full certainly
        takes, as its writer would wait.
        """
        try:
            while self._rest and self._poll is not None and self._poll.poll(0):
                sent = os.write(self.stream.fileno(), self._rest[: select.PIPE_BUF])
                self._rest = self._rest[sent:]
        except BlockingIOError:
            return
        except (OSError, ValueError):  # stderr is gone
            self._rest = memoryview(b"")

    def format(self, record: logging.LogRecord) -> str:
        try:
            line = super().format(record)
        except Exception:  # noqa: BLE001  a line that says less is better than none
            line = json.dumps(
                {
                    "event": "A log line could not be written",
                    "level": record.levelname.lower(),
                    "logger": record.name,
                    "action": "log_failed",
                }
            )
        for alarm, harmless in _ALARMS.items():
            line = line.replace(alarm, harmless)
        self._written += len(line)
        return line

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802  logging's name
        """Ignore errors: stderr is gone."""


_COMMON: list[Processor] = [
    structlog.contextvars.merge_contextvars,
    structlog.stdlib.add_log_level,
    structlog.stdlib.add_logger_name,
    structlog.processors.TimeStamper(fmt="iso", utc=True),
    _with_action,
]

# Done at import, because structlog would write to stdout, which belongs to ACP, if anything logged
# before configure().
structlog.configure(
    processors=[
        structlog.stdlib.filter_by_level,
        ration,
        *_COMMON,
        structlog.stdlib.PositionalArgumentsFormatter(),
        redact,
        structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
    ],
    logger_factory=structlog.stdlib.LoggerFactory(),
    wrapper_class=_Logger,
    cache_logger_on_first_use=True,
)
