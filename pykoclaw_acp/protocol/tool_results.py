"""Results of tool calls for clients: the shown parts, and ACP's `rawOutput`."""

from __future__ import annotations

from typing import Any, Final

from pykoclaw_acp.model.code_blocks import unfenced
from pykoclaw_acp.model.events import TextPart, ToolEnded, ToolPart

MAX_RAW: Final = 32 * 1024  # characters of output in `rawOutput`; `content` has more
EXIT_CODE: Final = "Exit code {}"


def shown(event: ToolEnded) -> tuple[ToolPart, ...]:
    """The parts, with the exit code of a command that has failed, or why a call has."""
    code = (TextPart(EXIT_CODE.format(event.exit_code)),) if event.exit_code else ()
    why = () if event.reason is None else (TextPart(event.reason),)
    return (*event.content, *code, *why)


def raw_output(event: ToolEnded) -> dict[str, Any] | None:
    """`output`, a text, and `exitCode` of a command, as far as they are known; None if neither is."""
    texts = [
        unfenced(part.text)
        for part in event.content
        if isinstance(part, TextPart) and not (part.command or part.beside)
    ]
    if event.told and not texts:
        texts.append(event.told)
    raw: dict[str, Any] = {}
    if event.exit_code is not None:
        raw["exitCode"] = event.exit_code
    if texts or event.exit_code is not None:
        raw["output"] = _shortened("\n".join(texts))
    return raw or None


def _shortened(text: str) -> str:
    if len(text) <= MAX_RAW:
        return text
    half = MAX_RAW // 2
    return f"{text[:half]}\n… {len(text) - MAX_RAW} characters left out …\n{text[-half:]}"
