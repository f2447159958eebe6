"""What a client asks of Claude in `_meta`: read, or refused with its name."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest

from pykoclaw_acp.errors import InvalidParams
from pykoclaw_acp.model.session_options import SessionOptions, SystemPrompt
from pykoclaw_acp.protocol import own_meta, session_meta
from pykoclaw_acp.protocol.messages import NewSessionParams
from pykoclaw_acp.protocol.session_meta import MAX_SYSTEM_PROMPT, OWN_KEYS, SDK_KEYS

ID = "0b3a8e2e-6f0c-4c53-9d5a-111111111111"
PRESET = {"type": "preset", "preset": "claude_code"}


def sdk(**options: Any) -> dict[str, Any]:
    return {"claudeCode": {"options": options}}


def refused(meta: dict[str, Any], *, new: bool = True) -> str:
    with pytest.raises(InvalidParams) as error:
        session_meta.parse(meta, new=new)
    return str(error.value)


def test_what_acpx_sends_is_honoured() -> None:
    meta = {
        **sdk(model="opus", allowedTools=["Read", "Bash(git log *)"], maxTurns=3),
        "systemPrompt": {"append": "Be brief."},
    }
    requested = session_meta.parse(meta, new=True)
    assert requested.model == "opus"
    assert requested.options == SessionOptions(
        system_prompt=SystemPrompt("Be brief."),
        allowed_tools=("Read", "Bash(git log *)"),
        max_turns=3,
    )
    assert requested.given["model"] == "_meta.claudeCode.options.model"


@pytest.mark.parametrize("prefix", ["own", "sdk"])
def test_every_option_is_read_from_both_namespaces(prefix: str) -> None:
    values = {
        "sessionId": ID,
        "permissionMode": "plan",
        "model": "opus",
        "effort": "high",
        "systemPrompt": "Only this.",
        "tools": ["Read"],
        "allowedTools": ["Read"],
        "disallowedTools": ["Bash"],
        "settingSources": ["local", "project"],
        "maxTurns": 7,
        "env": {"TZ": "Europe/Berlin"},
    }
    assert values.keys() == SDK_KEYS.keys()
    own = {f"pykoclaw.dev/{key.replace('permissionMode', 'mode')}": values[key] for key in values}
    assert own.keys() | {"pykoclaw.dev/fast"} == OWN_KEYS.keys()
    given = {**own, "pykoclaw.dev/fast": True} if prefix == "own" else sdk(**values)
    requested = session_meta.parse(given, new=True)
    said = (requested.session_id, requested.mode, requested.model, requested.effort, requested.fast)
    assert said == (ID, "plan", "opus", "high", "on" if prefix == "own" else None)
    assert requested.options == SessionOptions(
        SystemPrompt("Only this.", True),
        ("Read",),
        ("Read",),
        ("Bash",),
        ("project", "local"),
        7,
        {"TZ": "Europe/Berlin"},
    )


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ("Only this.", SystemPrompt("Only this.", replaces=True)),
        ({"append": "And this."}, SystemPrompt("And this.")),
        ({**PRESET, "append": "And this."}, SystemPrompt("And this.")),
        (PRESET, None),
        ("", None),
    ],
)
def test_system_prompts_replace_or_append(given: Any, wanted: SystemPrompt | None) -> None:
    assert session_meta.parse({"systemPrompt": given}, new=True).options.system_prompt == wanted


def test_acps_own_parameter_is_read() -> None:
    blocks = [{"type": "text", "text": "Be brief."}, {"type": "text", "text": "Be kind."}]
    for mode, replaces in (("append", False), ("override", True)):
        requested = session_meta.parse(
            None, new=True, system_prompt={"mode": mode, "content": blocks}
        )
        assert requested.options.system_prompt == SystemPrompt("Be brief.\n\nBe kind.", replaces)
    for wrong in (
        {"mode": "_later", "content": blocks},
        {"content": blocks},
        {"mode": "append", "content": [{"type": "image", "data": "x"}]},
        {"mode": "append", "content": [{"type": "text", "text": 5}]},
        {"mode": "append", "content": "Be brief."},
    ):
        with pytest.raises(InvalidParams, match="systemPrompt"):
            session_meta.parse(None, new=True, system_prompt=wrong)
    other = {"systemPrompt": "Only this."}
    with pytest.raises(InvalidParams, match="something else"):
        session_meta.parse(other, new=True, system_prompt={"mode": "append", "content": blocks})


@pytest.mark.parametrize(
    ("meta", "named"),
    [
        (sdk(nonsense=1, model="opus"), "`nonsense`"),
        (sdk(hooks={}), "hooks"),
        (sdk(mcpServers={}), "mcpServers"),
        (sdk(resume=ID), "session/load"),
        (sdk(includePartialMessages=False), "includePartialMessages"),
        ({"claudeCode": {"outputStyle": "x"}}, "`outputStyle`"),
        ({"claudeCode": 5}, "claudeCode"),
        ({"claudeCode": {"options": []}}, "claudeCode.options"),
        ({"additionalRoots": ["/x"]}, "additionalDirectories"),
        ({"disableBuiltInTools": 1}, "disableBuiltInTools"),
        (sdk(env={"ANTHROPIC_API_KEY": "sk-ant-verysecret"}), "ANTHROPIC_API_KEY"),
        (sdk(env={"PATH": "/evil"}), "PATH"),
        (sdk(env={"HTTPS_PROXY": "http://u:verysecret@x"}), "HTTPS_PROXY"),
        (sdk(env={"LD_PRELOAD": "/evil.so"}), "LD_PRELOAD"),
        (sdk(env={"TZ": 1}), "TZ"),
        (sdk(env={"TZ": "a\0b"}), "TZ"),
        (sdk(env=[]), "env"),
        (sdk(sessionId="x"), "sessionId"),
        (sdk(sessionId=ID.upper().replace("1", "A")), "sessionId"),
        (sdk(sessionId=ID.replace("-", "")), "sessionId"),
        (sdk(sessionId=5), "sessionId"),
        (sdk(model=""), "model"),
        (sdk(maxTurns=0), "maxTurns"),
        (sdk(maxTurns=True), "maxTurns"),
        (sdk(maxTurns=1.5), "maxTurns"),
        (sdk(allowedTools="Read"), "allowedTools"),
        (sdk(allowedTools=[1]), "allowedTools"),
        (sdk(allowedTools=["--dangerously-skip-permissions"]), "allowedTools"),
        (sdk(disallowedTools=["a\nb"]), "disallowedTools"),
        (sdk(allowedTools=["x"] * 501), "allowedTools"),
        (sdk(agent="reviewer"), "claudeCode.options.agent`: is not honoured"),
        (sdk(settingSources=["managed"]), "settingSources"),
        (sdk(systemPrompt={"append": 5}), "systemPrompt"),
        (sdk(systemPrompt={"type": "file", "path": "/etc/shadow"}), "systemPrompt"),
        (sdk(systemPrompt={}), "systemPrompt"),
        ({"systemPrompt": "x" * (MAX_SYSTEM_PROMPT + 1)}, "systemPrompt"),
        ({"pykoclaw.dev/fast": "on"}, "pykoclaw.dev/fast"),
        ({"pykoclaw.dev/model": "opus", **sdk(model="haiku")}, "claudeCode.options.model"),
    ],
)
def test_what_cannot_be_honoured_is_refused_by_name(meta: dict[str, Any], named: str) -> None:
    words = refused(meta)
    assert named in words
    assert "verysecret" not in words


def test_default_options_and_foreign_keys_are_left_alone() -> None:
    anyway = sdk(includePartialMessages=True, promptSuggestions=False, resume=None, tools=PRESET)
    foreign = {"example.com/x": {"a": 1}, "traceparent": "00-1", "terminal-auth": True}
    requested = session_meta.parse({**anyway, **foreign}, new=True)
    assert requested.options == SessionOptions()


def test_an_id_is_for_new_sessions_only() -> None:
    assert session_meta.parse({"pykoclaw.dev/sessionId": ID}, new=True).session_id == ID
    assert "new session" in refused({"pykoclaw.dev/sessionId": str(uuid4())}, new=False)


def test_the_earlier_name_of_no_tools_is_known() -> None:
    assert session_meta.parse({"disableBuiltInTools": True}, new=True).options.tools == ()
    assert session_meta.parse({"disableBuiltInTools": False}, new=True).options.tools is None


def test_unknown_keys_of_ours_are_refused_everywhere() -> None:
    def params(**meta: Any) -> NewSessionParams:
        return NewSessionParams(cwd="/", mcp_servers=[], meta=meta or None)

    own_meta.check(params(), ())
    own_meta.check(params(**{"pykoclaw.dev/known": 1, "other.dev/x": 2}), {"pykoclaw.dev/known"})
    with pytest.raises(InvalidParams, match="dev/knwon"):
        own_meta.check(params(**{"pykoclaw.dev/knwon": 1}), {"pykoclaw.dev/known"})


def test_options_that_are_given_replace_earlier_ones() -> None:
    earlier = SessionOptions(SystemPrompt("x"), max_turns=3, env={"TZ": "UTC"})
    assert SessionOptions(max_turns=5).over(earlier) == SessionOptions(
        SystemPrompt("x"), max_turns=5, env={"TZ": "UTC"}
    )


def test_opencodes_keys_are_no_reason_to_refuse() -> None:
    meta = {"claudeCode": {"emitRawSDKMessages": [{"type": "system"}]}}
    nothing = session_meta.parse(None, new=True)
    assert session_meta.parse(meta, new=True) == nothing
    rules: dict[str, Any] = {"permissions": {"allow": [], "ask": [], "deny": []}}
    assert session_meta.parse(sdk(settings=rules, abortController={}), new=True) == nothing
    told = sdk(
        settings={"permissions": {"allow": ["Read"], "deny": ["Bash"]}}, allowedTools=["Grep"]
    )
    same = sdk(allowedTools=["Grep", "Read"], disallowedTools=["Bash"])
    assert session_meta.parse(told, new=True) == session_meta.parse(same, new=True)
    with pytest.raises(InvalidParams, match="settings"):
        session_meta.parse(sdk(settings={"permissions": {}, "hooks": {}}), new=True)
    for permissions in ({"deny": "Bash"}, {"ask": "Bash"}, {"additionalDirectories": ["/x"]}):
        with pytest.raises(InvalidParams, match=r"settings\.permissions"):
            session_meta.parse(sdk(settings={"permissions": permissions}), new=True)


def test_permissions_of_settings_may_forbid_a_mode() -> None:
    told = sdk(settings={"permissions": {"disableBypassPermissionsMode": "disable"}})
    assert session_meta.parse(told, new=True).options == SessionOptions(forbids_bypass=True)
    told = sdk(settings={"permissions": {"disableBypassPermissionsMode": True}})
    assert "disableBypassPermissionsMode" in refused(told)


def test_rules_that_ask_are_kept() -> None:
    told = sdk(settings={"permissions": {"allow": ["Bash"], "ask": ["Bash(git push:*)"]}})
    assert session_meta.parse(told, new=False).options == SessionOptions(
        allowed_tools=("Bash",), ask_tools=("Bash(git push:*)",)
    )
    long = [f"Bash({'é' * 900} {number})" for number in range(10)]
    assert "`_meta.claudeCode.options.settings.permissions.ask`: must be shorter" in refused(
        sdk(settings={"permissions": {"ask": long}})
    )


def test_default_mode_is_for_new_sessions_only() -> None:
    settings = {"permissions": {"defaultMode": "plan"}}
    at = "_meta.claudeCode.options.settings.permissions.defaultMode"
    requested = session_meta.parse(sdk(settings=settings), new=True)
    assert (requested.begins_in, requested.given) == ("plan", {"begins_in": at})
    named = session_meta.parse(sdk(settings=settings, permissionMode="acceptEdits"), new=True)
    assert (named.mode, named.begins_in) == ("acceptEdits", "plan")
    again = session_meta.parse(sdk(settings=settings), new=False)
    assert again == session_meta.parse(None, new=False)
    assert at in refused(sdk(settings={"permissions": {"defaultMode": 5}}), new=False)
