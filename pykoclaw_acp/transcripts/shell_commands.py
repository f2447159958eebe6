"""Commands that a user of a terminal gives to a shell with `!`, as the CLI records them: an entry has
the command, and another one what it has put out, which Claude answers or not.
"""

from __future__ import annotations

from typing import Final

from pykoclaw_acp.transcripts import tags
from pykoclaw_acp.translation.kept_outputs import BEGIN
from pykoclaw_acp.translation.translator import ToolResult

TOOL: Final = "Bash"  # what runs the command, as it is shown
_COMMAND: Final = "bash-input"
_OUT: Final = ("<bash-stdout>", "</bash-stdout>")
_ERR: Final = ("<bash-stderr>", "</bash-stderr>")
_ESCAPES: Final = (("&lt;", "<"), ("&gt;", ">"), ("&amp;", "&"))


def command(text: str) -> str | None:
    """The command that a text is the record of."""
    if not text.lstrip().startswith(f"<{_COMMAND}>"):
        return None
    found = tags.between(text, _COMMAND, last=True)
    return None if found is None else found[0]


def call(turn: str) -> str:
    """The id of the call that shows the command of this turn."""
    return f"bash-{turn}"


def result(turn: str, text: str) -> ToolResult | None:
    """The result of the turn's command, if the text is the record of one. Nothing tells with which
    code a command has ended; one that did not run has no output.
    """
    text = text.strip()
    if not text.startswith((_OUT[0], _ERR[0])):
        return None
    out, _, err = text.rpartition(_OUT[1] + _ERR[0])
    said = "\n".join(filter(None, (_plain(out), _plain(err))))
    return ToolResult(call(turn), said, is_error=text.startswith(_ERR[0]))


def _plain(text: str) -> str:
    for one in (_OUT, _ERR):
        text = text.removeprefix(one[0]).removesuffix(one[1])
    text = text.rstrip()
    if not text.startswith(BEGIN):
        for escaped, plain in _ESCAPES:
            text = text.replace(escaped, plain)
    return text
