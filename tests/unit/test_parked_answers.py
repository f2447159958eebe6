"""Decisions on parked requests, used when Claude makes the identical call again."""

from __future__ import annotations

import asyncio

import pytest
from msgspec.structs import replace

from pykoclaw_acp.model.permissions import Decision, PermissionRequest, RequestOutcome
from pykoclaw_acp.model.turns import Turn
from pykoclaw_acp.sessions.permissions.parked_answers import ParkedAnswers

PARKED = PermissionRequest(
    epoch=1, ask_id="parked", turn_id="t", tool_call_id="c", title="Run", tool_kind="execute",
    always="allows B", call="A && B", rules=("Bash(B)",),
)  # fmt: skip


@pytest.mark.parametrize("option", ["allow_once", "allow_always", "allow_lasting"])
@pytest.mark.parametrize(
    "changed", [{}, {"always": "allows A and B"}, {"rules": ("Bash(A)", "Bash(B)")}]
)
async def test_always_lasts_only_as_it_was_shown(option: str, changed: dict[str, object]) -> None:
    answers = ParkedAnswers()
    turn = Turn("t", "s", [])
    answers.add(turn, PARKED, Decision(RequestOutcome.SELECTED, option, "me"))
    again = replace(PARKED, epoch=2, ask_id="again", **changed)
    found = answers.take(again)
    assert found is not None
    assert found[0] == "parked"
    assert found[1].option == ("allow_once" if changed else option)
    assert answers.take(again) is None
    turn.ended.cancel()


@pytest.mark.parametrize(("former", "used"), [("dontAsk", "allow_former"), ("", "allow_once")])
async def test_plan_leads_back_only_where_offered_again(former: str, used: str) -> None:
    answers, turn = ParkedAnswers(), Turn("t", "s", [])
    plan = replace(PARKED, plan=True, rules=(), former="dontAsk")
    answers.add(turn, plan, Decision(RequestOutcome.SELECTED, "allow_former", "me"))
    found = answers.take(replace(plan, ask_id="again", former=former))
    assert found is not None
    assert found[1].option == used
    turn.ended.cancel()
    await asyncio.sleep(0)
