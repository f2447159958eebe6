"""What a client sees around the conversation: modes, models, commands, titles; and sessions that
nobody uses.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock

import pytest

from pykoclaw_acp.channel.choosing import SetConfig, SetMode, SetModel
from pykoclaw_acp.channel.frames import (
    PROTOCOL,
    EventFrame,
    Offered,
    Prompt,
    Ready,
    ToWorker,
)
from pykoclaw_acp.errors import StoreUnavailable
from pykoclaw_acp.model import choices
from pykoclaw_acp.model.choices import Command, Config, Configuration, Model, Offer
from pykoclaw_acp.model.condition import DatabaseState
from pykoclaw_acp.model.events import ConfigChanged, ModeChanged
from pykoclaw_acp.model.turns import Turn
from pykoclaw_acp.sessions import opening
from pykoclaw_acp.sessions.retention import Pruner
from pykoclaw_acp.sessions.session import Session
from pykoclaw_acp.store import deletion
from pykoclaw_acp.store.database import Database
from pykoclaw_acp.store.session_journal import SessionJournal
from tests.databases import on_writer
from tests.integration.memory_launcher import MemoryChannel
from tests.integration.rig import LISTS, Rig, rig
from tests.integration.surface import hidden
from tests.integration.wires import Wire, client, hanging, load, new, prompt
from tests.waiting import eventually
from tests.workers import OPTIONS

OFFER = Offer(
    (Command("review", "Review the diff", "[path]"),),
    (Model("default", "Default"), Model("fable", "Fable")),
)
TITLE = '\nConsider this initial message in a conversation with an LLM: "hi"\n'


def kinds(wire: Wire, *wanted: str) -> list[dict[str, Any]]:
    return [update for update in wire.updates() if update["sessionUpdate"] in wanted]


def received(channel: MemoryChannel) -> list[ToWorker]:
    """Every frame that this worker gets from now on."""
    frames: list[ToWorker] = []
    send = channel.send

    async def listening(frame: ToWorker) -> None:
        frames.append(frame)
        await send(frame)

    channel.send = listening  # type: ignore[method-assign]
    return frames


def current(answer: dict[str, Any]) -> tuple[str, str]:
    """Mode and model, which every field of the answer must agree on."""
    result = answer["result"]
    mode, model = result["modes"]["currentModeId"], result["models"]["currentModelId"]
    options = {one["id"]: one for one in result["configOptions"]}
    assert [options["mode"]["currentValue"], options["model"]["currentValue"]] == [mode, model]
    assert [one["id"] for one in result["modes"]["availableModes"]] == [
        o["value"] for o in options["mode"]["options"]
    ]
    models = [one["modelId"] for one in result["models"]["availableModels"]]
    assert models == [one["value"] for one in options["model"]["options"]]
    assert mode in [one["value"] for one in options["mode"]["options"]]
    assert model in models
    return mode, model


async def slow_worker(r: Rig, wire: Wire, session: str) -> tuple[int, MemoryChannel]:
    """A prompt whose worker was launched and is not ready yet."""
    r.launcher.slow = True
    running = wire.begin("session/prompt", **prompt(session, "say 1"))
    before = len(r.launcher.launched)
    await eventually(lambda: len(r.launcher.launched) > before)
    return running, r.launcher.launched[-1]


def say_ready(channel: MemoryChannel, offer: Offer) -> None:
    session = channel.spec.session_id
    channel.say(
        Ready(
            epoch=channel.spec.epoch,
            pid=1,
            protocol=PROTOCOL,
            claude_session_id=session,
            fresh=True,
            offer=offer,
        )
    )


# --- modes and models


async def test_choice_is_shown_to_all_and_survives_restart(tmp_path: Path) -> None:
    async with rig(tmp_path) as r, client(r) as wire, client(r) as other:
        created = await wire.call("session/new", cwd="/", mcpServers=[])
        assert current(created) == ("default", "default")
        session = created["result"]["sessionId"]
        await load(other, session)
        assert (await wire.call("session/set_mode", sessionId=session, modeId="plan"))[
            "result"
        ] == {}
        assert (await wire.call("session/set_model", sessionId=session, modelId="haiku"))[
            "result"
        ] == {}
        await eventually(
            lambda: all(len(kinds(one, "config_option_update")) == 2 for one in (wire, other))
        )
        for one in (wire, other):
            assert [update["currentModeId"] for update in kinds(one, "current_mode_update")] == [
                "plan"
            ]
            last = {
                option["id"]: option["currentValue"]
                for option in kinds(one, "config_option_update")[-1]["configOptions"]
            }
            assert last == {"mode": "plan", "model": "haiku", "effort": "default"}
        assert current(await load(other, session)) == ("plan", "haiku")
    async with rig(tmp_path) as r, client(r) as wire:
        assert current(await load(wire, session)) == ("plan", "haiku")
        await wire.call("session/prompt", **prompt(session, "say 1"))
        assert (
            r.launcher.launched[0].spec.options.permission_mode,
            r.launcher.launched[0].spec.options.model,
        ) == (
            "plan",
            "haiku",
        )


async def test_unoffered_choice_is_refused_listing_offers(tmp_path: Path) -> None:
    async with rig(tmp_path) as r, client(r) as wire:
        session = await new(wire)
        calls: list[tuple[str, dict[str, Any], str]] = [
            ("set_mode", {"modeId": "bypassPermissions"}, "acceptEdits"),
            ("set_model", {"modelId": "gpt"}, "sonnet"),
            ("set_config_option", {"configId": "mode", "value": "x"}, "plan"),
            ("set_config_option", {"configId": "colour", "value": "x"}, "model"),
            (
                "set_config_option",
                {"configId": "mode", "type": "boolean", "value": True},
                "`value`",
            ),
            ("set_config_option", {"configId": "effrt", "value": False}, "`configId`: must be one"),
        ]
        for method, params, hint in calls:
            refused = await wire.call(f"session/{method}", sessionId=session, **params)
            assert refused["error"]["code"] == -32602
            assert hint in refused["error"]["message"]
            said = "Claude has not said yet" in refused["error"]["message"]
            assert said == (params.get("type") is None), "no worker has started yet"
        assert wire.updates() == []
        unknown = await wire.call("session/set_mode", sessionId="x", modeId="plan")
        assert unknown["error"]["code"] == -32002


async def test_unknown_choice_waits_for_first_offer_of_claude(tmp_path: Path) -> None:
    async with rig(tmp_path) as r, client(r) as wire:
        session = await new(wire)
        running, channel = await slow_worker(r, wire, session)
        calls = [
            wire.begin(f"session/{method}", sessionId=session, **params)
            for method, params in (
                ("set_model", {"modelId": "fable"}),
                ("set_config_option", {"configId": "model", "value": "gpt"}),
                ("set_config_option", {"configId": "colour", "value": "x"}),
            )
        ]
        await wire.call("session/list")
        assert not {one.get("id") for one in wire.lines} & set(calls)
        say_ready(channel, OFFER)
        assert "result" in await wire.answer(calls[0])
        for one in calls[1:]:
            refused = (await wire.answer(one))["error"]
            assert refused["code"] == -32602
            assert "not said yet" not in refused["message"]
        await wire.answer(running)
        assert current(await load(wire, session))[1] == "fable"


async def test_choice_does_not_wait_for_offer_that_came(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another program locks the database as the worker says what Claude offers."""
    async with rig(tmp_path) as r, client(r) as wire:
        session = await new(wire)
        running, channel = await slow_worker(r, wire, session)
        call = wire.begin("session/set_model", sessionId=session, modelId="fable")
        await wire.call("session/list")
        offer = r.journal.offer

        async def locked(*_: object) -> Offer | None:
            monkeypatch.setattr(r.journal, "offer", offer)
            raise StoreUnavailable(DatabaseState.LOCKED, "locked")

        monkeypatch.setattr(r.journal, "offer", locked)
        say_ready(channel, OFFER)
        assert "result" in await wire.answer(call)
        await wire.answer(running)


