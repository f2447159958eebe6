"""One line each for what happens beside Claude's answer: hooks, models that fell back, the CLI's
own notices.
"""

from __future__ import annotations

import json
import os
import re
from typing import Any, Final
from uuid import uuid4

from pykoclaw_acp.model.events import BLOCKED, Event, note_event
from pykoclaw_acp.neutral import neutral
from pykoclaw_acp.system.credentials import configuration
from pykoclaw_acp.translation import service_errors
from pykoclaw_acp.worker.failures import LONGEST, in_one_line

FORBIDS: Final = 2  # the exit status with which a hook forbids what is about to happen
_SHOWN: Final = ("notice", "suggestion", "warning")  # levels; `info` is for the CLI's transcript
_LONGEST_NOTICE: Final = 1000  # characters; its end says what to do
_SETTINGS: Final = "settings_not_in_effect"  # tag of a notice, from CLI 2.1.332 on
# Of which the daemon tells (`sessions/user_settings.py`): the file does not count. An entry of a list
# may be left out alone.
_TOLD: Final = re.compile(
    r"( \((model|env|permissions(\.(allow|deny|ask|additionalDirectories|defaultMode))?"
    r"|hooks\.(PreToolUse|PermissionRequest)(\.[0-9]{1,9}(\.hooks)?)?)\))?: (Invalid|Expected) "
    r"(?!.{0,1000} was (skipped|removed))"
)
_STOPS: Final = "Stop"
_FEEDBACK: Final = "Stop hook feedback:\n"  # the CLI's words
_CALLS: Final = "PreToolUse"  # the call that such a hook blocks has failed, and says why
_AFTERWARDS: Final = ("PostToolUse", "PostToolUseFailure")  # the call has run; Claude is told
# What cannot be stopped any more, or not by a hook.
_UNSTOPPABLE: Final = frozenset(
    {
        "SessionStart", "SessionEnd", "Setup", "Notification", "SubagentStart", "PostCompact", "StopFailure",
        "InstructionsLoaded", "CwdChanged", "FileChanged", "WorktreeRemove", "PermissionDenied",
    }
)  # fmt: skip
_PROMPTS: Final = "UserPromptSubmit"
_STOPPED: Final = "stopped_by_hook"
_BY_HOOK: Final = ("blocked_by_hook", _STOPPED)


def line(words: str, end: str = "") -> list[Event]:
    """A line of ours in Claude's answer; `end`: of its id."""
    return [note_event(f"line-{uuid4()}{end}", words)]


class StatusLines:
    """Lines from the CLI's system messages."""

    def __init__(self) -> None:
        self._told: set[tuple[str, str]] = set()  # hooks that failed, and what they said
        self._sent_on: list[str] = []  # reasons for which Claude is sent on, as the hooks said them
        self._blocked = False  # a line says which hook has taken the prompt away

    def follow(self, subtype: str, data: dict[str, Any]) -> list[Event]:
        """The line of a system message; most have none."""
        if subtype == "hook_response":
            return self._hook(data)
        if blocks_prompt(subtype, data):
            return self._blocked_prompt(data["prompt_submit_outcome"])
        if subtype == "informational":
            return _notice(data)
        if subtype in ("model_fallback", "model_consent_fallback", "model_refusal_fallback"):
            return _fallback(data)
        return []

    def ended(self) -> None:
        """The turn has ended: Claude is told no more of what kept it going."""
        self._sent_on.clear()
        self._blocked = False

    def take_feedback(self, words: str) -> list[Event]:
        """Take what the CLI tells Claude because a hook keeps it from ending its turn; returns its line,
        unless the hook was told of. The CLI reports no hook that asks a model, as that of `/goal`
        does, so that this is all there is.
        """
        if not words.startswith(_FEEDBACK):
            return []
        said = words.removeprefix(_FEEDBACK).strip()
        for reason in self._sent_on:
            if said.endswith(reason):
                self._sent_on.remove(reason)
                return []
        return line(f"**A hook made Claude continue** (`Stop`){_after(_plain(said))}")

    def _hook(self, data: dict[str, Any]) -> list[Event]:
        hook = str(data.get("hook_name"))
        event = hook.partition(":")[0]
        name = f"`{neutral(hook, 'command')}`"
        said = _plain(data.get("stderr") or data.get("output"))
        given = _given(data.get("stdout"))
        reason, halts = _refusal(given), given.get("continue") is False
        status = data.get("exit_code")
        if event in _UNSTOPPABLE:
            if reason is not None and status != FORBIDS:
                return self._failed(f"{name}, which can stop nothing", reason)
        elif status == FORBIDS or reason is not None:
            if hook.startswith(_CALLS) and not halts:
                return []
            if event == _STOPS and not halts:
                whole = given.get("reason") if reason is not None else data.get("stderr")
                self._sent_on.append(str(whole or "").strip())
            self._blocked = self._blocked or event == _PROMPTS
            why = said if reason is None else reason
            if event == _PROMPTS:
                return _without_prompt(name, why, halts=halts)
            return line(f"**A hook {_did(event, halts=halts)}** ({name}){_after(why)}")
        if data.get("outcome") != "error" and status != FORBIDS:
            return []
        return self._failed(name if status is None else f"{name}, exit status {status}", said)

    def _blocked_prompt(self, outcome: dict[str, Any]) -> list[Event]:
        """The line of a hook that the CLI does not report, as one that asks a model; others have
        theirs.
        """
        if self._blocked:
            return []
        why = _plain(outcome.get("reason"))
        return _without_prompt(f"`{_PROMPTS}`", why, halts=outcome["kind"] == _STOPPED)

    def _failed(self, hook: str, said: str) -> list[Event]:
        if (hook, said) in self._told:
            return []
        self._told.add((hook, said))
        return line(f"**A hook failed** ({hook}){_after(said)}")


