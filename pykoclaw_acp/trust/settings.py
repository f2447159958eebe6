"""What of Claude's settings and MCP files acts or redirects, in words; a key that is not known
acts.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from typing import Any, Final

from pykoclaw_acp.model.trust import ALLOWS
from pykoclaw_acp.trust.written import without_written

_BLANKS: Final = re.compile(r"[ \t]+")
_NOTHING: Final[tuple[Any, ...]] = (None, "", [], {})
# These only say, show or forbid something.
_HARMLESS: Final = frozenset(
    {
        "$schema", "attribution", "companyAnnouncements", "disabledMcpjsonServers", "editorMode", "includeCoAuthoredBy",
        "includeGitInstructions", "language", "outputStyle", "prefersReducedMotion", "respectGitignore",
        "showTurnDuration", "spinnerTipsEnabled", "spinnerTipsOverride", "spinnerVerbs", "terminalProgressBarEnabled",
        "theme", "timeFormat", "timeZone", "verbose", "viewMode",
    }
)  # fmt: skip
_HARMLESS_PERMISSIONS: Final = frozenset({"deny", "ask"})
_OF_FILE: Final = re.compile(r"\A(Read|Edit|Write|MultiEdit|NotebookEdit|Glob|Grep|LS)\(/(?!/)")
_SPECIAL: Final = re.compile(r"[\\\[*?]")  # in a path that is a pattern
_ONLY_IF_TRUE: Final = frozenset(
    {"enableAllProjectMcpServers", "skipDangerousModePermissionPrompt"}
)
# What counts of an additional directory
PLUGINS: Final = frozenset({"enabledPlugins", "extraKnownMarketplaces"})
_RUNS: Final = {
    "apiKeyHelper": "runs a program for the API key",
    "awsAuthRefresh": "runs a program to log in to AWS",
    "awsCredentialExport": "runs a program for AWS credentials",
    "gcpAuthRefresh": "runs a program to log in to Google Cloud",
    "otelHeadersHelper": "runs a program for telemetry headers",
    "proxyAuthHelper": "runs a program for the proxy's password",
    "statusLine": "runs a program for the status line",
    "subagentStatusLine": "runs a program for the status line of subagents",
    "fileSuggestion": "runs a program for file suggestions",
}


UNCLEAR: Final = "cannot be understood"


class Unreadable(ValueError):
    """The file is not what Claude's settings look like."""


def parse(data: bytes) -> dict[str, Any]:
    """The object that the file holds; raises Unreadable, also for what the CLI reads and Python
    does not: deep nesting, and halves of surrogate pairs.
    """
    try:
        value = json.loads(data.decode("utf-8-sig"))
        json.dumps(value, ensure_ascii=False).encode()  # as it will be shown
    except (ValueError, RecursionError) as error:
        raise Unreadable(UNCLEAR) from error
    if not isinstance(value, dict):
        raise Unreadable(UNCLEAR)
    return value


def of_settings(value: dict[str, Any], only: frozenset[str] | None = None) -> list[str]:
    """What a settings file does; `only`: of these keys."""
    return [
        words
        for key, one in value.items()
        if one not in _NOTHING and key not in _HARMLESS and (only is None or key in only)
        for words in _of_key(key, one)
    ]


def of_mcp(value: dict[str, Any]) -> list[str]:
    """What an `.mcp.json` does."""
    servers = value.get("mcpServers")
    if servers in _NOTHING:
        return []
    if not isinstance(servers, dict):
        return ["names MCP servers in a form that cannot be understood"]
    return [_server(name, one) for name, one in servers.items()]


def restrictions(value: dict[str, Any], directory: str) -> dict[str, list[str]]:
    """Rules of a settings file that forbid calls (`deny`) or make Claude ask about them (`ask`), as
    they mean the same from elsewhere; `directory`: whose file it is.
    """
    found = value.get("permissions")
    return {
        kind: [_from_root(one, directory) for one in rules if isinstance(one, str)]
        for kind, rules in (found.items() if isinstance(found, dict) else ())
        if kind in _HARMLESS_PERMISSIONS and isinstance(rules, list)
    }