async def test_config_option_is_answered_with_all_options(tmp_path: Path) -> None:
    async with rig(tmp_path) as r, client(r) as wire:
        session = await new(wire)
        for option, value in (("mode", "acceptEdits"), ("model", "opus")):
            answer = await wire.call(
                "session/set_config_option", sessionId=session, configId=option, value=value
            )
        values = {one["id"]: one["currentValue"] for one in answer["result"]["configOptions"]}
        assert values == {"mode": "acceptEdits", "model": "opus", "effort": "default"}
        assert current(await load(wire, session)) == ("acceptEdits", "opus")


async def test_mode_of_running_turn_changes_at_once(tmp_path: Path) -> None:
    async with rig(tmp_path) as r, client(r) as wire:
        session, running, channel, turn = await hanging(r, wire)
        frames = received(channel)
        await wire.call("session/set_mode", sessionId=session, modeId="acceptEdits")
        await wire.call("session/set_model", sessionId=session, modelId="sonnet")
        await wire.call("session/set_model", sessionId=session, modelId="sonnet")
        assert frames == [SetMode(epoch=1, mode="acceptEdits"), SetModel(epoch=1, model="sonnet")]
        channel.say(channel.ended(turn))
        await wire.answer(running)
        assert await r.states() == {turn: "done"}


