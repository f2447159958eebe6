"""What clients ask of Claude in `_meta` when they open a session: granted, kept, or refused."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, cast
from uuid import uuid4

import pytest
from msgspec.structs import replace

from pykoclaw_acp.channel.options import WorkerOptions
from pykoclaw_acp.model.choices import Config, Configuration, Model, Offer
from pykoclaw_acp.model.conversations import Conversation, id_of
from pykoclaw_acp.model.session_options import SessionOptions, SystemPrompt
from pykoclaw_acp.store import session_options
from pykoclaw_acp.store.database import Statement
from pykoclaw_acp.transcripts.ports import ImportStore
from pykoclaw_acp.transcripts.transcripts import ImportedTranscripts
from tests.integration.callers import caller
from tests.integration.programs import upsert_row
from tests.integration.rig import Rig, rig
from tests.integration.wires import Wire, client, prompt
from tests.workers import OPTIONS

OFFER = Offer(
    models=(
        Model("default", "Default", "", "claude-big", ("low", "max"), fast=True, auto=True),
        Model("haiku", "Haiku", "", "claude-small", ()),
    )
)
ASKED = {
    "claudeCode": {
        "options": {
            "allowedTools": ["Read"],
            "disallowedTools": ["WebFetch"],
            "maxTurns": 3,
            "settingSources": [],
            "env": {"TZ": "Europe/Berlin"},
        }
    },
    "systemPrompt": {"append": "Be brief."},
}
KEPT = SessionOptions(
    SystemPrompt("Be brief."), None, ("Read",), ("WebFetch",), (), 3, {"TZ": "Europe/Berlin"}
)


async def new(wire: Wire, **meta: Any) -> dict[str, Any]:
    return await wire.call("session/new", cwd="/", mcpServers=[], _meta=meta)


async def load(wire: Wire, session: str, **meta: Any) -> dict[str, Any]:
    return await wire.call("session/load", sessionId=session, cwd="/", mcpServers=[], _meta=meta)


async def launched(r: Rig, wire: Wire, session: str) -> WorkerOptions:
    """The options of the worker that a prompt of the session starts."""
    answer = await wire.call("session/prompt", **prompt(session, "say 1"))
    assert "result" in answer
    return r.launcher.launched[-1].spec.options


def words(answer: dict[str, Any]) -> str:
    """Of a refusal."""
    assert answer["error"]["code"] == -32602, answer
    return str(answer["error"]["message"])


def values(answer: dict[str, Any]) -> dict[str, str]:
    return {one["id"]: one["currentValue"] for one in answer["result"]["configOptions"]}


async def test_options_reach_every_worker_also_after_a_restart(tmp_path: Path) -> None:
    async with rig(tmp_path) as r, client(r) as wire:
        session = (await new(wire, **ASKED))["result"]["sessionId"]
        options = await launched(r, wire, session)
        assert options.asked == KEPT
        assert options.setting_sources == ()
    async with rig(tmp_path) as r, client(r) as wire:
        await load(wire, session)
        options = await launched(r, wire, session)
        assert (options.asked, options.setting_sources) == (KEPT, ())
        assert await r.database.read("SELECT COUNT(*) FROM acp_session_options") == [(1,)]
        await wire.call("session/delete", sessionId=session)
        assert await r.database.read("SELECT COUNT(*) FROM acp_session_options") == [(0,)]


async def test_a_session_without_wishes_has_no_row(tmp_path: Path) -> None:
    async with rig(tmp_path) as r, client(r) as wire:
        await new(wire, **{"example.com/other": {"a": 1}})
        assert await r.database.read("SELECT COUNT(*) FROM acp_session_options") == [(0,)]


async def test_acps_own_system_prompt_reaches_the_worker(tmp_path: Path) -> None:
    async with rig(tmp_path) as r, client(r) as wire:
        only = {"mode": "override", "content": [{"type": "text", "text": "Be a pelican."}]}
        made = await wire.call("session/new", cwd="/", mcpServers=[], systemPrompt=only)
        options = await launched(r, wire, made["result"]["sessionId"])
        assert options.asked.system_prompt == SystemPrompt("Be a pelican.", replaces=True)
        wrong = {"mode": "append", "content": [{"type": "audio", "data": "", "mimeType": "x"}]}
        refused = await wire.call("session/new", cwd="/", mcpServers=[], systemPrompt=wrong)
        assert "systemPrompt.content" in words(refused)


async def test_mode_model_and_effort_of_a_new_session(tmp_path: Path) -> None:
    async with rig(tmp_path) as r, client(r) as wire:
        await r.journal.keep_offer("/", OFFER, Configuration())
        wanted = {"permissionMode": "plan", "model": "claude-big", "effort": "max"}
        made = await new(wire, claudeCode={"options": wanted}, **{"pykoclaw.dev/fast": True})
        assert values(made) == {"mode": "plan", "model": "default", "effort": "max", "fast": "on"}
        session = made["result"]["sessionId"]
        options = await launched(r, wire, session)
        assert (options.permission_mode, options.config) == ("plan", Config("max", True))
    async with rig(tmp_path) as r, client(r) as wire:
        assert values(await load(wire, session)) == values(made)


async def test_option_claude_lacks_is_refused_without_session(tmp_path: Path) -> None:
    async with rig(tmp_path) as r, client(r) as wire:
        await r.journal.keep_offer("/", OFFER, Configuration())
        for wanted, named in (
            ({"permissionMode": "bypassPermissions"}, "acceptEdits"),
            ({"effort": "xhigh"}, "max"),
            ({"model": "haiku", "effort": "low"}, "effort"),
            ({"model": "haiku", "permissionMode": "auto"}, "permissionMode"),
            ({"settingSources": ["project"]}, "PYKOCLAW_SETTING_SOURCES"),
            ({"colour": "red"}, "`colour`"),
        ):
            assert named in words(await new(wire, claudeCode={"options": wanted}))
        assert "`pykoclaw.dev/colour`" in words(await new(wire, **{"pykoclaw.dev/colour": 1}))
        assert await r.database.read("SELECT COUNT(*) FROM acp_sessions") == [(0,)]


FORBIDS = {
    "claudeCode": {
        "options": {"settings": {"permissions": {"disableBypassPermissionsMode": "disable"}}}
    }
}
BYPASSING = replace(OPTIONS, permission_mode="bypassPermissions", bypass=True)


async def test_client_that_forbids_bypass_gets_none(tmp_path: Path) -> None:
    async with rig(tmp_path, options=BYPASSING) as r, client(r) as wire:
        made = await new(wire, **FORBIDS)
        assert values(made)["mode"] == "default"
        session = made["result"]["sessionId"]
        options = await launched(r, wire, session)
        assert (options.permission_mode, options.bypass) == ("default", False)
        bypass = {"pykoclaw.dev/mode": "bypassPermissions"}
        words(await new(wire, **FORBIDS, **bypass))
        words(await load(wire, session, **bypass))
        wanted = {"sessionId": session, "modeId": "bypassPermissions"}
        words(await wire.call("session/set_mode", **wanted))
    async with rig(tmp_path, options=BYPASSING) as r, client(r) as wire:
        assert values(await load(wire, session))["mode"] == "default"


async def test_load_that_forbids_bypass_ends_it(tmp_path: Path) -> None:
    async with rig(tmp_path, options=BYPASSING) as r, client(r) as wire:
        made = await new(wire)
        session = made["result"]["sessionId"]
        assert values(made)["mode"] == "bypassPermissions"
        assert values(await load(wire, session, **FORBIDS))["mode"] == "default"
        options = await launched(r, wire, session)
        assert (options.permission_mode, options.bypass) == ("default", False)


async def test_fork_may_forbid_bypass_by_itself(tmp_path: Path) -> None:
    async with rig(tmp_path, options=BYPASSING) as r, client(r) as wire:
        source = (await new(wire))["result"]["sessionId"]
        made = await wire.call("session/fork", sessionId=source, cwd="/", _meta=FORBIDS)
        assert values(made)["mode"] == "default"
        options = await launched(r, wire, made["result"]["sessionId"])
        assert (options.permission_mode, options.bypass) == ("default", False)
        assert (await launched(r, wire, source)).permission_mode == "bypassPermissions"


async def test_fork_may_ask_about_more(tmp_path: Path) -> None:
    asks = {"settings": {"permissions": {"allow": [], "ask": ["Bash(git push *)"]}}}
    async with rig(tmp_path) as r, client(r) as wire:
        source = (await new(wire))["result"]["sessionId"]
        meta = {"claudeCode": {"options": asks}}
        made = await wire.call("session/fork", sessionId=source, cwd="/", _meta=meta)
        options = await launched(r, wire, made["result"]["sessionId"])
        assert list(options.asked.ask_tools or ()) == ["Bash(git push *)"]
        assert not (await launched(r, wire, source)).asked.ask_tools


@pytest.mark.parametrize(
    ("wished", "forbids", "mode"),
    [
        ("plan", {}, "plan"),
        ("bypassPermissions", {}, "bypassPermissions"),
        ("bypassPermissions", {"disableBypassPermissionsMode": "disable"}, "default"),
        ("nowhere", {}, "default"),
    ],
)
async def test_default_mode_of_settings_refuses_no_session(
    tmp_path: Path, wished: str, forbids: dict[str, str], mode: str
) -> None:
    permissions = {"defaultMode": wished, **forbids}
    async with rig(tmp_path, options=BYPASSING) as r, client(r) as wire:
        made = await new(wire, claudeCode={"options": {"settings": {"permissions": permissions}}})
        assert values(made)["mode"] == mode
        assert (await launched(r, wire, made["result"]["sessionId"])).permission_mode == mode


async def test_forbidden_mode_of_settings_is_not_shown(tmp_path: Path) -> None:
    async with (
        rig(tmp_path, options=BYPASSING) as r,
        client(r) as wire,
        caller(r, tmp_path) as cli,
    ):
        for meta, mode in (({}, "bypassPermissions"), (FORBIDS, "default")):
            session = (await new(wire, **meta))["result"]["sessionId"]
            assert (await cli.call("sessions/show", session=session))["mode"] == mode


async def test_any_model_goes_before_claude_names_some(tmp_path: Path) -> None:
    async with rig(tmp_path) as r, client(r) as wire:
        made = await new(wire, **{"pykoclaw.dev/model": "claude-fable-5-2"})
        assert values(made)["model"] == "claude-fable-5-2"
        assert (await launched(r, wire, made["result"]["sessionId"])).model == "claude-fable-5-2"


async def test_model_that_claude_does_not_list_opens(tmp_path: Path) -> None:
    """Claude knows more models than it lists; whether it knows this one is seen when it starts."""
    wanted = {"claudeCode": {"options": {"model": "claude-opus-4-5", "effort": "max"}}}
    async with rig(tmp_path) as r, client(r) as wire:
        await r.journal.keep_offer("/", OFFER, Configuration())
        made = await new(wire, **wanted)
        assert (values(made)["model"], values(made)["effort"]) == ("claude-opus-4-5", "max")
        options = await launched(r, wire, made["result"]["sessionId"])
        assert (options.model, options.asked.unchecked_model) == ("claude-opus-4-5",) * 2
        session = (await new(wire))["result"]["sessionId"]
        for _ in range(2):  # a client may ask for the same each time
            loaded = await load(wire, session, **{"pykoclaw.dev/model": "claude-opus-4-5"})
            assert values(loaded)["model"] == "claude-opus-4-5"
        options = await launched(r, wire, session)
        assert (options.model, options.asked.unchecked_model) == ("claude-opus-4-5",) * 2


async def test_claudes_own_name_chooses_an_offered_model(tmp_path: Path) -> None:
    async with rig(tmp_path) as r, client(r) as wire:
        await r.journal.keep_offer("/", OFFER, Configuration())
        session = (await new(wire))["result"]["sessionId"]
        wanted = {"configId": "model", "value": "claude-small"}
        made = await wire.call("session/set_config_option", sessionId=session, **wanted)
        assert values(made)["model"] == "haiku"
        wanted["value"] = "claude-opus-4-5"
        refused = await wire.call("session/set_config_option", sessionId=session, **wanted)
        assert "must be one of default, haiku" in words(refused)


async def test_model_of_the_settings_needs_no_check(tmp_path: Path) -> None:
    """Only a gateway may know it; asked for by its name, it stays."""
    asked = {"pykoclaw.dev/model": "gateway-1"}
    async with rig(tmp_path, options=replace(OPTIONS, model="gateway-1")) as r, client(r) as wire:
        await r.journal.keep_offer("/", OFFER, Configuration())
        session = (await new(wire, **asked))["result"]["sessionId"]
        assert (await launched(r, wire, session)).asked.unchecked_model is None
        await load(wire, session, **asked)
        options = await launched(r, wire, session)
        assert (options.model, options.asked.unchecked_model) == ("gateway-1", None)


async def test_known_choices_go_before_claude_offers(tmp_path: Path) -> None:
    async with rig(tmp_path) as r, client(r) as wire:
        wanted = {"permissionMode": "auto", "effort": "max"}
        made = await new(wire, claudeCode={"options": wanted}, **{"pykoclaw.dev/fast": True})
        assert values(made) == {"mode": "auto", "model": "default", "effort": "max", "fast": "on"}
        options = await launched(r, wire, made["result"]["sessionId"])
        assert (options.permission_mode, options.config) == ("auto", Config("max", True))
        refused = await new(wire, claudeCode={"options": {"effort": "enormous"}})
        assert "xhigh, max" in words(refused)


async def test_an_id_is_chosen_once(tmp_path: Path) -> None:
    wanted = str(uuid4())
    async with rig(tmp_path) as r, client(r) as wire:
        made = await new(wire, **{"pykoclaw.dev/sessionId": wanted})
        assert made["result"]["sessionId"] == wanted
        assert r.launcher.launched == []
        await launched(r, wire, wanted)
        assert r.launcher.launched[-1].spec.session_id == wanted
    async with rig(tmp_path) as r, client(r) as wire:
        key = {"pykoclaw.dev/sessionId": wanted}
        assert "session/load" in words(await new(wire, **key))
        await wire.call("session/delete", sessionId=wanted)
        assert "session/load" in words(await new(wire, **key)), "an id is never used again"
        assert "new session" in words(await load(wire, str(uuid4()), **key))


async def test_an_id_chosen_twice_at_once_is_taken(tmp_path: Path) -> None:
    key = {"pykoclaw.dev/sessionId": str(uuid4())}
    async with rig(tmp_path) as r, client(r) as wire, client(r) as other:
        made = await asyncio.gather(*(new(one, **key) for one in (wire, other)))
        (refused,) = [one["error"] for one in made if "error" in one]
        assert refused["code"] == -32602
        assert "session/load" in refused["message"]


async def test_an_id_that_stands_for_names_is_refused(tmp_path: Path) -> None:
    """Whether there is a conversation of the name, or will be."""
    async with rig(tmp_path) as r, client(r) as wire:
        refused = await new(wire, **{"pykoclaw.dev/sessionId": id_of("wa-bob")})
        assert refused["error"]["code"] == -32602
        assert "conversations of other programs" in words(refused)
        begun = await r.sessions.of_name("wa-bob", create=True)
        assert begun is not None
        assert begun.id == id_of("wa-bob")


async def test_an_id_of_a_claude_session_is_taken(tmp_path: Path) -> None:
    known, begun = str(uuid4()), str(uuid4())
    folder = tmp_path / "projects/-work"
    folder.mkdir(parents=True)
    (folder / f"{begun}.jsonl").write_text("{}\n")
    store = cast("ImportStore", None)  # to know what there is, only files are looked at
    transcripts = ImportedTranscripts(store, str(tmp_path / "projects"))
    async with rig(tmp_path, transcripts) as r, client(r) as wire:
        await upsert_row(r.database, Conversation("wa-x", known, None, None))
        for taken in (known, begun):
            assert "another" in words(await new(wire, **{"pykoclaw.dev/sessionId": taken}))


async def test_options_change_when_a_session_is_opened_again(tmp_path: Path) -> None:
    async with rig(tmp_path) as r, client(r) as wire:
        await r.journal.keep_offer("/", OFFER, Configuration())
        session = (await new(wire, **ASKED))["result"]["sessionId"]
        other = {"systemPrompt": {"append": "Be long."}}
        await load(wire, session, **other)  # nothing was said yet
        assert (await launched(r, wire, session)).asked.system_prompt == SystemPrompt("Be long.")
        assert "begun" in words(await load(wire, session, **ASKED))
        wanted = {"model": "haiku", "maxTurns": 9}
        loaded = await load(wire, session, claudeCode={"options": wanted}, **other)
        assert values(loaded) == {"mode": "default", "model": "haiku"}
        options = await launched(r, wire, session)
        assert (options.model, options.asked.max_turns) == ("haiku", 9)
        assert options.asked.disallowed_tools == ("WebFetch",), "what is not given stays"
        assert len(r.launcher.launched) == 2, "the idle worker had other options"
    async with rig(tmp_path) as r, client(r) as wire:
        await load(wire, session)
        assert (await launched(r, wire, session)).asked.max_turns == 9


async def test_refused_load_changes_none_of_its_choices(tmp_path: Path) -> None:
    async with rig(tmp_path) as r, client(r) as wire:
        await r.journal.keep_offer("/", OFFER, Configuration())
        session = (await new(wire))["result"]["sessionId"]
        before = values(await load(wire, session))
        wanted = {"model": "haiku", "permissionMode": "plan", "effort": "low"}
        words(await load(wire, session, claudeCode={"options": wanted}))  # haiku has no effort
        assert values(await load(wire, session)) == before
        both = {"permissionMode": "plan", "model": "claude-big", "effort": "max"}
        found = values(await load(wire, session, claudeCode={"options": both}))
        assert (found["mode"], found["effort"]) == ("plan", "max")


async def test_load_that_cannot_be_recorded_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with rig(tmp_path) as r, client(r) as wire:
        await r.journal.keep_offer("/", OFFER, Configuration())
        session = (await new(wire))["result"]["sessionId"]
        before = values(await load(wire, session))
        wanted = {"permissionMode": "plan", "maxTurns": 9}
        with monkeypatch.context() as patch:
            broken = Statement("UPDATE acp_sessions SET mode = mode WHERE 0", rows=1)
            patch.setattr(session_options, "keep", lambda *_: broken)
            answer = await load(wire, session, claudeCode={"options": wanted})
            assert "error" in answer
        assert values(await load(wire, session)) == before
        assert (await launched(r, wire, session)).asked.max_turns is None


@pytest.mark.parametrize("method", ["session/prompt", "session/close", "session/set_mode"])
async def test_every_method_refuses_unknown_keys_of_ours(tmp_path: Path, method: str) -> None:
    async with rig(tmp_path) as r, client(r) as wire:
        session = (await new(wire))["result"]["sessionId"]
        params = {**prompt(session, "say 1"), "modeId": "plan", "_meta": {"pykoclaw.dev/stear": 1}}
        assert "`pykoclaw.dev/stear`" in words(await wire.call(method, **params))
        params["_meta"] = {"example.com/stear": 1, "traceparent": "00-0"}
        assert "result" in await wire.call(method, **params)
