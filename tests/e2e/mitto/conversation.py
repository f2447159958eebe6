"""A conversation of Mitto's: what its metadata keeps over restarts, and what its user sees."""

from __future__ import annotations

import asyncio
import re
from typing import Any, Final

from tests.e2e.mitto import wrapping

# s after the answer of new, load, resume in which updates may be lost: here they all are
RACE: Final = 0.02
# failed starts after which a session is not resumed any more, but made anew
FAILURES_TO_SKIP: Final = 2
FAILURES_TO_ARCHIVE: Final = 3
_ITEM: Final = re.compile(r"\s*([-+*]|\d+[.)])\s")


class Conversation:
    """`screen` is what is shown and kept, in order: text at the end of its line, that of a code block,
    a list or a table when it is complete, and everything at the end of a turn.
    """

    def __init__(self, name: str = "a conversation") -> None:
        self.name = name
        # metadata.json
        self.session: str | None = None
        self.start_failures = 0
        self.archived = False
        # what it knows of the session
        self.lost: list[
            str
        ] = []  # ids that were overwritten: their sessions are lost for Mitto for ever
        self.methods: list[str] = []  # how it was opened: new, resume, load
        self.modes: dict[str, Any] | None = None
        self.models: dict[str, Any] | None = None
        self.commands: list[str] = []
        self.usage: tuple[int, int] | None = None
        self.plan: list[dict[str, Any]] = []
        # what was said
        self.turns: list[tuple[str, str]] = []
        self.screen: list[str] = []
        self.tools: dict[str, list[str]] = {}  # title, then every status
        self.errors: list[str] = []
        self._line = ""  # not shown yet, as is
        self._block: list[str] = []  # what is complete of a code block, a list or a table
        self._in_code = self._in_list = False
        self._answer: list[str] = []
        self._registered: float | None = None  # the loop's time
        self._wrapped = False  # since it was opened
        self._resumed = False

    # --- the session

    def opened(self, method: str, session: str, result: dict[str, Any]) -> None:
        """The answer to new, load or resume."""
        if self.session is not None and session != self.session:
            self.lost.append(self.session)
        self.session = session
        self.methods.append(method)
        self.modes, self.models = result["modes"], result["models"]
        for option in result["configOptions"]:
            assert option["type"] in ("select", "boolean"), "invalid variant payload"
        self.start_failures = 0
        self._registered = asyncio.get_running_loop().time() + RACE
        self._wrapped = False
        self._resumed = method != "new"

    def closed(self) -> None:
        """Its process is gone."""
        self._registered = None
        self._flush()

    def killed(self) -> None:
        """Mitto itself is gone, and what it has not kept."""
        self._registered = None
        self._line, self._block = "", []
        self._in_code = self._in_list = False

    def failed_to_start(self) -> None:
        """Counted once for each browser that opens it."""
        self.start_failures += 1
        self.archived = self.start_failures >= FAILURES_TO_ARCHIVE

    @property
    def resumable(self) -> bool:
        """Whether its session is asked for, rather than a new one made."""
        return self.session is not None and self.start_failures < FAILURES_TO_SKIP

    # --- prompts

    def wrap(self, words: str) -> str:
        """The user's words as they are sent now."""
        if self._wrapped:
            return words
        self._wrapped = True
        text = wrapping.context(words, self.name, "/somewhere")
        return wrapping.history([*self.turns, (words, "")]) + text if self._resumed else text

    def begin_turn(self) -> None:
        """A prompt goes out."""
        self._flush()
        self._answer = []
        self.plan = []

    def end_turn(self, words: str) -> None:
        """It was answered."""
        self._flush()
        self.turns.append((words, "".join(self._answer)))

    def note(self, words: str) -> None:
        """Mitto itself says something."""
        self._flush()
        self.screen.append(words)

    @property
    def text(self) -> str:
        """All that the agent has said and that is shown."""
        return "".join(self.screen)

    # --- session/update

    def show(self, update: dict[str, Any]) -> None:
        """An update; one for a session that is not registered is dropped silently, a whole replay
        too.
        """
        if self._registered is None or asyncio.get_running_loop().time() < self._registered:
            return
        if update.get("messageId", "").endswith("-start-shown"):  # on a busy machine
            return
        match update["sessionUpdate"]:
            case "agent_message_chunk":
                if update["content"]["type"] == "text":  # others are dropped silently
                    self._say(update["content"]["text"])
            case "tool_call":
                assert update["title"], "an empty row"
                self._flush()
                self.screen.append(f"[{update['title']}]")
                self.tools[update["toolCallId"]] = [update["title"], update["status"]]
            case "tool_call_update":  # only its status is read; a better title never is
                if update.get("status"):
                    self.tools[update["toolCallId"]].append(update["status"])
            case "plan":
                self.plan = update["entries"]
            case "usage_update":
                self.usage = _whole(update["used"]), _whole(update["size"])
            case "available_commands_update":
                self.commands = sorted(command["name"] for command in update["availableCommands"])
            case "current_mode_update":
                assert self.modes is not None
                self.modes["currentModeId"] = update["currentModeId"]

    def _say(self, text: str) -> None:
        self._answer.append(text)
        *lines, self._line = (self._line + text).split("\n")
        for line in lines:
            self._end_line(line)

    def _end_line(self, line: str) -> None:
        if line.lstrip().startswith("```"):
            self._in_code = not self._in_code
        elif not self._in_code and _ITEM.match(line):
            self._in_list = True
        elif self._in_list and line.strip() and not line.startswith(" "):
            self._in_list = False
        self._block.append(line + "\n")
        if not (self._in_code or self._in_list or line.lstrip().startswith("|")):
            self._show_block()

    def _show_block(self) -> None:
        if self._block:
            self.screen.append("".join(self._block))
            self._block = []

    def _flush(self) -> None:
        self._show_block()
        self._in_code = self._in_list = False
        if self._line:
            self.screen.append(self._line)
            self._line = ""


def _whole(number: Any) -> int:
    assert isinstance(number, int), f"{number}: the update is dropped"
    return number
