"""Zed, acpx, OpenCode and Toad, as they were seen to behave or as their sources say: tests/e2e/fixtures,
played to a front.

A step is a call, or the beginning of one and the notification that ends it, or a restart in the
client's own way. What the step says besides is what the client relies on: fields of the answer
(`expect`), kinds of updates that came before it (`shown`), the text that they make up (`text`) or
begin with (`begins`), none after it (`silent`), questions (`asked`), what tools show (`content`,
`tools`), seconds (`within`), what Claude still knows (`remembers`).
"""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path
from typing import Any, Final

import pytest

from tests.e2e.harness import Client, RpcError, Stack
from tests.e2e.harness.client import selected
from tests.waiting import eventually

FIXTURES: Final = Path(__file__).parent / "fixtures"
NAMES: Final = ("zed", "acpx", "opencode", "toad")
VARIANTS: Final = ("acpx", "opencode")  # acpx itself is in `make test-node`
QUIET: Final = 0.08  # s without an update, after which a replay is over for acpx


def read(value: Any, path: str) -> Any:
    """A field of an answer; a config option by its id."""
    for name in path.split("."):
        if isinstance(value, list):
            value = next(one for one in value if one["id"] == name)["currentValue"]
        else:
            value = value[name]
    return value


class Player:
    """A client that does what its fixture says."""

    def __init__(self, stack: Stack, fixture: dict[str, Any]) -> None:
        self.stack = stack
        self.fixture = fixture
        self.client: Client
        self.names = {"$cwd": str(stack.work), "$other": str(stack.root / "other")}
        self.running: asyncio.Future[dict[str, Any]] | None = None
        self.mark = 0

    async def start(self) -> None:
        self.client = await self.stack.spawn_front()
        self.client.permit = self.permit
        self.client.on_update = self.refuse
        self.relied(
            "initialize", await self.client.call("initialize", **self.fixture["initialize"])
        )

    async def end(self) -> None:
        if self.fixture["ends"] == "SIGKILL":
            await self.client.kill()
        elif self.fixture["ends"] == "SIGTERM":
            await self.client.terminate()
        else:
            began = time.monotonic()
            assert await self.client.close() == 0
            assert time.monotonic() - began < 10, "it waits for what does not end by itself"

    def permit(self, params: dict[str, Any]) -> dict[str, Any]:
        kinds = {option["kind"]: option["optionId"] for option in params["options"]}
        return selected(next(kinds[kind] for kind in self.fixture["permits"] if kind in kinds))

    def refuse(self, update: dict[str, Any]) -> None:
        """Answer an update of a kind that it does not know, which nobody asked it to."""
        if update["sessionUpdate"] in self.fixture.get("refuses", ()):
            error = {
                "code": -32602,
                "message": "Parameter is not the expected type (SessionUpdate)",
            }
            self.client.send({"jsonrpc": "2.0", "id": None, "error": error})

    async def play(self) -> None:
        await self.start()
        for step in self.fixture["steps"]:
            if "restart" in step:
                await self.end()
                await self.start()
            else:
                await self.step(self.named(step))

    async def step(self, step: dict[str, Any]) -> None:
        asked, began = len(self.client.questions), time.monotonic()
        self.mark = len(self.client.received)
        if "begin" in step:
            self.running = self.client.begin(step["begin"], **step["params"])
            await self.client.until(lambda: step["until"] in self.text(step))
            return
        if "notify" in step:
            assert self.running is not None
            self.client.notify(step["notify"], **step["params"])
            answer = await self.client.answer(self.running)
        elif "error" in step:
            with pytest.raises(RpcError) as error:
                await self.client.call(step["call"], **step["params"])
            assert error.value.code == step["error"]["code"]
            assert step["error"]["message"] in error.value.message
            return
        else:
            if step["call"] == "session/load":
                self.client.updates[step["params"]["sessionId"]] = []
            answer = await self.client.call(step["call"], **step["params"])
            self.relied(step["call"], answer)
        assert time.monotonic() - began < step.get("within", 60)
        if "keep" in step:
            self.names["$session"] = answer["sessionId"]
        for path, value in step.get("expect", {}).items():
            assert read(answer, path) == value, path
        if "asked" in step:
            assert len(self.client.questions) - asked == step["asked"]
        self.check_shown(step)
        if "remembers" in step:
            assert step["remembers"] in json.dumps(self.stack.asked()[-1]["messages"])
        if step.get("silent"):
            await self.check_silent()

    def relied(self, method: str, answer: dict[str, Any]) -> None:
        for path in self.fixture["relies_on"].get(method, []):
            value: Any = answer
            for name in path.split("."):
                assert name in value, f"{method}: {path}"
                value = value[name]

    def updates(self, step: dict[str, Any]) -> list[dict[str, Any]]:
        """Those that have come since the step began."""
        session = step["params"]["sessionId"]
        return [
            frame["params"]["update"]
            for frame in self.client.received[self.mark :]
            if frame.get("method") == "session/update" and frame["params"]["sessionId"] == session
        ]

    def text(self, step: dict[str, Any]) -> str:
        return "".join(
            update["content"]["text"]
            for update in self.updates(step)
            if update["sessionUpdate"] == "agent_message_chunk"
        )

    def check_shown(self, step: dict[str, Any]) -> None:
        updates = self.updates(step) if "sessionId" in step["params"] else []
        assert set(step.get("shown", [])) <= {update["sessionUpdate"] for update in updates}
        if "text" in step:
            assert self.text(step) == step["text"]
        if "begins" in step:  # how it ends is not known
            assert self.text(step).startswith(step["begins"])
        shown = [
            part["type"]
            for update in updates
            for part in update.get("content") or []
            if isinstance(part, dict)
        ]
        assert set(step.get("content", [])) <= set(shown)
        calls = [update for update in updates if update["sessionUpdate"] == "tool_call"]
        for call, wanted in zip(calls, step["tools"], strict=True) if "tools" in step else ():
            assert call["kind"] == wanted["kind"]
            assert wanted["input"].items() <= call["rawInput"].items()
            ends = [
                update["status"]
                for update in updates
                if update["sessionUpdate"] == "tool_call_update"
                and update["toolCallId"] == call["toolCallId"]
                and update["status"] in {"completed", "failed"}
            ]
            assert ends == wanted["ends"]

    async def check_silent(self) -> None:
        """Nothing of the history comes after the answer: the replay is over within acpx's 5 s."""
        answered = len(self.client.received)
        last = time.monotonic()
        await eventually(lambda: time.monotonic() - last > QUIET)
        kinds = [
            frame["params"]["update"]["sessionUpdate"] for frame in self.client.received[answered:]
        ]
        assert set(kinds) <= {"available_commands_update"}

    def named(self, value: Any) -> Any:
        """The fixture's names replaced by what they stand for."""
        if isinstance(value, str):
            for name, meant in self.names.items():
                value = value.replace(name, meant)
            return value
        if isinstance(value, dict):
            return {key: self.named(one) for key, one in value.items()}
        return [self.named(one) for one in value] if isinstance(value, list) else value


@pytest.mark.parametrize(
    "name",
    [pytest.param(one, marks=pytest.mark.long if one in VARIANTS else ()) for one in NAMES],
)
async def test_client_plays_its_fixture(shared: Stack, name: str) -> None:
    (shared.root / "other").mkdir()
    fixture = json.loads((FIXTURES / f"{name}.json").read_text())
    await Player(shared, fixture).play()
    assert (shared.work / "made").is_dir()


@pytest.mark.parametrize("name", NAMES)
def test_fixtures_say_where_they_come_from(name: str) -> None:
    fixture = json.loads((FIXTURES / f"{name}.json").read_text())
    assert fixture["kind"]
    for source in fixture["sources"]:
        assert source["repository"].count("/") == 1
        assert source["file"]
        assert source["says"]