async def test_choice_during_worker_start_reaches_it_before_prompt(tmp_path: Path) -> None:
    async with rig(tmp_path) as r, client(r) as wire:
        session = await new(wire)
        running, channel = await slow_worker(r, wire, session)
        frames = received(channel)
        await wire.call("session/set_mode", sessionId=session, modeId="plan")
        channel.ready()
        await wire.answer(running)
        kinds_sent = [type(frame) for frame in frames if isinstance(frame, SetMode | Prompt)]
        assert kinds_sent in ([SetMode, Prompt], [SetMode, SetMode, Prompt])


async def test_mode_changed_by_claude_is_reported_and_kept(tmp_path: Path) -> None:
    async with rig(tmp_path) as r, client(r) as wire:
        session, running, channel, _ = await hanging(r, wire)
        chosen = choices.selection(choices.Chosen("plan", "fable"), OFFER, bypass=False)
        for event in (ModeChanged("plan"), ConfigChanged(chosen)):
            channel.last += 1
            channel.say(EventFrame(epoch=1, n=channel.last, turn_id=None, event=event))
        channel.kill()
        failed = await wire.answer(running)
        assert failed["error"]["data"]["turnState"] == "unknown", (
            "a change of mode is no part of an answer"
        )
        assert [update["currentModeId"] for update in kinds(wire, "current_mode_update")] == [
            "plan"
        ]
    async with rig(tmp_path) as r, client(r) as wire:
        assert current(await load(wire, session)) == ("plan", "fable")


ABLE = Offer(
    OFFER.commands,
    (
        Model("default", "Default", "", "claude-big", ("low", "max"), fast=True, auto=True),
        Model("haiku", "Haiku", "", "claude-small", ()),
    ),
)


def options(listed: dict[str, Any]) -> dict[str, str]:
    """Values of all config options of an answer or an update."""
    return {one["id"]: one["currentValue"] for one in listed["configOptions"]}


async def set_option(wire: Wire, session: str, option: str, value: object) -> dict[str, Any]:
    return await wire.call(
        "session/set_config_option", sessionId=session, configId=option, value=value
    )


async def test_model_options_reach_all_and_survive_restart(tmp_path: Path) -> None:
    async with rig(tmp_path) as r, client(r) as wire, client(r) as other:
        session, running, channel, turn = await hanging(r, wire)
        await load(other, session)
        await r.journal.keep_offer("/", ABLE, Configuration())
        frames = received(channel)
        assert options((await set_option(wire, session, "effort", "max"))["result"]) == {
            "mode": "default", "model": "default", "effort": "max", "fast": "off",
        }  # fmt: skip
        await set_option(wire, session, "fast", True)
        assert frames == [
            SetConfig(epoch=1, config=Config("max")),
            SetConfig(epoch=1, config=Config("max", True)),
        ], "also while a turn runs"
        await eventually(lambda: len(kinds(other, "config_option_update")) == 2)
        told = options(kinds(other, "config_option_update")[-1])
        assert (told["effort"], told["fast"]) == ("max", "on")
        channel.say(channel.ended(turn))
        await wire.answer(running)
    async with rig(tmp_path) as r, client(r) as wire:
        loaded = options((await load(wire, session))["result"])
        assert (loaded["effort"], loaded["fast"]) == ("max", "on")
        await wire.call("session/prompt", **prompt(session, "say 1"))
        assert r.launcher.launched[0].spec.options.config == Config("max", True)


