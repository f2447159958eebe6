"""Questions that a client is asked one after the other."""

from __future__ import annotations

import json
from typing import Any, cast

from pykoclaw_acp.model.client_traits import MITTO
from pykoclaw_acp.model.permissions import PermissionRequest
from pykoclaw_acp.model.questions import ANSWERS, Question, QuestionOption
from pykoclaw_acp.protocol.questions import DONE, IN_CHAT
from pykoclaw_acp.server.client_requests import ClientRequests
from pykoclaw_acp.server.permission_requests import PermissionRequests


class Client:
    """A client that gives these answers; None: it is absent."""

    def __init__(self, *answers: str | None) -> None:
        self.asked: list[str] = []
        self._answers = list(answers)
        self.requests = PermissionRequests(cast("ClientRequests", self), self._say)

    async def request(self, message_id: str, _method: str, _params: Any) -> bytes:
        self.asked.append(message_id)
        option = self._answers.pop(0)
        chosen = {"outcome": "selected", "optionId": option}
        return json.dumps({"outcome": chosen if option else {"outcome": "cancelled"}}).encode()

    async def _say(self, *_text: str) -> None:
        """What is beside the questions."""

    async def ask(self) -> dict[str, Any]:
        options = (QuestionOption("A"), QuestionOption("B"), QuestionOption("C"))
        asked = (
            Question("one?", "one", options),
            Question("two?", "two", options, multiple=True),
            Question("three?", "three", options),
        )
        request = PermissionRequest(
            epoch=1, ask_id="ask", turn_id="turn", tool_call_id="call", title="Ask: one?",
            tool_kind="other", tool="AskUserQuestion", questions=asked,
        )  # fmt: skip
        return await self.requests.ask("session", request, MITTO)


async def test_answers_before_an_absence_count() -> None:
    client = Client("choice_1", "choice_0", None, "choice_2", DONE, None, "choice_1")
    assert await client.ask() == {"action": "cancel"}
    assert await client.ask() == {"action": "cancel"}
    answered = await client.ask()
    assert answered["content"][ANSWERS] == {"one?": "B", "two?": "A, C", "three?": "B"}
    assert client.asked == [
        *("ask.0.0", "ask.1.0", "ask.1.1"),
        *("ask.1.1", "ask.1.2", "ask.2.0"),
        "ask.2.0",
    ]


async def test_answers_end_with_their_request() -> None:
    client = Client("choice_1", IN_CHAT.option_id, None)
    assert (await client.ask())["action"] == "decline"
    assert await client.ask() == {"action": "cancel"}
    assert client.asked[-1] == "ask.0.0"
