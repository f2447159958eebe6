"""Directives of the script language, each a line that becomes a step.

docs/scripted-model.md explains them; `DIRECTIVES` is the short form shown for an invalid script.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace

from . import limits
from .steps import (
    Cut,
    Hang,
    HttpError,
    ReportStep,
    Step,
    StopStep,
    StreamError,
    TextStep,
    ThinkingStep,
    ToolStep,
)

DIRECTIVES = """\
text TEXT                        one delta; several text lines make one answer of several lines
words 20ms TEXT                  a delta for each word, 20 ms apart
repeat 200x10ms TEXT             200 deltas, 10 ms apart; {n} in TEXT is the number of the delta
thinking TEXT
bash COMMAND
background COMMAND               Bash in the background
read PATH
write PATH <<< CONTENT           \\n in CONTENT is a line break
edit PATH <<< OLD => NEW
tool NAME {"json": "input"}
& bash COMMAND                   a tool call in the same response as the one before
error STATUS [retry-after=SECONDS] [times=N] [MESSAGE]
stream-error TYPE [times=N] [MESSAGE]
cut [times=N]
hang [DURATION] [times=N]
limit STATUS [WINDOW] [resets=SECONDS] [used=PERCENT] [times=N]
stop REASON                      end_turn, max_tokens, refusal, stop_sequence, pause_turn, …
report                           what this request held
# a comment"""

STOP_REASONS = (
    "end_turn",
    "max_tokens",
    "stop_sequence",
    "pause_turn",
    "refusal",
    "model_context_window_exceeded",
)

_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m)")
_UNIT_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0}
_REPEAT = re.compile(r"(\d{1,7})x(\S+)\s(.*)")
_OPTION = re.compile(r"(retry-after|times)=(\d{1,9})(?:\s+|$)")
_ESCAPES = {"\\n": "\n", "\\t": "\t", "\\\\": "\\"}


class ScriptError(Exception):
    """An invalid script; the message has line and reason."""


def parse(directive: str) -> Step:
    """The step of a directive. Raises ScriptError."""
    if directive.startswith("&"):
        step = parse(directive[1:].strip())
        if not isinstance(step, ToolStep):
            raise ScriptError("& stands before a tool call only")
        return replace(step, parallel=True)
    name, _, rest = directive.partition(" ")
    parser = _PARSERS.get(name)
    if parser is None:
        raise ScriptError(f"there is no directive “{name}”")
    return parser(rest.strip())


def _text(rest: str) -> Step:
    return TextStep((rest,))


def _words(rest: str) -> Step:
    pause, _, text = rest.partition(" ")
    words = text.split()
    if not words:
        raise ScriptError("write words 20ms TEXT")
    return TextStep((*(word + " " for word in words[:-1]), words[-1]), _seconds(pause))


def _repeat(rest: str) -> Step:
    match = _REPEAT.fullmatch(rest)
    if match is None or int(match[1]) == 0:
        raise ScriptError("write repeat 200x10ms TEXT")
    count = int(match[1])
    deltas = (
        match[3].replace("{n}", str(n)) + (" " if n < count else "") for n in range(1, count + 1)
    )
    return TextStep(tuple(deltas), _seconds(match[2]))


def _thinking(rest: str) -> Step:
    return ThinkingStep(_required(rest, "thinking TEXT"))


def _bash(rest: str) -> Step:
    return ToolStep(
        "Bash",
        {"command": _required(rest, "bash COMMAND"), "description": "Run a scripted command"},
    )


def _background(rest: str) -> Step:
    command = _required(rest, "background COMMAND")
    return ToolStep(
        "Bash",
        {"command": command, "description": "Run in the background", "run_in_background": True},
    )


def _read(rest: str) -> Step:
    return ToolStep("Read", {"file_path": _required(rest, "read PATH")})


def _write(rest: str) -> Step:
    path, arrow, content = rest.partition("<<<")
    if not arrow or not path.strip():
        raise ScriptError("write it as write PATH <<< CONTENT")
    return ToolStep("Write", {"file_path": path.strip(), "content": _unescape(content.strip())})