async def test_another_model_resets_what_it_lacks(tmp_path: Path) -> None:
    async with rig(tmp_path) as r, client(r) as wire:
        session = await new(wire)
        await r.journal.keep_offer("/", ABLE, Configuration())
        await set_option(wire, session, "mode", "auto")
        await set_option(wire, session, "effort", "max")
        answer = await set_option(wire, session, "model", "haiku")
        assert options(answer["result"]) == {"mode": "default", "model": "haiku"}
        assert [one["currentModeId"] for one in kinds(wire, "current_mode_update")] == [
            "auto",
            "default",
        ]
        for option, value in (("effort", "low"), ("fast", "on"), ("mode", "auto")):
            refused = (await set_option(wire, session, option, value))["error"]
            assert refused["code"] == -32602
            assert "must be one of" in refused["message"]


async def test_clients_are_told_first_workers_options(tmp_path: Path) -> None:
    async with rig(tmp_path) as r, client(r) as wire:
        session = await new(wire)
        running, channel = await slow_worker(r, wire, session)
        say_ready(channel, ABLE)
        await eventually(lambda: len(kinds(wire, "config_option_update")) == 1)
        assert set(options(kinds(wire, "config_option_update")[0])) == {
            "mode", "model", "effort", "fast",
        }  # fmt: skip
        await wire.answer(running)


async def test_own_worker_counts_before_others_in_directory(tmp_path: Path) -> None:
    async with rig(tmp_path) as r, client(r) as wire:
        session = await new(wire)
        running, channel = await slow_worker(r, wire, session)
        say_ready(channel, ABLE)
        await wire.answer(running)
        await eventually(lambda: len(kinds(wire, "config_option_update")) == 1)
        other = Offer((), (Model("default", "Default", "", "claude-old", ()),))
        await r.journal.keep_offer("/", other, Configuration(setting_sources=("user",)))
        answer = await set_option(wire, session, "effort", "max")
        assert options(answer["result"])["effort"] == "max"
        r.sessions.workers.retire(session)
        await eventually(lambda: not r.sessions.workers.is_live(session))
        refused = await set_option(wire, session, "effort", "low")
        assert refused["error"]["code"] == -32602, "what was said last counts without a worker"


async def test_client_and_setting_decide_on_legacy_models(
    tmp_path: Path,
) -> None:
    async with rig(tmp_path) as r, client(r) as wire:
        session = await new(wire)
        zed = {"name": "zed", "version": "1"}
        for setting, info, gets in (
            (None, None, True),
            (None, zed, False),
            (True, zed, True),
            (False, None, False),
        ):
            r.sessions.showing.legacy_models = setting
            told = {} if info is None else {"clientInfo": info}
            await wire.call("initialize", protocolVersion=1, **told)
            assert ("models" in (await load(wire, session))["result"]) == gets
            answer = await wire.call("session/set_model", sessionId=session, modelId="haiku")
            assert ("result" in answer) == gets
            if not gets:
                assert answer["error"]["code"] == -32601
                assert "session/set_config_option" in answer["error"]["message"]


# --- commands and models from Claude


def commands(wire: Wire) -> list[list[str]]:
    return [
        [one["name"] for one in u["availableCommands"]]
        for u in kinds(wire, "available_commands_update")
    ]


async def offered(wire: Wire, count: int) -> None:
    await eventually(lambda: len(commands(wire)) == count)