def _from_root(rule: str, directory: str) -> str:
    """The rule, with a path that is relative to the directory of its file (`/a`) as one from the
    root (`//…/a`).
    """
    # By `?`, any letter: it rather forbids too much, and rules and patterns escape differently.
    place = _SPECIAL.sub("?", directory)
    return _OF_FILE.sub(lambda found: f"{found[1]}(/{place}/", rule)


def strings(value: Any) -> Iterator[str]:
    """All text in it, names included, but of a shell command not the files that it only writes; a
    command with its arguments is one text, too.
    """
    waiting = [value]
    while waiting:
        one = waiting.pop()
        if isinstance(one, str):
            yield one
        elif isinstance(one, dict):
            if _is_for_shell(one):
                one = {**one, "command": without_written(one["command"])}
            elif isinstance(one.get("command"), str) and isinstance(one.get("args"), list):
                launched = (one["command"], *one["args"])
                yield shlex.join(part for part in launched if isinstance(part, str))
            waiting.extend(one.keys())
            waiting.extend(one.values())
        elif isinstance(one, list):
            waiting.extend(one)


def _is_for_shell(value: dict[str, Any]) -> bool:
    return (
        value.get("type") == "command"
        and isinstance(value.get("command"), str)
        and not {"args", "shell"} & value.keys()
    )


def shown(text: str) -> str:
    """The text with a single blank for several; line breaks stay, as they mean something to a shell."""
    return _BLANKS.sub(" ", text).strip()


def _of_key(key: str, value: Any) -> Iterator[str]:
    if key == "hooks":
        yield from _hooks(value)
    elif key == "env":
        yield f"sets environment variables: {_variables(value)}"
    elif key == "permissions" and isinstance(value, dict):
        yield from (
            _permission(name, one)
            for name, one in value.items()
            if name not in _HARMLESS_PERMISSIONS and one not in _NOTHING
        )
    elif key == "enabledPlugins" and isinstance(value, dict):
        if names := [str(name) for name, on in value.items() if on is not False]:
            yield f"turns on plugins: {shown(', '.join(names))}"
    elif key == "extraKnownMarketplaces":
        yield f"adds places that plugins come from: {_json(value)}"
    elif key in _RUNS:
        command = value.get("command", value) if isinstance(value, dict) else value
        yield f"{_RUNS[key]} ({key}): {_json(command)}{_besides(value)}"
    elif not (key in _ONLY_IF_TRUE and value is False):
        yield f"sets {shown(key)}: {_json(value)}"


def _hooks(value: Any) -> Iterator[str]:
    if not isinstance(value, dict):
        yield f"has hooks: {_json(value)}"
        return
    for event, matchers in value.items():
        if matchers in _NOTHING:
            continue
        for matcher in matchers if isinstance(matchers, list) else [matchers]:
            hooks = matcher.get("hooks", matcher) if isinstance(matcher, dict) else matcher
            for hook in hooks if isinstance(hooks, list) else [hooks]:
                command = hook.get("command") if isinstance(hook, dict) else None
                what = _json(hook) if command is None else _json(command) + _besides(hook)
                yield f"hook at {shown(str(event))}: {what}"


def _permission(name: str, value: Any) -> str:
    if name == "allow" and isinstance(value, list):
        listed = shown(", ".join(str(one) for one in value))
        return f"{ALLOWS}: {listed}"
    return f"sets permissions.{shown(name)}: {_json(value)}"


def _variables(value: Any) -> str:
    if not isinstance(value, dict):
        return _json(value)
    return shown(", ".join(f"{name}={one}" for name, one in value.items()))


def _besides(value: Any, *said: str) -> str:
    """What else is said of a command, which may change what it does: its environment,
    for instance.
    """
    known = {"command", "type", *said}
    if not isinstance(value, dict) or "command" not in value:
        return ""
    rest = {name: one for name, one in value.items() if name not in known}
    return f" with {_json(rest)}" if rest else ""


def _server(name: str, value: Any) -> str:
    if isinstance(value, dict) and isinstance(value.get("command"), str):
        arguments = value.get("args")
        words = [
            value["command"],
            *(str(one) for one in (arguments if isinstance(arguments, list) else [])),
        ]
        return f"MCP server {shown(name)} runs: {shown(' '.join(words))}{_besides(value, 'args')}"
    return f"MCP server {shown(name)}: {_json(value)}"


def _json(value: Any) -> str:
    return shown(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))
