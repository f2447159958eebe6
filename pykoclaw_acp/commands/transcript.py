"""Text of a session's history, for a terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

from pykoclaw_acp.commands import tool_output
from pykoclaw_acp.commands.apart import Apart
from pykoclaw_acp.commands.document import (
    EDIT,
    OURS,
    RESULTS,
    SPEAKERS,
    SPLIT,
    TASKS,
    ShownCall,
    between,
    fields,
    objects,
    speaker,
)
from pykoclaw_acp.commands.markdown import SHORT, block_text, short_output
from pykoclaw_acp.commands.permission_request import quoted
from pykoclaw_acp.commands.show import one_line
from pykoclaw_acp.model.questions import ASKS
from pykoclaw_acp.model.trust import TOOL as ASKS_TRUST
from pykoclaw_acp.neutral import neutral
from pykoclaw_acp.terminal import Shown, joined, shown
from pykoclaw_acp.translation.deciding import PLANS

_END: Final = shown("\n", "prose")
_CALL: Final = "•"
WAITS: Final = "Waits"  # begins a line beside a history, on what the session waits for
_MARKS: Final = (_CALL, *RESULTS.values(), "?", WAITS)  # before calls, requests of `attach`, …
_STATES: Final = {"completed": "x", "in_progress": ">"}


class TranscriptPrinter:
    """Prints updates as they arrive; pieces of a message continue on its line.

    `live`: somebody watches, and a task list that has changed is printed before what follows.
    Otherwise a tool call is one line if it ends before anything but calls follows, and a task list
    is printed as it is at the end of a turn. `outputs`: with the output of commands and the diffs of
    edits, also if they are more than a line.
    """

    def __init__(
        self, write: Callable[[Shown], None], *, live: bool = True, outputs: bool = False
    ) -> None:
        self._write = write
        self._outputs = outputs
        self._live = live
        self._message: tuple[str, str, str] | None = None  # kind, id and speaker of the message
        self._heads = {f"{one}:" for one in (*SPEAKERS, TASKS)}
        self._text = Apart(self._heads, _MARKS)
        self._block = ""  # the text before in the message
        self._fresh = True  # the cursor is at the beginning of a line
        self._tools: dict[str, ShownCall] = {}
        self._unsaid: dict[str, ShownCall] = {}  # running, and no line says so yet
        self._plan: list[str] = []
        self._printed_plan: list[str] = []

    def show(self, update: dict[str, Any]) -> None:
        """Print an update."""
        kind, call = str(update.get("sessionUpdate")), str(update.get("toolCallId"))
        if (who := speaker(update)) is not None:
            if self._live or kind == "user_message_chunk":
                self._end_plan()
            self._say(
                kind, who, str(update.get("messageId")), block_text(fields(update.get("content")))
            )
        elif kind in ("tool_call", "tool_call_update"):
            if self._live:
                self._end_plan()
            self._call(call, update)
        elif kind == "plan":
            self._plan = [_task(one) for one in objects(update.get("entries"))]

    def note(self, text: str, **style: Any) -> None:
        """Print a line of our own."""
        self.block(joined([shown(text, **style), _END]))

    def block(self, text: Shown) -> None:
        """Print lines of our own."""
        if self._live:
            self._end_plan()
        self._say_running()
        self._print(text)

    def end(self) -> None:
        """End the output at the beginning of a line."""
        self._say_running()
        self._end_plan()
        self._end_line()

    def _call(self, call: str, update: dict[str, Any]) -> None:
        begins = update["sessionUpdate"] == "tool_call"
        tool = self._tools.get(call)
        if tool is None:
            if not begins and update.get("status") not in RESULTS:
                return  # of a call that is over, or that was never seen
            tool = ShownCall("a tool", "in_progress", [])
            self._tools[call] = tool
        tool.take(update)
        if tool.status in RESULTS:
            self._unsaid.pop(call, None)
            self._ended(self._tools.pop(call))
        elif begins:
            self._unsaid[call] = tool
            if self._live or tool.name == PLANS:
                self._say_running()

    def _say_running(self) -> None:
        """Print the calls that run."""
        for tool in self._unsaid.values():
            self._print_line(f"{_CALL} {tool.title}", fg="cyan")
            if tool.name == PLANS:
                self._print_content(tool)
        self._unsaid.clear()

    def _ended(self, tool: ShownCall) -> None:
        failed = tool.status == "failed"
        told = _why(tool) if failed else _outcome(tool)
        behind = f" — {one_line(told)}" if told else ""
        colour = "red" if failed else "green"
        self._print_line(f"{RESULTS[tool.status]} {tool.title}{behind}", fg=colour)
        if tool.name == ASKS and told is None:
            self._print_content(tool)
        elif self._outputs:
            self._print_lines(tool_output.lines(tool))

    def _print_content(self, tool: ShownCall) -> None:
        for text in tool_output.texts(tool):
            self._print_lines(quoted(text))

    def _print_lines(self, lines: Iterable[tuple[Shown, ...]]) -> None:
        if found := joined(piece for line in lines for piece in (*line, _END)):
            self._print(found)

    def _end_plan(self) -> None:
        """Print the task list, whole, if it has changed."""
        if self._plan and self._plan != self._printed_plan:
            self._say_running()
            self._end_line()
            self._message = None
            self._head(("plan", "", TASKS))
            self._write(joined(shown(f"{line}\n", "prose") for line in self._plan))
        self._printed_plan = self._plan

    def _say(self, kind: str, who: str, message: str, text: str) -> None:
        self._say_running()
        if who == OURS:  # whole, in the Markdown and with the empty lines of a chat
            text = text.strip("\n").replace("**", "")
        if self._message != (kind, message, who):
            self._end_line()
            self._head((kind, message, who))
        elif (
            kind == "user_message_chunk"
            and len(self._block) < SPLIT
            and not self._text.fresh
            and between(self._block, text)
        ):
            self._write_text(kind, "\n")
        self._block = text
        self._write_text(kind, neutral(text, "prose"))

    def _head(self, message: tuple[str, str, str]) -> None:
        """Say who speaks in the message, unless that stands there."""
        if self._message != message:
            self._message = message
            self._heads.add(f"{message[2]}:")
            self._write(joined([shown(f"{message[2]}:", bold=True), _END]))

    def _write_text(self, kind: str, text: str) -> None:
        self._write_ready(self._text.piece(text), dim=kind == "agent_thought_chunk")

    def _write_ready(self, text: str, *, dim: bool) -> None:
        if text:
            self._write(shown(text, "prose", **({"dim": True} if dim else {})))
            self._fresh = text.endswith("\n")

    def _print_line(self, text: str, **style: Any) -> None:
        self._print(joined([shown(text, **style), _END]))

    def _print(self, text: Shown) -> None:
        self._end_line()
        self._message = None
        self._write(text)

    def _end_line(self) -> None:
        thought = self._message is not None and self._message[0] == "agent_thought_chunk"
        self._write_ready(self._text.rest(), dim=thought)
        if not self._fresh:
            self._write(_END)
            self._fresh = True


def _outcome(tool: ShownCall) -> str | None:
    """What a call that has succeeded says in its line; None if that is too long for one."""
    if tool.name == PLANS:
        return None
    if tool.name == ASKS_TRUST:  # what was found stands before it
        return next(reversed(tool_output.texts(tool)), None)
    return short_output(tool)


def _why(tool: ShownCall) -> str:
    """Why a call has failed, in short: the exit code or reason, which stands last, and the output
    if it is one line.
    """
    *before, last = tool_output.texts(tool) or [""]
    if tool.name in (PLANS, ASKS) or tool.kind == EDIT:
        before = []  # that stands there already, or is what was to be written
    shown_before = [line.strip() for text in before for line in text.split("\n") if line.strip()]
    first = next((line.strip() for line in last.split("\n") if line.strip()), "")
    whole = ": ".join([first.removesuffix(".") if shown_before else first, *shown_before])
    told = first if len(shown_before) > 1 or len(whole) > SHORT else whole
    return told if len(told) <= SHORT else f"{told[: SHORT - 1]}…"


def _task(entry: dict[str, Any]) -> str:
    state = _STATES.get(str(entry.get("status")), " ")
    return f"- [{state}] {one_line(str(entry.get('content')))}"