async def test_commands_follow_answer_once_first_worker_knows_them(tmp_path: Path) -> None:
    async with rig(tmp_path) as r, client(r) as wire:
        session = await new(wire)
        running, channel = await slow_worker(r, wire, session)
        assert commands(wire) == []
        say_ready(channel, OFFER)
        await eventually(lambda: commands(wire) == [["review"]])
        await wire.answer(running)
        shown = kinds(wire, "available_commands_update")[0]
        assert shown["availableCommands"][0]["input"] == {"hint": "[path]"}
        assert "_meta" not in shown
    async with rig(tmp_path) as r, client(r) as wire:
        there = {"sessionId": session, "cwd": "/", "mcpServers": []}
        calls = {"new": {"cwd": "/", "mcpServers": []}, "resume": there, "load": there}
        for count, (method, params) in enumerate(calls.items(), 1):
            answer = await wire.call(f"session/{method}", **params)
            assert "fable" in [
                one["modelId"] for one in answer["result"]["models"]["availableModels"]
            ]
            await offered(wire, count)
            last = max(
                at for at, line in enumerate(wire.lines) if "available_commands_update" in str(line)
            )
            assert last > wire.lines.index(answer)
        elsewhere = await wire.call("session/new", cwd="/usr", mcpServers=[])
        assert "fable" in [
            one["modelId"] for one in elsewhere["result"]["models"]["availableModels"]
        ]
        await offered(wire, 4)
        running, channel = await slow_worker(r, wire, session)
        say_ready(channel, OFFER)
        await wire.answer(running)
        assert len(commands(wire)) == 4, "they were told again, and had not changed"


def newest_commands(wire: Wire, session: str) -> list[str] | None:
    told = [
        line["params"]["update"]["availableCommands"]
        for line in wire.lines
        if line.get("params", {}).get("sessionId") == session
        and line["params"].get("update", {}).get("sessionUpdate") == "available_commands_update"
    ]
    return [one["name"] for one in told[-1]] if told else None


async def test_commands_that_change_are_told_to_their_sessions(tmp_path: Path) -> None:
    """Prompts of MCP servers, which connect with the first prompt, are the session's own."""
    more = (*OFFER.commands, Command("mcp__s__greet", "Greet"), Command("late", "Late"))
    there = {"cwd": "/", "mcpServers": []}
    async with rig(tmp_path) as r, client(r) as wire:
        session = await new(wire)
        running, channel = await slow_worker(r, wire, session)
        say_ready(channel, OFFER)
        await eventually(lambda: newest_commands(wire, session) == ["review"])
        channel.say(Offered(epoch=1, offer=Offer(more, OFFER.models)))
        everything = ["review", "late", "mcp__s__greet"]
        await eventually(lambda: newest_commands(wire, session) == everything)
        await wire.answer(running)
        other = (await wire.call("session/new", **there))["result"]["sessionId"]
        await eventually(lambda: newest_commands(wire, other) == ["review", "late"])
        async with client(r) as second:
            await second.call("session/resume", sessionId=session, **there)
            await eventually(lambda: newest_commands(second, session) == everything)
        channel.say(Offered(epoch=1, offer=OFFER))
        await eventually(lambda: newest_commands(wire, session) == ["review"])


async def test_new_directory_has_users_commands_until_claude_speaks(
    tmp_path: Path,
) -> None:
    mine = Command("mine", "Mine (user)")
    project = Command("theirs", "Theirs (project)")
    async with rig(tmp_path) as r, client(r) as wire:
        first = await new(wire)
        running, channel = await slow_worker(r, wire, first)
        say_ready(channel, Offer((mine, project), OFFER.models))
        await wire.answer(running)
        await eventually(lambda: commands(wire)[-1:] == [["mine", "theirs"]])
        opened = await wire.call("session/new", cwd="/usr", mcpServers=[])
        await eventually(lambda: commands(wire)[-1:] == [["mine"]])
        running, channel = await slow_worker(r, wire, opened["result"]["sessionId"])
        say_ready(channel, Offer((mine, Command("own", "Own (project)")), OFFER.models))
        await wire.answer(running)
        await eventually(lambda: commands(wire)[-1:] == [["mine", "own"]])


# --- titles


