"""Long outputs: the CLI keeps them in files of its own. It gives the beginning of a command's, and of
an MCP tool's nothing but words for the model.
"""

from __future__ import annotations

import os
import re
from typing import Any, Final

from pykoclaw_acp.model.blobs import amount
from pykoclaw_acp.model.choices import OF_SERVER
from pykoclaw_acp.system.regular_files import opened

MOST: Final = 30_000
"""Bytes that are shown, half of them from the end: as many as the CLI gives of the beginning."""

BEGIN: Final = "<persisted-output>"
_BEGIN_OF_SERVER: Final = "Error: result ("
_KEPT: Final = re.compile(
    rf"{BEGIN}\nOutput ([^\n]{{1,200}}) saved to: ([^\n]{{1,4096}})\n\nPreview \("
)
_KEPT_OF_SERVER: Final = re.compile(
    rf"{re.escape(_BEGIN_OF_SERVER)}[^)\n]{{1,100}}\) exceeds maximum allowed tokens\. "
    r"Output has been saved to ([^\n]{1,4096})\.\nFormat: "
)
_CUT_OF_SERVER: Final = "\nNote: the output "  # the file does not have the end
_FOLDER: Final = "tool-results"
_CAPPED: Final = "only the first "  # the file does not have the end
_PATH: Final = "persistedOutputPath"
_FIELDS: Final = (_PATH, "persistedOutputSize")
_LINE: Final = 1000  # bytes; a longer line is cut in two


def is_kept(tool: str, text: str) -> bool:
    """Whether a result of this tool may be one that `complete` completes."""
    begin = BEGIN if tool == "Bash" else _BEGIN_OF_SERVER
    return text.startswith(begin) and (tool == "Bash" or tool.startswith(OF_SERVER))


def complete(text: str, details: Any, projects: str, live: str = "") -> tuple[str, Any]:
    """The result of a command or an MCP tool for the model, and the CLI's own form of it, with the end
    of a long output; as they are, if there is no file of it in a session of the directory `projects`.

    `live`: the newest part that was seen, for an output that is longer than the file may be.
    """
    if text.startswith(_BEGIN_OF_SERVER):
        return _of_server(text, projects), details
    found = _KEPT.match(text)
    own: dict[str, Any] = details if isinstance(details, dict) else {}
    # Of its own commands the CLI says the file here, too; a text may be what a command put out.
    if found is None or (own and own.get(_PATH) != found[2]):
        return text, details
    most = max(MOST, len(str(own.get("stdout") or "")))
    try:
        if (path := _own(found[2], projects)) is None:
            return text, details
        shown = _ends(path, most, live if _CAPPED in found[1] else None)
    except (OSError, ValueError):  # it is gone, or no path
        return text, details
    if own:
        kept = {key: value for key, value in own.items() if key not in _FIELDS}
        return shown, {**kept, "stdout": shown}
    return shown, details


def _of_server(text: str, projects: str) -> str:
    found = _KEPT_OF_SERVER.match(text)
    try:
        path = None if found is None else _own(found[1], projects)
        if path is None:
            return text
        return _ends(path, MOST, "" if _CUT_OF_SERVER in text else None)
    except (OSError, ValueError):  # it is gone, or no path
        return text.partition("\nFormat: ")[0].removeprefix("Error: ")


def _own(path: str, projects: str) -> str | None:
    """The file, if it is of the CLI: a command may have put out the text that names it."""
    path, root = os.path.realpath(path), os.path.realpath(projects)
    inside = path.startswith(f"{root}{os.sep}")
    return path if inside and os.path.basename(os.path.dirname(path)) == _FOLDER else None


def _ends(path: str, most: int, live: str | None) -> str:
    """Beginning and end of a file, with a mark of what is between them; all of it, if it is short.
    `live`: the end, in place of the file's.
    """
    with opened(path) as file:
        size = os.fstat(file).st_size
        if size <= most and live is None:
            return os.pread(file, most, 0).decode(errors="replace")
        first = os.pread(file, most // 2, 0)
        last = os.pread(file, most // 2, size - most // 2)
    at = first.rfind(b"\n")
    first = first[:at] if at >= len(first) - _LINE else first
    if live is not None:
        left, last = f"the rest is left out; its first {amount(size)} are", live.encode()
    else:
        at = last.find(b"\n") + 1
        last = last[at:] if at <= _LINE else last
        left = f"{amount(size - len(first) - len(last))} left out; the whole is"
    return b"\n".join((first, f"… {left} in {path} …".encode(), last)).decode(errors="replace")
