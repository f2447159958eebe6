"""What is taken from the SDK's hands, on a stand-in for its inside; the real one is under
tests/e2e.
"""

from __future__ import annotations

import asyncio
import json
from types import SimpleNamespace
from typing import Any

import pytest

from pykoclaw_acp.model.permissions import Form
from pykoclaw_acp.worker import sdk_private
from pykoclaw_acp.worker.sdk_private import take_elicitations
from tests.waiting import not_within, pass_loop_time

SCHEMA = {"type": "object", "properties": {"name": {"type": "string"}}}
FORM = {
    "subtype": "elicitation",
    "mcp_server_name": "s",
    "message": "Who?",
    "mode": "form",
    "requested_schema": SCHEMA,
}


class Inside:
    """The part of the SDK's `Query` that matters, and of its transport."""

    def __init__(self) -> None:
        self.others: list[str] = []
        self.written: list[dict[str, Any]] = []
        self.transport = self

    async def _handle_control_request(self, request: dict[str, Any]) -> None:
        self.others.append(request["request"]["subtype"])

    async def write(self, line: str) -> None:
        assert line.endswith("\n")
        self.written.append(json.loads(line))

    async def comes(self, body: dict[str, Any]) -> None:
        await self._handle_control_request({"request_id": "r1", "request": body})


def client(inside: object) -> Any:
    return SimpleNamespace(_query=inside)


class User:
    """Answers every form with this, or fails."""

    def __init__(self, answer: dict[str, Any] | None = None) -> None:
        self.forms: list[Form] = []
        self._answer = answer

    async def ask(self, form: Form) -> dict[str, Any]:
        self.forms.append(form)
        if self._answer is None:
            raise RuntimeError("no")
        return self._answer


async def test_form_is_asked_and_answer_goes_to_cli() -> None:
    inside, user = Inside(), User({"action": "accept", "content": {"name": "Ada"}})
    assert take_elicitations(client(inside), user.ask)
    await inside.comes(FORM)
    assert user.forms == [Form("s", "Who?", SCHEMA)]
    (response,) = inside.written
    assert response == {
        "type": "control_response",
        "response": {
            "subtype": "success",
            "request_id": "r1",
            "response": {"action": "accept", "content": {"name": "Ada"}},
        },
    }


async def test_page_is_asked_for_like_a_form() -> None:
    inside, user = Inside(), User({"action": "accept"})
    take_elicitations(client(inside), user.ask)
    await inside.comes({**FORM, "mode": "url", "url": "https://example.org"})
    assert user.forms == [Form("s", "Who?", {}, "https://example.org")]
    assert inside.written[0]["response"]["response"] == {"action": "accept"}


async def test_other_requests_stay_the_sdks() -> None:
    inside, user = Inside(), User({})
    take_elicitations(client(inside), user.ask)
    await inside.comes({"subtype": "can_use_tool"})
    assert inside.others == ["can_use_tool"]
    assert inside.written == []


@pytest.mark.parametrize(
    "change",
    [
        {"mode": "url", "url": "file:///etc/passwd"},
        {"mode": "url", "url": None},
        {"message": None},
        {"requested_schema": None},
        {"mode": "later"},
    ],
)
async def test_non_form_is_cancelled_unasked(change: dict[str, Any]) -> None:
    inside, user = Inside(), User({"action": "accept"})
    take_elicitations(client(inside), user.ask)
    await inside.comes({**FORM, **change})
    assert user.forms == []
    assert inside.written[0]["response"]["response"] == {"action": "cancel"}


async def test_a_form_that_cannot_be_asked_is_cancelled() -> None:
    inside, user = Inside(), User(None)
    take_elicitations(client(inside), user.ask)
    await inside.comes(FORM)
    assert inside.written[0]["response"]["response"] == {"action": "cancel"}


async def test_form_cancelled_by_cli_is_not_answered() -> None:
    inside = Inside()
    begun = asyncio.Event()

    async def ask(_: Form) -> dict[str, Any]:
        begun.set()
        never: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        return await never

    take_elicitations(client(inside), ask)
    task = asyncio.ensure_future(inside.comes(FORM))
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert inside.written == []


@pytest.mark.parametrize(
    "inside",
    [
        None,
        SimpleNamespace(),
        SimpleNamespace(transport=SimpleNamespace(write=print)),
        SimpleNamespace(_handle_control_request=print),
    ],
)
async def test_another_sdk_is_left_as_it_is(inside: Any) -> None:
    before = dict(vars(inside)) if inside is not None else {}
    assert not take_elicitations(client(inside), User({}).ask)
    assert inside is None or vars(inside) == before


class SlowCli:
    """Drops a message once the CLI goes on; its `send` gives up after `timeout` (s), as the SDK's."""

    def __init__(self) -> None:
        self.goes_on = asyncio.Event()

    async def _send_control_request(
        self, _: dict[str, Any], timeout: float = 60.0
    ) -> dict[str, Any]:
        async with asyncio.timeout(timeout):
            await self.goes_on.wait()
        return {"cancelled": True}


async def test_late_answer_of_stopped_cli_counts() -> None:
    """The CLI has dropped the message, and says so only once."""
    cli = SlowCli()
    dropping = asyncio.create_task(sdk_private.cancel_message(client(cli), "u1"))
    await asyncio.sleep(0)
    pass_loop_time(3600)
    await not_within(dropping.done)
    cli.goes_on.set()
    assert await dropping