async def test_first_prompt_is_title_reported_once_and_kept(tmp_path: Path) -> None:
    async with rig(tmp_path) as r, client(r) as wire:
        session = await new(wire)
        for text in ("/init", "say  2\n", "say 1"):
            await wire.call("session/prompt", **prompt(session, text))
        titles = [update["title"] for update in kinds(wire, "session_info_update")]
        assert titles == ["/init", "say 2"]
        assert await r.database.read("SELECT title FROM acp_sessions") == [("say 2",)]
        await r.sessions.catalogue.set_title(session, "  Another\ntitle ")
        await eventually(lambda: kinds(wire, "session_info_update")[-1]["title"] == "Another title")
    async with rig(tmp_path) as r, client(r) as wire:
        await load(wire, session)
        assert [update["title"] for update in kinds(wire, "session_info_update")] == [
            *titles,
            "Another title",
        ]
        await wire.call("session/prompt", **prompt(session, "say 3"))
        assert await r.database.read("SELECT title FROM acp_sessions") == [("Another title",)]


async def test_log_has_user_words_claude_also_gets_context(tmp_path: Path) -> None:
    history = (
        "[CONVERSATION HISTORY - x]\n\n--- Turn 1 ---\nUSER: a\n\n[END OF HISTORY - Continue:]\n\n"
    )
    wrapped = "[Session Context]\nAgent: x\n---\n<user_request>\nsay 1\n</user_request>---\n"
    async with rig(tmp_path) as r, client(r) as wire:
        session = await new(wire)
        await wire.call("session/prompt", **prompt(session, "say 1"))
        again = wire.begin("session/prompt", **prompt(session, history + wrapped))
        channel = r.launcher.launched[0]
        await eventually(lambda: len(channel.prompts) == 2)
        assert channel.prompts[1] == wrapped
        await end_turn(r)
        await wire.answer(again)
        wire.lines.clear()
        await load(wire, session)
        assert [update["content"]["text"] for update in kinds(wire, "user_message_chunk")] == [
            "say 1",
            "say 1",
        ]


# --- sessions that nobody uses


@asynccontextmanager
async def used_and_unused(path: Path) -> AsyncIterator[tuple[Rig, dict[str, str], Pruner]]:
    """Sessions of each kind, all older than what the pruner looks at, without clients."""
    async with rig(path) as r:
        made: dict[str, str] = {}
        async with client(r) as wire:
            for kind, texts in {
                "never": [],
                "helper": [TITLE],
                "real": ["say 1"],
                "both": [TITLE, "say 1"],
            }.items():
                made[kind] = await new(wire)
                for text in texts:
                    running = wire.begin("session/prompt", **prompt(made[kind], text))
                    if text == TITLE:
                        await end_turn(r)
                    await wire.answer(running)
            await wire.call("session/set_mode", sessionId=made["never"], modeId="plan")

        def age(connection: Any) -> None:
            connection.execute("UPDATE acp_sessions SET used_clock = used_clock - 10000000")

        await on_writer(r.database, age)
        yield r, made, Pruner(r.sessions, SessionJournal(r.database), after=3600)


async def end_turn(r: Rig) -> None:
    """End the turn that hangs."""

    async def running() -> list[str]:
        return [turn for turn, state in (await r.states()).items() if state == "running"]

    turns: list[str] = await eventually(running)
    channel = r.launcher.live[-1]
    channel.say(channel.ended(turns[0]))


async def test_only_unused_sessions_are_pruned_and_reopen_empty(tmp_path: Path) -> None:
    async with used_and_unused(tmp_path) as (r, made, pruner):
        assert await pruner.prune() == 2
        assert await hidden(r) == {made["never"], made["helper"]}
        rows = await r.database.read(
            "SELECT DISTINCT acp_session_id FROM acp_log JOIN acp_sessions USING (log_key)"
        )
        assert {session for (session,) in rows} == {made["real"], made["both"]}
        rows = await r.database.read("SELECT DISTINCT acp_session_id FROM acp_turns")
        assert {session for (session,) in rows} == {made["real"], made["both"]}, (
            "they have whole conversations"
        )
        async with client(r) as wire:
            assert current(await load(wire, made["never"])) == ("plan", "default")
            resumed = await wire.call("session/resume", sessionId=made["helper"], cwd="/")
            assert "result" in resumed
            assert wire.updates() == []
            assert await hidden(r) == set()
            before = (
                await r.database.read(
                    "SELECT last_seq FROM acp_sessions WHERE acp_session_id = ?", (made["helper"],)
                )
            )[0][0]
            await wire.call("session/prompt", **prompt(made["helper"], "say 2"))
            assert min(wire.seqs()) > before > 0
            wire.lines.clear()
            await load(wire, made["helper"])
            assert [update["content"]["text"] for update in kinds(wire, "agent_message_chunk")] == [
                "0 1 "
            ]
            seqs = wire.seqs()
            assert (seqs[0], seqs[-1] - seqs[-2]) == (before + 1, 2)
        assert await pruner.prune() == 0
    async with rig(tmp_path) as r, client(r) as wire:
        await load(wire, made["helper"])
        assert wire.seqs() == seqs


