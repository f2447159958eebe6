"""The way back from plan mode to the mode used before planning, where that is allowed."""

from __future__ import annotations

from typing import Any, cast

import pytest
from claude_agent_sdk import ClaudeSDKClient, PermissionResultAllow, SystemMessage
from msgspec.structs import replace

from pykoclaw_acp.channel.choosing import SetMode
from pykoclaw_acp.channel.frames import Answer
from pykoclaw_acp.model.permissions import PermissionRequest
from pykoclaw_acp.protocol import permissions
from pykoclaw_acp.sessions.permissions import decisions
from pykoclaw_acp.sessions.permissions.words import effect
from pykoclaw_acp.worker import deciding
from pykoclaw_acp.worker.choices import Choices
from tests.workers import OPTIONS

PLAN = PermissionRequest(
    epoch=1, ask_id="q", turn_id="t", tool_call_id="c", title="Plan", tool_kind="switch_mode", plan=True,
    always="edits", former="bypassPermissions",
)  # fmt: skip


class Claude:
    """The SDK's client of a CLI with these settings; None: it does not say."""

    def __init__(self, settings: object) -> None:
        self._settings = settings
        self._query = self

    @classmethod
    def of(cls, settings: object) -> ClaudeSDKClient:
        return cast("ClaudeSDKClient", cls(settings))

    async def get_server_info(self) -> dict[str, Any]:
        return {}

    async def set_permission_mode(self, mode: str) -> None:
        """Every mode may be set."""

    async def _send_control_request(self, _: dict[str, Any]) -> dict[str, Any]:
        if self._settings is None:
            raise Exception("No.")  # noqa: TRY002  as the SDK does
        return {"sources": [{"source": "userSettings", "settings": self._settings}]}


def entered(mode: str) -> SystemMessage:
    """Claude says that it is in this mode now."""
    return SystemMessage("status", {"permissionMode": mode})


@pytest.mark.parametrize(
    ("begins", "then", "bypass", "offered"),
    [
        ("bypassPermissions", ["plan"], True, "bypassPermissions"),
        ("bypassPermissions", ["plan", "plan"], True, "bypassPermissions"),
        ("bypassPermissions", ["plan"], False, ""),
        ("dontAsk", ["plan"], False, "dontAsk"),
        ("auto", ["plan"], False, ""),  # no model is known to have it
        ("acceptEdits", ["plan"], True, ""),  # another option leads there
        ("default", ["plan"], True, ""),
        ("plan", [], True, ""),
        ("bypassPermissions", [], True, ""),
        ("bypassPermissions", ["plan", "default", "plan"], True, ""),
        ("bypassPermissions", ["plan", "default"], True, ""),
    ],
)
async def test_mode_of_before_is_offered_where_allowed(
    begins: str, then: list[str], bypass: bool, offered: str
) -> None:
    made = Choices(replace(OPTIONS, permission_mode=begins, bypass=bypass), lambda _: None)
    await made.connected(Claude.of({}))
    for mode in then:
        made.follow(entered(mode))
    assert await made.former_mode() == offered


@pytest.mark.parametrize(
    ("begins", "before", "offered"),
    [
        ("bypassPermissions", "default", ""),
        ("default", "bypassPermissions", "bypassPermissions"),
        ("default", None, ""),  # of a daemon of before
    ],
)
async def test_mode_changed_while_worker_starts_is_known(
    begins: str, before: str | None, offered: str
) -> None:
    """It is told the last of several changes, with what was before."""
    made = Choices(replace(OPTIONS, permission_mode=begins, bypass=True), lambda _: None)
    await made.connected(Claude.of({}))
    made.choose(SetMode(epoch=1, mode="plan", before_plan=before))
    await made.settled()
    assert await made.former_mode() == offered


@pytest.mark.parametrize(
    ("settings", "offered"),
    [
        ({"permissions": {"disableBypassPermissionsMode": "disable"}}, ""),
        ({"permissions": {"allow": []}}, "bypassPermissions"),
        (None, ""),  # nobody knows
    ],
)
async def test_settings_that_forbid_bypass_are_heeded(settings: object, offered: str) -> None:
    options = replace(OPTIONS, permission_mode="plan", bypass=True, before_plan="bypassPermissions")
    made = Choices(options, lambda _: None)
    await made.connected(Claude.of(settings))
    assert await made.former_mode() == offered


async def test_next_worker_knows_mode_of_before() -> None:
    options = replace(OPTIONS, permission_mode="plan", before_plan="dontAsk")
    assert await Choices(options, lambda _: None).former_mode() == "dontAsk"


def test_way_back_follows_what_allows_less() -> None:
    asked = permissions.permission("s", PLAN)
    assert [(one.option_id, one.kind) for one in asked.options] == [
        ("allow_once", "allow_once"),
        ("allow_always", "allow_always"),
        ("allow_former", "allow_always"),
        ("reject_once", "reject_once"),
    ]
    assert asked.options[2].name == "Approve, and go back to the mode Bypass permissions"
    assert "(Bypass permissions)" in (effect(PLAN, decisions.ALLOW_FORMER) or "")


@pytest.mark.parametrize(
    ("decision", "former", "modes"),
    [
        ("allow_former", "bypassPermissions", ["default", "bypassPermissions"]),
        ("allow_former", "", ["default"]),
        ("allow_always", "bypassPermissions", ["acceptEdits"]),
        ("allow_once", "bypassPermissions", ["default"]),
    ],
)
def test_approval_turns_on_mode_of_before(decision: str, former: str, modes: list[str]) -> None:
    """`default` first: it holds if the CLI passes over the other."""
    answer = Answer(epoch=1, ask_id="q", decision=decision)  # type: ignore[arg-type]
    result = deciding.result(replace(PLAN, former=former), {}, answer, [])
    assert isinstance(result, PermissionResultAllow)
    assert [one.mode for one in result.updated_permissions or ()] == modes