def _did(event: str, *, halts: bool) -> str:
    """What a hook of this event has done that forbids something; `halts`: Claude is to stop."""
    if halts:
        return "stopped Claude"
    if event in _AFTERWARDS:
        return "objected"
    return "made Claude continue" if "Stop" in event else "blocked this"


def _without_prompt(name: str, why: str, *, halts: bool) -> list[Event]:
    """The line of a hook that has taken the prompt away."""
    said = f"**A hook {_did(_PROMPTS, halts=halts)}** ({name}){_after(why)}"
    end = "" if said.endswith((".", "!", "?", "…")) else "."
    return line(
        f"{said}{end} Claude was not given the prompt: change it, and send it again.", BLOCKED
    )


def blocks_prompt(subtype: str, data: dict[str, Any]) -> bool:
    """Whether it says that a hook has taken the prompt away."""
    outcome = data.get("prompt_submit_outcome")
    blocked = isinstance(outcome, dict) and outcome.get("kind") in _BY_HOOK
    return subtype == "informational" and blocked


def _notice(data: dict[str, Any]) -> list[Event]:
    content = data.get("content")
    said = service_errors.without_gateway(_plain(content, _LONGEST_NOTICE))
    if not said or data.get("level") not in _SHOWN:
        return []
    if data.get("tag") == _SETTINGS and _is_told(str(content)):
        return []
    return line(f"**Notice:** {said}")


def _is_told(content: str) -> bool:
    """Whether the daemon tells of the settings that did not load: those of the user, and no others."""
    directory = configuration(os.environ, os.path.expanduser("~"))
    path = os.path.abspath(os.path.join(directory, "settings.json"))
    listed = [one for one in content.splitlines() if one.startswith("  ")]
    own = [one.removeprefix(f"  {path}") for one in listed if one.startswith(f"  {path}")]
    return len(own) == len(listed) and any(_TOLD.match(one) for one in own)


def _fallback(data: dict[str, Any]) -> list[Event]:
    if data.get("scope") == "local":  # of a subagent, or of a question beside
        return []
    before, after = (
        neutral(str(data.get(f"{which}_model") or "?"), "command")
        for which in ("original", "fallback")
    )
    return line(
        f"**Claude goes on with `{after}`** instead of `{before}`{_after(_plain(data.get('content')))}"
    )


def _given(stdout: object) -> dict[str, Any]:
    """What a hook says as JSON, if it says anything so."""
    if not isinstance(stdout, str) or not stdout.lstrip().startswith("{"):
        return {}
    try:
        given = json.loads(stdout)
    except (ValueError, RecursionError):
        return {}
    return given if isinstance(given, dict) else {}


def _refusal(given: dict[str, Any]) -> str | None:
    """The reason that a hook gives for what it forbids; None if it forbids nothing."""
    own = given.get("hookSpecificOutput")
    if isinstance(own, dict) and own.get("permissionDecision") == "deny":
        return _plain(own.get("permissionDecisionReason"))
    if given.get("decision") == "block" or given.get("continue") is False:
        return _plain(given.get("reason") or given.get("stopReason"))
    return None


def _plain(words: object, most: int = LONGEST) -> str:
    return in_one_line(words, most) if isinstance(words, str) else ""


def _after(words: str) -> str:
    return f": {words}" if words else "."
