"""Modes, configuration options and permission requests."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from tests.conformance import scripts
from tests.conformance.agents import Agent, Chat
from tests.conformance.peer import CANCELLED, Frame, Peer, choosing, selected
from tests.conformance.recording import Recording
from tests.conformance.registry import alone, check, must, must_always, should, unsupported

OPENING = ("session/new", "session/load", "session/resume", "session/fork")


async def _choices(agent: Agent, peer: Peer, field: str) -> tuple[Chat, Any]:
    """A session, and this field of the answer that has opened it."""
    chat = await agent.chat(peer)
    if not chat.made.get(field):
        unsupported(f"session/new gives no {field}")
    return chat, chat.made[field]


# --- modes


@must_always
def the_current_mode_is_available(recording: Recording) -> None:
    """`modes.currentModeId` is one of `availableModes`, whose ids differ."""
    for _, result in recording.results(*OPENING):
        if modes := result.get("modes"):
            ids = [one["id"] for one in modes["availableModes"]]
            check(modes["currentModeId"] in ids, f"the current mode is not available: {modes}")
            check(len(ids) == len(set(ids)), f"a mode twice: {ids}")


@must
async def available_modes_can_be_set(agent: Agent) -> None:
    """`session/set_mode` with an available mode succeeds, also while a turn runs."""
    async with agent.client() as peer:
        chat, modes = await _choices(agent, peer, "modes")
        current, ids = modes["currentModeId"], [one["id"] for one in modes["availableModes"]]
        for mode in (*ids, current):
            await peer.call("session/set_mode", sessionId=chat.session, modeId=mode)
        since = peer.seen()
        running = peer.begin_prompt(chat.session, agent.script(scripts.LONG))
        await peer.until(lambda: "w2" in peer.said(chat.session, since=since), "the answer")
        other = next((one for one in ids if one != current), current)
        await peer.call("session/set_mode", sessionId=chat.session, modeId=other)
        check(not running.done(), "the mode was set only after the turn")
        peer.notify("session/cancel", sessionId=chat.session)
        await peer.answer(running, "the cancelled prompt")
        await peer.call("session/set_mode", sessionId=chat.session, modeId=current)


@must
async def unknown_modes_are_invalid(agent: Agent) -> None:
    """`session/set_mode` with a mode that is not available is answered with -32602."""
    async with agent.client() as peer:
        chat, _ = await _choices(agent, peer, "modes")
        params = {"sessionId": chat.session, "modeId": "no-such-mode"}
        error = await peer.refused("session/set_mode", **params)
        check(error["code"] == -32602, f"not -32602: {error}")


@must
async def a_mode_is_kept(agent: Agent) -> None:
    """The mode that was set is the current one when the session is opened again."""
    async with agent.client() as peer:
        peer.needs("loadSession")
        chat, modes = await _choices(agent, peer, "modes")
        before = modes["currentModeId"]
        others = [one["id"] for one in modes["availableModes"] if one["id"] != before]
        if not others:
            unsupported("the agent has one mode only")
        await peer.prompt(chat.session, agent.text("Hello."))
        await peer.call("session/set_mode", sessionId=chat.session, modeId=others[0])
        loaded = await peer.call("session/load", **chat.again)
        current = (loaded.get("modes") or {}).get("currentModeId")
        check(current == others[0], f"{others[0]} was set, {current} is current")
        await peer.call("session/set_mode", sessionId=chat.session, modeId=before)


# --- configuration options


def _lists(recording: Recording) -> Iterator[list[Frame]]:
    """Every list of options that the agent has sent."""
    for _, result in recording.results(*OPENING, "session/set_config_option"):
        yield result.get("configOptions") or []
    for _, update in recording.updates("config_option_update"):
        yield update["configOptions"]


def _values(option: Frame) -> list[Any]:
    flat: list[Frame] = []
    for one in option.get("options", []):
        flat += one.get("options", [one])
    return [one["value"] for one in flat]


@must_always
def options_have_a_valid_value(recording: Recording) -> None:
    """Each option has a current value, which is one of its values; ids differ."""
    for options in _lists(recording):
        ids = [one["id"] for one in options]
        check(len(ids) == len(set(ids)), f"an option twice: {ids}")
        for one in options:
            if one.get("type") == "select":
                check(one.get("currentValue") in _values(one), f"not one of its values: {one}")
            elif one.get("type") == "boolean":
                check(isinstance(one.get("currentValue"), bool), f"neither on nor off: {one}")


@must_always
def switches_are_only_for_clients_that_know_them(recording: Recording) -> None:
    """Options of the type `boolean` are sent to clients with `session.configOptions.boolean`."""
    if recording.has("session.configOptions.boolean"):
        return
    for options in _lists(recording):
        found = [one for one in options if one.get("type") == "boolean"]
        check(not found, f"sent to a client that has not advertised it: {found}")


@must_always
def modes_and_the_option_for_them_agree(recording: Recording) -> None:
    """An answer with `modes` and an option of the category `mode` names one and the same mode."""
    for _, result in recording.results(*OPENING):
        modes = result.get("modes")
        for one in result.get("configOptions") or []:
            if modes and one.get("category") == "mode":
                check(
                    one["currentValue"] == modes["currentModeId"],
                    f"modes says {modes['currentModeId']}, the option {one['currentValue']}",
                )


@must
async def setting_an_option_gives_the_whole_list(agent: Agent) -> None:
    """`session/set_config_option` answers with all options, among them the new value."""
    async with agent.client() as peer:
        chat, options = await _choices(agent, peer, "configOptions")
        for option in options:
            for value in _values(option)[:3]:
                params = {"sessionId": chat.session, "configId": option["id"], "value": value}
                listed = (await peer.call("session/set_config_option", **params))["configOptions"]
                ids = [one["id"] for one in listed]
                check(option["id"] in ids, f"{option['id']} is missing: {ids}")
                (found,) = [one for one in listed if one["id"] == option["id"]]
                check(found["currentValue"] == value, f"{value!r} was set, the answer has {found}")
                check(len(ids) >= len(options), f"not the whole list: {ids}")
            params = {"sessionId": chat.session, "configId": option["id"]}
            await peer.call("session/set_config_option", **params, value=option["currentValue"])


@must
async def unknown_options_are_invalid(agent: Agent) -> None:
    """`session/set_config_option` with an unknown option or value is answered with -32602."""
    async with agent.client() as peer:
        chat, options = await _choices(agent, peer, "configOptions")
        known = options[0]["id"]
        for option, value in (("no-such-option", "x"), (known, "no such value"), (known, [1])):
            params = {"sessionId": chat.session, "configId": option, "value": value}
            error = await peer.refused("session/set_config_option", **params)
            check(error["code"] == -32602, f"{option}={value!r} is answered with {error}")


@must
async def a_mode_set_as_mode_is_set_as_option(agent: Agent) -> None:
    """After `session/set_mode` the option of the category `mode` has that value."""
    async with agent.client() as peer:
        chat = await agent.chat(peer)
        session, made = chat.session, chat.made
        options = [one for one in made.get("configOptions") or [] if one.get("category") == "mode"]
        modes = made.get("modes")
        if not modes or not options:
            unsupported("session/new does not give the mode both ways")
        option, current = options[0], modes["currentModeId"]
        for mode in [*(one["id"] for one in modes["availableModes"][:2]), current]:
            await peer.call("session/set_mode", sessionId=session, modeId=mode)
            others = [one for one in made["configOptions"] if one["id"] != option["id"]]
            again = others[0] if others else {**option, "currentValue": mode}
            params = {"configId": again["id"], "value": again["currentValue"]}
            set_again = await peer.call("session/set_config_option", sessionId=session, **params)
            now = {one["id"]: one["currentValue"] for one in set_again["configOptions"]}
            check(now.get(option["id"]) == mode, f"{mode} was set, the option is {now}")


@should
async def the_end_of_planning_is_asked_and_told(agent: Agent) -> None:
    """Claude's wish to leave the mode `plan` is a call of the kind `switch_mode`, about which the user
    is asked; then the new mode is told, by `current_mode_update` or with the whole list of options.
    """
    async with agent.client() as peer:
        cwd = str(agent.directory())
        made = await peer.call("session/new", cwd=cwd, mcpServers=[])
        session, modes = str(made["sessionId"]), made.get("modes") or {}
        if "plan" not in [one["id"] for one in modes.get("availableModes", [])]:
            unsupported("there is no mode `plan`")
        await peer.call("session/set_mode", sessionId=session, modeId="plan")
        await peer.fence()
        since, asked = peer.seen(), len(peer.asked)
        await peer.prompt(
            session, agent.script('tool ExitPlanMode {"plan": "Do it."}', "text I begin.")
        )
        calls = [one["toolCall"]["toolCallId"] for one in peer.asked[asked:]]
        announced = peer.updates(session, "tool_call", since=since)
        kinds = {one["toolCallId"]: one.get("kind") for one in announced}
        check([kinds.get(one) for one in calls] == ["switch_mode"], f"asked {calls} of {kinds}")
        told = peer.updates(session, "current_mode_update", "config_option_update", since=since)
        now = {one.get("currentModeId") for one in told}
        for options in (one["configOptions"] for one in told if "configOptions" in one):
            ids = {one["id"] for one in options}
            every = {one["id"] for one in made.get("configOptions") or []}
            check(ids >= every, f"not the whole list: {ids}")
            now |= {one["currentValue"] for one in options if one.get("category") == "mode"}
        check(now - {None, "plan"}, f"no new mode was told: {told}")


# --- elicitation/create

QUESTION: Final = json.dumps(
    {
        "questions": [
            {
                "question": "Which one?",
                "header": "One",
                "multiSelect": False,
                "options": [{"label": one, "description": one} for one in ("Red", "Blue")],
            }
        ]
    }
)


@alone
@must
async def forms_that_are_not_filled_in_harm_nothing(agent: Agent) -> None:
    """A form that is declined or cancelled, or filled in with what its schema does not allow, fails no
    prompt, and what was wrong in it is no answer.
    """
    async with agent.fresh(elicitation={"form": {}}) as peer:
        session, _ = await agent.session(peer)
        shown: list[Frame] = []

        def bad(form: Frame) -> Frame:
            shown.append(form)
            names = form["requestedSchema"]["properties"]
            return {"action": "accept", "content": {name: {"no": "such-4711"} for name in names}}

        answers: list[Callable[[Frame], Frame]] = [
            lambda _: {"action": "decline"}, lambda _: {"action": "cancel"}, bad,
        ]  # fmt: skip
        for answer in answers:
            peer.fill = answer
            await peer.prompt(session, agent.script(f"tool AskUserQuestion {QUESTION}", "text On."))
        if not shown:
            unsupported("the agent shows no form")
        since = peer.seen()
        await peer.prompt(session, agent.script("report"))
        report = peer.said(session, since=since)
        check(report, "the session does not go on")
        check("such-4711" not in report, f"the model has a wrong answer: {report[:1000]}")


# --- session/request_permission


@must_always
def permission_requests_offer_a_choice(recording: Recording) -> None:
    """A permission request has options with different ids, and names its tool call."""
    for frame in recording.calls("session/request_permission"):
        ids = [one["optionId"] for one in frame["params"]["options"]]
        check(ids, f"no options: {frame}")
        check(len(ids) == len(set(ids)), f"an option twice: {ids}")
        check(frame["params"]["toolCall"]["toolCallId"], f"no tool call: {frame}")


async def _decided(agent: Agent, decide: Callable[[Frame], Frame]) -> tuple[bool, Path]:
    """Whether a tool has written its file after this decision."""
    async with agent.client() as peer:
        session = (await agent.chat(peer)).session
        path = agent.directory() / "made.txt"
        peer.permit = decide
        asked = len(peer.asked)
        await peer.prompt(session, agent.script(f"write {path} <<< x", "text Done."))
        if len(peer.asked) == asked:
            unsupported("the agent asks for no permission")
        return path.exists(), path


@must
async def what_is_allowed_runs(agent: Agent) -> None:
    """A tool call whose permission request is answered with `allow_once` runs."""
    ran, _ = await _decided(agent, choosing("allow_once"))
    check(ran, "the tool has not run")


@must
async def what_is_rejected_does_not_run(agent: Agent) -> None:
    """A tool call whose permission request is answered with `reject_once` does not run."""
    ran, _ = await _decided(agent, choosing("reject_once"))
    check(not ran, "the tool has run")


@must
async def a_cancelled_permission_request_allows_nothing(agent: Agent) -> None:
    """The outcome `cancelled` is no permission."""
    ran, _ = await _decided(agent, lambda _: CANCELLED)
    check(not ran, "the tool has run")


@must
async def an_unknown_choice_allows_nothing(agent: Agent) -> None:
    """An option that was not offered, and an unknown outcome, are no permission."""
    for answer in (selected("no-such-option"), {"outcome": {"outcome": "_later"}}):

        def decide(_: Frame, given: Frame = answer) -> Frame:
            return given

        ran, _ = await _decided(agent, decide)
        check(not ran, f"the tool has run after {answer}")
