"""What a client asks of Claude in `_meta` of `session/new`, `session/load` and `session/resume`.

Keys of ours, and those of `claudeCode.options`, by which clients of claude-agent-acp pass options
of the Claude Agent SDK. Each is honoured or refused; keys of others are left alone, as ACP wants.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Final, NoReturn
from uuid import UUID

from pykoclaw_acp.errors import InvalidParams
from pykoclaw_acp.model import conversations
from pykoclaw_acp.model.choices import OFF, ON
from pykoclaw_acp.model.session_options import (
    ENVIRONMENT,
    RequestedOptions,
    SessionOptions,
    SystemPrompt,
)
from pykoclaw_acp.protocol.own_meta import OWN

CLAUDE_CODE: Final = "claudeCode"
SDK: Final = f"{CLAUDE_CODE}.options"
MAX_SYSTEM_PROMPT: Final = 200_000  # characters
MAX_ENTRIES: Final = 500  # of a list, or of the environment
MAX_ENTRY: Final = 1_000  # characters of a tool's rule
MAX_VALUE: Final = 4_000  # characters of a variable
MAX_ASK: Final = 32 * 1024  # bytes of `ask` as JSON: Claude gets it on its command line
MOST_TURNS: Final = 1_000_000
SOURCES: Final = ("user", "project", "local")


def parse(
    meta: Mapping[str, Any] | None, *, new: bool, system_prompt: Mapping[str, Any] | None = None
) -> RequestedOptions:
    """What `_meta` asks for, and ACP's parameter `systemPrompt`. `new`: the session is made by it.

    Raises InvalidParams, which names what is not known, not honoured, or given twice.
    """
    found: dict[str, Any] = {}
    given: dict[str, str] = {}

    def take(field: str, value: Any, at: str) -> None:
        if found.get(field, value) != value:
            raise InvalidParams(f"`{at}`: `{given[field]}` says something else. Give one of them.")
        found[field], given[field] = value, at

    for at, field, value in _values(meta or {}):
        if field == "session_id" and not new:
            raise InvalidParams(f"`{at}`: only a new session can be given an id.")
        take(field, _READ[field](at, value), at)
    if not new:
        found.pop(_BEGINS, None)
        given.pop(_BEGINS, None)
    if system_prompt is not None:
        take("system_prompt", _parameter(system_prompt), "systemPrompt")
    own = {name: found.pop(name) for name in SessionOptions.__struct_fields__ if name in found}
    return RequestedOptions(**found, options=SessionOptions(**own), given=given)


def _values(meta: Mapping[str, Any]) -> list[tuple[str, str, Any]]:
    """Place, field and value of everything that is asked for."""
    values: list[tuple[str, str, Any]] = []
    for key, value in meta.items():
        if value is None:
            continue
        if key in OWN_KEYS:
            values.append((f"_meta.{key}", OWN_KEYS[key], value))
        elif key == "systemPrompt":  # as clients of claude-agent-acp give it
            values.append((f"_meta.{key}", "system_prompt", value))
        elif key == "disableBuiltInTools":
            if _boolean(f"_meta.{key}", value):
                values.append((f"_meta.{key}", "tools", []))
        elif key == "additionalRoots":
            _refuse(f"_meta.{key}", "use the parameter `additionalDirectories`")
        elif key == CLAUDE_CODE:
            values += _of_sdk(value)
    return values


def _of_sdk(given: Any) -> list[tuple[str, str, Any]]:
    place = f"_meta.{CLAUDE_CODE}"
    if not isinstance(given, dict):
        raise InvalidParams(f"`{place}`: must be an object.")
    named = {key: value for key, value in given.items() if value is not None}
    options = named.pop("options", {})
    named.pop("emitRawSDKMessages", None)  # an offer to take more: no client depends on it
    if named:
        _unknown(place, named)
    place = f"_meta.{SDK}"
    if not isinstance(options, dict):
        raise InvalidParams(f"`{place}`: must be an object.")
    asked = {key: value for key, value in options.items() if value is not None}
    asked, more = _with_permissions(asked, place)
    for key in asked:
        if key in _REFUSED:
            _refuse(f"{place}.{key}", _REFUSED[key])
    # What is so anyway may be asked for.
    asked = {key: value for key, value in asked.items() if _ANYWAY.get(key, ...) != value}
    if unknown := [key for key in asked if key not in SDK_KEYS]:
        _unknown(place, unknown)
    return [*more, *((f"{place}.{key}", SDK_KEYS[key], value) for key, value in asked.items())]


def _with_permissions(
    asked: dict[str, Any], place: str
) -> tuple[dict[str, Any], list[tuple[str, str, Any]]]:
    """Settings that hold permissions alone, as OpenCode sends them, as the options that say so, and
    what no option says: place, field and value of each.
    """
    settings = asked.get("settings")
    if not isinstance(settings, dict) or settings.keys() != {"permissions"}:
        return asked, []
    permissions = settings["permissions"]
    if not isinstance(permissions, dict):
        return asked, []
    if unknown := permissions.keys() - _PERMISSIONS:
        _unknown(f"{place}.settings.permissions", sorted(unknown))
    merged = {key: value for key, value in asked.items() if key != "settings"}
    for key, given in (("allowedTools", "allow"), ("disallowedTools", "deny")):
        more, known = permissions.get(given) or [], merged.get(key) or []
        if not isinstance(more, list):
            raise InvalidParams(f"`{place}.settings.permissions.{given}`: must be a list.")
        if more and isinstance(known, list):
            merged[key] = [*known, *more]
    return merged, [
        (f"{place}.settings.permissions.{key}", field, permissions[key])
        for key, field in _OF_PERMISSIONS.items()
        if permissions.get(key) is not None and (key, permissions[key]) != ("ask", [])
    ]


def _refuse(at: str, why: str) -> NoReturn:
    raise InvalidParams(f"`{at}`: is not honoured: {why}. Nothing was done; leave it out.")


def _unknown(place: str, keys: Any) -> NoReturn:
    names = ", ".join(f"`{str(key)[:60]}`" for key in list(keys)[:10])
    raise InvalidParams(
        f"`{place}`: unknown: {names}. Unknown keys are refused, and nothing was done; leave them out."
    )


# --- values


def _session_id(at: str, value: Any) -> str:
    try:
        known = UUID(value) if isinstance(value, str) else None
    except ValueError:
        known = None
    if known is None or str(known) != value:
        raise InvalidParams(f"`{at}`: must be a UUID in lower case, with hyphens.")
    if conversations.is_made_of_name(str(known)):
        raise InvalidParams(
            f"`{at}`: is a UUID of version 5; such ids stand for conversations of other programs. Choose one of"
            " another version."
        )
    return str(known)


def _name(at: str, value: Any) -> str:
    if not isinstance(value, str) or not 0 < len(value) <= MAX_ENTRY or "\0" in value:
        raise InvalidParams(f"`{at}`: must be a text of 1 to {MAX_ENTRY} characters.")
    return value


def _boolean(at: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise InvalidParams(f"`{at}`: must be true or false.")
    return value


def _forbids_bypass(at: str, value: Any) -> bool:
    if value != "disable":
        raise InvalidParams(f"`{at}`: must be `disable`.")
    return True


def _fast(at: str, value: Any) -> str:
    return ON if _boolean(at, value) else OFF


def _system_prompt(at: str, value: Any) -> SystemPrompt | None:
    """A text replaces Claude's own; `{"append": text}` adds to it, also in the form of the SDK's
    preset, which without a text is Claude's own.
    """
    text, replaces = value, True
    if isinstance(value, dict):
        preset = {"type": "preset", "preset": "claude_code"}
        rest = {key: one for key, one in value.items() if key != "append" and one is not None}
        if rest not in ({}, preset) or not (rest or "append" in value):
            raise InvalidParams(f'`{at}`: must be a text, or {{"append": text}}.')
        text, replaces = value.get("append") or "", False
    if not isinstance(text, str) or len(text) > MAX_SYSTEM_PROMPT or "\0" in text:
        raise InvalidParams(f"`{at}`: must be a text of at most {MAX_SYSTEM_PROMPT:,} characters.")
    return SystemPrompt(text, replaces) if text else None


def _parameter(given: Mapping[str, Any]) -> SystemPrompt | None:
    """ACP's own form, which is unstable there: content blocks, to add or in place of Claude's own."""
    mode, content = given.get("mode"), given.get("content")
    if mode not in ("append", "override"):
        raise InvalidParams("`systemPrompt.mode`: must be append or override.")
    if not isinstance(content, list) or any(
        not isinstance(one, dict) or one.get("type") != "text" or "text" not in one
        for one in content
    ):
        raise InvalidParams("`systemPrompt.content`: must be a list of text blocks.")
    texts = [one["text"] for one in content]
    if not all(isinstance(one, str) for one in texts):
        raise InvalidParams("`systemPrompt.content`: must be a list of text blocks.")
    text = "\n\n".join(texts)
    return _system_prompt("systemPrompt", text if mode == "override" else {"append": text})


def _texts(at: str, value: Any) -> tuple[str, ...]:
    if not isinstance(value, list) or len(value) > MAX_ENTRIES:
        raise InvalidParams(f"`{at}`: must be a list of at most {MAX_ENTRIES} texts.")
    for one in value:
        if not isinstance(one, str) or not 0 < len(one) <= MAX_ENTRY:
            raise InvalidParams(f"`{at}`: each must be a text of 1 to {MAX_ENTRY} characters.")
        if one.startswith("-") or not one.isprintable():
            raise InvalidParams(f"`{at}`: must be names of tools, or rules of Claude for them.")
    return tuple(value)


def _ask(at: str, value: Any) -> tuple[str, ...]:
    rules = _texts(at, value)
    if len(json.dumps(rules)) > MAX_ASK:
        raise InvalidParams(f"`{at}`: must be shorter: {MAX_ASK:,} bytes as JSON at most.")
    return rules


def _tools(at: str, value: Any) -> tuple[str, ...] | None:
    if value == {"type": "preset", "preset": "claude_code"}:
        return None  # those that there are anyway
    return _texts(at, value)


def _setting_sources(at: str, value: Any) -> tuple[str, ...]:
    if not isinstance(value, list) or any(one not in SOURCES for one in value):
        raise InvalidParams(f"`{at}`: must be a list of {', '.join(SOURCES)}.")
    return tuple(one for one in SOURCES if one in value)


def _max_turns(at: str, value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 < value <= MOST_TURNS:
        raise InvalidParams(f"`{at}`: must be a whole number from 1 to {MOST_TURNS:,}.")
    return value


def _env(at: str, value: Any) -> dict[str, str]:
    if not isinstance(value, dict) or len(value) > MAX_ENTRIES:
        raise InvalidParams(f"`{at}`: must be an object of at most {MAX_ENTRIES} texts.")
    if refused := [name for name in value if name not in ENVIRONMENT]:
        names = ", ".join(f"`{name[:60]}`" for name in refused[:10])
        raise InvalidParams(
            f"`{at}`: {names} cannot be set by a client here. Keys, addresses and proxies are taken from the"
            " environment; docs/protocol.md lists what can be set.",
            {"allowed": sorted(ENVIRONMENT)},
        )
    for name, one in value.items():
        if not isinstance(one, str) or len(one) > MAX_VALUE or "\0" in one:
            raise InvalidParams(f"`{at}.{name}`: must be a text of at most {MAX_VALUE} characters.")
    return dict(value)


_BEGINS: Final = "begins_in"
_READ: Final[dict[str, Callable[[str, Any], Any]]] = {
    "session_id": _session_id,
    "mode": _name,
    "model": _name,
    "effort": _name,
    "fast": _fast,
    "system_prompt": _system_prompt,
    "tools": _tools,
    "allowed_tools": _texts,
    "disallowed_tools": _texts,
    "setting_sources": _setting_sources,
    "max_turns": _max_turns,
    "env": _env,
    "forbids_bypass": _forbids_bypass,
    "ask_tools": _ask,
    _BEGINS: _name,
}
SDK_KEYS: Final = {
    "sessionId": "session_id",
    "permissionMode": "mode",
    "model": "model",
    "effort": "effort",
    "systemPrompt": "system_prompt",
    "tools": "tools",
    "allowedTools": "allowed_tools",
    "disallowedTools": "disallowed_tools",
    "settingSources": "setting_sources",
    "maxTurns": "max_turns",
    "env": "env",
}
OWN_KEYS: Final = {
    OWN + ("mode" if key == "permissionMode" else key): field for key, field in SDK_KEYS.items()
} | {OWN + "fast": "fast"}
_PROGRAMS: Final = "it could run programs that nobody is asked about"
_REFUSED: Final = {
    "resume": "use `session/load` or `session/resume`",
    "continue": "use `session/load` or `session/resume`",
    "forkSession": "use `session/fork`",
    "resumeSessionAt": "use `session/fork`",
    "cwd": "use the parameter `cwd`",
    "additionalDirectories": "use the parameter of this name",
    "mcpServers": "use the parameter of this name",
    "hooks": _PROGRAMS,
    "plugins": _PROGRAMS,
    "settings": _PROGRAMS,
    "managedSettings": _PROGRAMS,
    "extraArgs": _PROGRAMS,
    "pathToClaudeCodeExecutable": "set PYKOCLAW_CLI_PATH",
    "executable": "set PYKOCLAW_CLI_PATH",
    "executableArgs": _PROGRAMS,
    "agent": "Claude silently continues without that agent if it does not find it",
    "agents": "subagents are defined in files below `.claude/agents`",
    "sandbox": "it is a matter of Claude's settings files",
    "maxBudgetUsd": "there is no limit of costs here; `maxTurns` limits a turn",
    "maxThinkingTokens": "use `effort`",
    "thinking": "use `effort`",
    "permissionPromptToolName": "permissions are asked for by `session/request_permission`",
    "canUseTool": "permissions are asked for by `session/request_permission`",
    "outputFormat": "answers are text",
}
_OF_PERMISSIONS: Final = {
    "disableBypassPermissionsMode": "forbids_bypass",
    "ask": "ask_tools",
    "defaultMode": _BEGINS,
}
_PERMISSIONS: Final = frozenset({"allow", "deny", *_OF_PERMISSIONS})  # of settings
_ANYWAY: Final = {
    "abortController": {},  # what is left of one in JSON
    "includePartialMessages": True,
    "promptSuggestions": False,
    "persistSession": True,
    "allowDangerouslySkipPermissions": False,
    "strictMcpConfig": False,
}