async def test_session_open_or_recently_touched_is_not_pruned(tmp_path: Path) -> None:
    async with used_and_unused(tmp_path) as (r, made, pruner):
        session = await r.sessions.find(made["never"])
        assert session is not None
        async with client(r) as wire:
            wire.connection.client.subscriber.subscribe(session, session.id, 0)
            assert await pruner.prune() == 1
            assert await hidden(r) == {made["helper"]}
            await load(wire, made["never"])
        assert await pruner.prune() == 0


async def test_session_used_while_it_is_emptied_shows_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was hidden a moment before it is opened again; on a full disk that moment takes long."""
    hidden_now, go_on = asyncio.Event(), asyncio.Event()
    real = deletion.empty

    async def empty(database: Database, session_id: str) -> None:
        hidden_now.set()
        await go_on.wait()
        await real(database, session_id)

    monkeypatch.setattr(deletion, "empty", empty)
    async with used_and_unused(tmp_path) as (r, _, pruner), client(r) as wire:
        pruning = asyncio.create_task(pruner.prune())
        await hidden_now.wait()
        (session,) = await hidden(r)
        await load(wire, session)
        await wire.call("session/prompt", **prompt(session, "say 2"))
        go_on.set()
        await pruning
        wire.lines.clear()
        await load(wire, session)
        assert [one["content"]["text"] for one in kinds(wire, "agent_message_chunk")] == ["0 1 "]


async def test_pruner_runs_repeatedly_and_survives_failure(tmp_path: Path) -> None:
    async with used_and_unused(tmp_path) as (r, made, _):
        journal = SessionJournal(r.database)
        pruner = Pruner(r.sessions, journal, after=0.05)
        unused = journal.unused
        failures = iter([OSError("disk"), OSError("disk")])

        async def failing(before: int) -> list[str]:
            if (error := next(failures, None)) is not None:
                raise error
            return await unused(before)

        journal.unused = failing  # type: ignore[method-assign]
        running = asyncio.ensure_future(pruner.run())
        found: set[str] = await eventually(lambda: hidden(r))
        running.cancel()
        assert made["real"] not in found


async def test_start_prunes_nothing_before_clients_can_reconnect(tmp_path: Path) -> None:
    async with used_and_unused(tmp_path) as (r, _, _):
        looked = asyncio.Event()
        journal = SessionJournal(r.database)

        async def unused(before: int) -> list[str]:
            looked.set()
            return []

        journal.unused = unused  # type: ignore[method-assign]
        running = asyncio.ensure_future(Pruner(r.sessions, journal, after=3600).run())
        await r.database.probe()
        assert not looked.is_set()
        running.cancel()


async def test_other_clients_prompt_is_never_auxiliary(tmp_path: Path) -> None:
    async with rig(tmp_path) as r, client(r) as wire:
        await wire.call("initialize", protocolVersion=1, clientInfo={"name": "zed", "version": "1"})
        running = wire.begin("session/prompt", **prompt(await new(wire), TITLE))
        await end_turn(r)
        await wire.answer(running)
        assert await r.database.read("SELECT auxiliary FROM acp_sessions") == [(0,)]
        assert [session.record.auxiliary for session in r.sessions.live.values()] == [False]


async def in_memory(session: Session, r: Rig) -> bool:
    """Whether the newest events are read without the database."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(r.journal, "read", read := AsyncMock(return_value=[]))
        await session.log.read_after(0, 100)
    return not read.called


