"""Calls of commands with anything as parameters: each has one answer, and none of them is a fault."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path
from typing import Any

import msgspec
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tests import methods
from tests.integration.callers import caller, prompted
from tests.integration.rig import rig
from tests.waiting import eventually

SESSION = "«session»"  # stands for the id of one that exists
NUMBERS = st.sampled_from([0, 1, -1, 2**53, 2**53 + 1, 2**63, 2**64, -(2**63) - 1, 1.5, 1e308])
TEXTS = st.sampled_from(
    [SESSION, "", "x", "/", "../..", "\x00", "\x1b]0;t\x07", "\u202e", "9" * 3000]
)
LEAVES = st.none() | st.booleans() | NUMBERS | TEXTS | st.text(max_size=5)
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=6,
)
HARMLESS = {"_pykoclaw.dev/follow": {"live": False}}  # a live one is answered when it ends


def _calls(name: str) -> st.SearchStrategy[tuple[str, dict[str, Any]]]:
    required = methods.required(name)
    fields = {
        field.encode_name: st.just(SESSION) | VALUES if field.encode_name == "session" else VALUES
        for field in msgspec.structs.fields(methods.OWN[name].params)
    }
    given_some = st.fixed_dictionaries(
        {field: fields.pop(field) for field in required}, optional=fields
    )
    return given_some.map(lambda params: (name, params | HARMLESS.get(name, {})))


CALLS = st.lists(st.sampled_from(sorted(methods.CONTROL)).flatmap(_calls), max_size=12)


def _filled(value: Any, session: str) -> Any:
    if isinstance(value, str):
        return value.replace(SESSION, session)
    if isinstance(value, list):
        return [_filled(one, session) for one in value]
    if isinstance(value, dict):
        return {name: _filled(one, session) for name, one in value.items()}
    return value


@settings(max_examples=10, deadline=None, suppress_health_check=list(HealthCheck))
@given(CALLS)
@example([("_pykoclaw.dev/import/piece", {"data": ""})])
def test_each_call_of_a_command_has_one_answer(calls: list[tuple[str, dict[str, Any]]]) -> None:
    async def run() -> None:
        with tempfile.TemporaryDirectory() as path:
            async with rig(Path(path)) as r, caller(r, Path(path)) as command:
                session = await prompted(r, "say 1")
                asked = {
                    command.begin(
                        name.removeprefix("_pykoclaw.dev/"), **_filled(params, session.id)
                    ): name
                    for name, params in calls
                }
                await eventually(lambda: asked.keys() <= command.answers.keys(), 60)
                faults = {
                    asked[at]: answer
                    for at, answer in command.answers.items()
                    if answer.get("error", {}).get("code") == -32603
                }
                assert not faults
                for answer in list(command.answers.values()):
                    result = answer.get("result")
                    if isinstance(result, dict) and "upload" in result:  # which has a file
                        await command.call("import/abandon", upload=result["upload"])

    asyncio.run(run())