def _edit(rest: str) -> Step:
    path, arrow, change = rest.partition("<<<")
    old, double_arrow, new = change.partition("=>")
    if not arrow or not double_arrow or not path.strip() or not old.strip():
        raise ScriptError("write it as edit PATH <<< OLD => NEW")
    strings = {"old_string": _unescape(old.strip()), "new_string": _unescape(new.strip())}
    return ToolStep("Edit", {"file_path": path.strip(), **strings})


def _tool(rest: str) -> Step:
    name, _, text = rest.partition(" ")
    if not name:
        raise ScriptError('write tool NAME {"json": "input"}')
    try:
        value = json.loads(text or "{}")
    except ValueError as error:
        raise ScriptError(f"the input is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise ScriptError("the input has to be a JSON object")
    return ToolStep(name, value)


def _error(rest: str) -> Step:
    status, _, tail = rest.partition(" ")
    if not re.fullmatch(r"[45]\d\d", status):
        raise ScriptError("write error STATUS with a status from 400 to 599")
    options, message = _options(tail)
    return HttpError(int(status), message, options.get("retry-after"), options.get("times"))


def _stream_error(rest: str) -> Step:
    kind, _, tail = rest.partition(" ")
    if not kind.endswith("_error"):
        raise ScriptError("write stream-error TYPE, for instance stream-error overloaded_error")
    options, message = _options(tail, retry_after=False)
    return StreamError(kind, message, options.get("times"))


def _cut(rest: str) -> Step:
    options, tail = _options(rest, retry_after=False)
    if tail:
        raise ScriptError("write cut or cut times=N")
    return Cut(options.get("times"))


def _hang(rest: str) -> Step:
    first, _, tail = rest.partition(" ")
    seconds = None if not first or "=" in first else _seconds(first)
    options, tail = _options(rest if seconds is None else tail, retry_after=False)
    if tail:
        raise ScriptError("write hang, hang 30s or hang 30s times=N")
    return Hang(seconds, options.get("times"))


def _limit(rest: str) -> Step:
    step = limits.parse(rest)
    if step is None:
        raise ScriptError(limits.FORM)
    return step


def _stop(rest: str) -> Step:
    if rest not in STOP_REASONS:
        raise ScriptError(f"the reasons are {', '.join(STOP_REASONS)}")
    return StopStep(rest)


def _report(rest: str) -> Step:
    if rest:
        raise ScriptError("report stands alone")
    return ReportStep()


def _required(rest: str, form: str) -> str:
    if not rest:
        raise ScriptError(f"write {form}")
    return rest


def _seconds(text: str) -> float:
    match = _DURATION.fullmatch(text)
    if match is None:
        raise ScriptError(f"“{text}” is not a duration; write 500ms, 2s or 1m")
    return float(match[1]) * _UNIT_SECONDS[match[2]]


def _options(text: str, *, retry_after: bool = True) -> tuple[dict[str, int], str]:
    """Leading `name=number` options, and the rest."""
    options: dict[str, int] = {}
    text = text.strip()
    while (match := _OPTION.match(text)) is not None:
        if match[1] == "retry-after" and not retry_after:
            raise ScriptError("only error takes retry-after")
        options[match[1]] = int(match[2])
        text = text[match.end() :]
    return options, text


def _unescape(text: str) -> str:
    return re.sub(r"\\[nt\\]", lambda match: _ESCAPES[match[0]], text)


_PARSERS: dict[str, Callable[[str], Step]] = {
    "text": _text,
    "words": _words,
    "repeat": _repeat,
    "thinking": _thinking,
    "bash": _bash,
    "background": _background,
    "read": _read,
    "write": _write,
    "edit": _edit,
    "tool": _tool,
    "error": _error,
    "stream-error": _stream_error,
    "cut": _cut,
    "hang": _hang,
    "limit": _limit,
    "stop": _stop,
    "report": _report,
}