async def test_unreferenced_session_is_unloaded_and_can_return(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        async with client(r) as wire:
            session = await new(wire)
            await wire.call("session/prompt", **prompt(session, "say 2"))
            live = next(iter(r.sessions.live.values()))
            await r.pool.stop(session)
            r.sessions.live.forget(0, r.pool)
            assert list(r.sessions.live.values()) == [live], "a client has it open"
            assert await in_memory(live, r)
        assert not await in_memory(live, r)
        await r.run(live, "say 2")
        live.subscriptions[0].close()
        r.sessions.live.forget(0, r.pool)
        assert list(r.sessions.live.values()) == [live], "it has a worker"
        await r.pool.stop(session)
        await eventually(lambda: live.dormant)
        r.sessions.live.forget(60, r.pool)
        assert list(r.sessions.live.values()) == [live], "somebody has looked for it just now"
        live.deduplication.expect(lost := Turn("lost", session, []))
        r.sessions.live.forget(0, r.pool)
        assert list(r.sessions.live.values()) == [live], "a client may send its prompt again"
        await live.deduplication.mark_answered(lost)
        await eventually(lambda: not live.others)
        r.sessions.live.forget(0, r.pool)
        assert not r.sessions.live
        await r.pool.acquire(session, OPTIONS)
        assert r.launcher.launched[-1].spec.resume_session_id is None, "the pool has forgotten it"
        await r.pool.stop(session)
        async with client(r) as wire:
            await load(wire, session)
            assert [update["content"]["text"] for update in kinds(wire, "agent_message_chunk")] == [
                "0 1 "
            ] * 2
            await wire.call("session/prompt", **prompt(session, "say 1"))
            assert r.launcher.launched[-1].spec.resume_session_id is not None


@pytest.mark.parametrize("method", ["session/load", "session/resume"])
async def test_session_being_opened_is_not_unloaded(
    method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk of its directory is slow: it was found long before the client follows it."""
    reached, gate = asyncio.Event(), asyncio.Event()

    async def slow(*_: object) -> None:
        reached.set()
        await gate.wait()

    async with rig(tmp_path) as r:
        async with client(r) as wire:
            session = await new(wire)
            await wire.call("session/prompt", **prompt(session, "say 1"))
        await r.pool.stop(session)
        live = r.sessions.live[session]
        await eventually(lambda: live.dormant)
        monkeypatch.setattr(opening, "has_moved", slow)
        async with client(r) as wire:
            opens = wire.begin(method, sessionId=session, cwd="/", mcpServers=[])
            await reached.wait()
            r.sessions.live.forget(0, r.pool)
            gate.set()
            assert "result" in await wire.answer(opens)
            assert r.sessions.live.get(session) is live
            answer = await wire.call("session/prompt", **prompt(session, "say 2"))
            assert answer["result"]["stopReason"] == "end_turn"
            assert wire.text().endswith("0 1 ")
        await r.pool.stop(session)
        await eventually(lambda: live.dormant)
        r.sessions.live.forget(0, r.pool)
        assert not r.sessions.live


@pytest.mark.parametrize("text", [TITLE, "You are a changelog writer. Write."])
async def test_a_clients_own_helper_keeps_no_worker(tmp_path: Path, text: str) -> None:
    async with rig(tmp_path) as r, client(r) as wire:
        r.sessions.catalogue.settings = replace(LISTS, helper_prompts=("You are a changelog",))
        helper, real = await new(wire), await new(wire)
        await wire.call("session/prompt", **prompt(real, "say 1"))
        running = wire.begin("session/prompt", **prompt(helper, text))
        await end_turn(r)
        await wire.answer(running)
        await eventually(lambda: [channel.spec.session_id for channel in r.launcher.live] == [real])
        rows = dict(await r.database.read("SELECT acp_session_id, auxiliary FROM acp_sessions"))
        assert rows == {helper: 1, real: 0}
        assert kinds(wire, "session_info_update")[0]["title"] == "say 1"
        await wire.call("session/prompt", **prompt(helper, "say 1"))
        rows = dict(await r.database.read("SELECT acp_session_id, auxiliary FROM acp_sessions"))
        assert rows == {helper: 0, real: 0}
        assert len(r.launcher.live) == 2
