"""What is said of MCP servers that do not work, on a stand-in for the SDK's client."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Literal, cast
from unittest.mock import Mock

import pytest
from claude_agent_sdk import Message, SystemMessage
from msgspec.structs import replace

from pykoclaw_acp.channel.frames import Answer, Background
from pykoclaw_acp.channel.options import McpServer
from pykoclaw_acp.model.events import Text
from pykoclaw_acp.model.permissions import Form
from pykoclaw_acp.worker import raw_frames, server_states
from pykoclaw_acp.worker.claude import ClaudeSession
from pykoclaw_acp.worker.server_states import ServerStates
from tests.waiting import eventually, not_within, running
from tests.workers import OPTIONS, spec

SECRET = "s3cret-value"
PAGE = "https://example.org/authorize"


class Cli:
    """The SDK's client: `states` by name, what else is known of each, and what was asked of it."""

    def __init__(self, states: dict[str, str], **details: dict[str, Any]) -> None:
        self.states = states
        self.details = details
        self.retried: list[str] = []
        self.hangs = self.works = False
        self._query = self

    @property
    def init(self) -> SystemMessage:
        servers = [{"name": name, "status": state} for name, state in self.states.items()]
        return SystemMessage("init", {"mcp_servers": servers})

    async def get_mcp_status(self) -> dict[str, Any]:
        return {"mcpServers": [{"name": name, **more} for name, more in self.details.items()]}

    async def reconnect_mcp_server(self, name: str) -> None:
        self.retried.append(name)
        if self.hangs:
            await asyncio.Event().wait()
        if self.works:
            return
        raise RuntimeError("it still does not work")

    async def _send_control_request(self, request: dict[str, Any]) -> dict[str, Any]:
        assert request["subtype"] == "mcp_authenticate"
        return {"authUrl": PAGE}


class User:
    """Whom the callbacks ask; `links`: there is a client that opens pages."""

    def __init__(self, *, links: bool = False) -> None:
        self.links = links
        self.asked: list[tuple[Form, str]] = []

    async def ask(self, form: Form, turn_id: str) -> dict[str, Any]:
        self.asked.append((form, turn_id))
        return {"action": "accept"}


def states(
    user: User | None = None, told: str = "", *given: McpServer, account: str = ""
) -> ServerStates:
    options = replace(OPTIONS, mcp_servers=given, account=account)
    return ServerStates(told, options, user or User(), Mock())  # type: ignore[arg-type]


async def said(one: ServerStates, cli: Cli, turn_id: str = "t") -> str:
    """What is said when a turn begins."""
    events = await one.look(cli.init, cli, turn_id)  # type: ignore[arg-type]
    assert all(isinstance(event, Text) and event.note for event in events)
    return "".join(event.text for event in events if isinstance(event, Text))


@pytest.mark.parametrize(
    ("error", "told"),
    [("It is gone.", "It is gone.**"), ("Is it there?", "Is it there?**"), ("Gone", "Gone.**")],
)
async def test_a_failure_is_told_as_one_sentence(error: str, told: str) -> None:
    words = await said(states(), Cli({"a": "failed"}, a={"error": error}))
    assert f"does not work: {told} Claude goes on" in words


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (
            "Dynamic Client Registration rejected (HTTP 404): ",
            "Dynamic Client Registration rejected (HTTP 404).** Claude goes on without it. It requires a sign-in",
        ),
        (
            "Error POSTing to endpoint (HTTP 403): No",
            "(HTTP 403): No.** Claude goes on without it. It requires a sign-in",
        ),
        (
            "Error POSTing to endpoint (HTTP 404):",
            "(HTTP 404).** Claude goes on without it. Check its address",
        ),
        (
            "Connection closed",
            "Connection closed.** Claude goes on without it. Check that it runs and how",
        ),
    ],
)
async def test_advice_fits_what_a_server_answered(error: str, told: str) -> None:
    assert told in await said(states(), Cli({"a": "failed"}, a={"error": error}))


async def test_what_the_answer_shows_is_not_noted() -> None:
    user = User(links=True)
    cli = Cli({"a": "failed", "b": "needs-auth", "c": "failed"}, a={"error": "Gone"})
    one = states(user)
    one.shown = "t", {"a": "failed", "b": "needs-auth", "c": "pending", "d": "connected"}
    words = await said(one, cli)
    assert "`c` does not work.**" in words, "the answer says that it still connects"
    assert words.count("**MCP server") == 1
    await eventually(lambda: user.asked)
    cli.states["d"] = "failed"
    words = await said(one, cli, "its own")
    assert "`d` does not work.**" in words, "it has failed since"
    assert words.count("**MCP server") == 1, "the answer has told the others"
    cli.states["a"] = "connected"
    assert await said(one, cli, "next") == ""
    cli.states["a"] = "failed"
    assert "`a` does not work: Gone.**" in await said(one, cli, "last"), "it has failed anew"


async def test_each_failure_is_told_once_in_a_session() -> None:
    one, cli = states(), Cli({"a": "failed", "b": "connected"}, a={"error": "No such program"})
    words = await said(one, cli)
    assert "**MCP server `a` does not work: No such program.**" in words
    assert "`b`" not in words
    assert await said(one, cli) == ""
    assert await said(states(None, one.told), cli) == "", "told by the next worker"
    cli.states["b"] = "failed"
    words = await said(one, cli)
    assert "`b` does not work.**" in words
    assert "`a`" not in words


async def test_recovered_server_is_told_when_it_fails_again() -> None:
    one, cli = states(), Cli({"a": "failed"})
    assert await said(one, cli)
    cli.states["a"] = "connected"
    assert await said(one, cli) == ""
    assert one.told == ""
    cli.states["a"] = "failed"
    assert await said(one, cli)


async def test_words_hold_nothing_that_a_client_configured() -> None:
    given = McpServer(
        name="a", transport="http", url=f"https://e.org/{SECRET}", headers={"K": f"Bearer {SECRET}"}
    )
    error = f"GET https://e.org/{SECRET} with Bearer {SECRET} \x1b[31m\nfailed"
    words = await said(states(None, "", given), Cli({"a": "failed"}, a={"error": error}))
    assert SECRET not in words
    assert "\x1b" not in words
    assert "GET … with …" in words


@pytest.mark.parametrize(
    "error",
    [
        f"TypeError dialing http://127.0.0.1:1/?token={SECRET} (ECONNREFUSED).",
        f"ECONNREFUSED: Unable to connect. Is the computer able to access {SECRET}?",
    ],
)
async def test_refused_connection_is_said_in_words(error: str) -> None:
    words = await said(states(), Cli({"a": "failed"}, a={"error": error}))
    assert "does not work: nothing takes the connection at its address (ECONNREFUSED).**" in words
    assert SECRET not in words


async def test_missing_program_is_said_in_words() -> None:
    given = McpServer(name="a", command="/nowhere/server", args=("--key", SECRET))
    error = "ENOENT: no such file or directory, posix_spawn 'stdio'"
    words = await said(states(None, "", given), Cli({"a": "failed"}, a={"error": error}))
    assert "does not work: its program, or the interpreter of that, does not exist.**" in words
    assert "/nowhere" not in words, "programs of clients are not in the database"


async def test_user_signs_in_where_page_can_open() -> None:
    user, cli = User(links=True), Cli({"my web": "needs-auth"})
    words = await said(states(user), cli)
    assert (
        "Open the page that you are asked for, or run `pykoclaw-acp mcp login --account default 'my web'`"
        in words
    )
    await eventually(lambda: user.asked)
    ((form, turn_id),) = user.asked
    assert (form.server, form.url, turn_id) == ("my web", PAGE, "t")


@pytest.mark.parametrize("decision", ["accept", "decline"])
async def test_sign_in_counts_as_background_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, decision: Literal["accept", "decline"]
) -> None:
    """From when the page was opened until the user has signed in; so its worker stays."""
    monkeypatch.setattr(server_states, "LOOK", 0.01)
    told: list[Any] = []
    cli, outbox = Cli({"a": "needs-auth"}, a={"status": "needs-auth"}), Mock(put=told.append)
    claude = ClaudeSession(spec(tmp_path), str(tmp_path), outbox, Mock())

    async def received(*_: object) -> AsyncIterator[tuple[Message, raw_frames.RawFrame]]:
        yield cli.init, raw_frames.NO_FRAME

    monkeypatch.setattr(raw_frames, "received", received)
    claude.client = cast("Any", cli)
    claude.permissions.links = True
    claude.turns.expect("t")
    await claude.run()

    def counted() -> list[int]:
        return [one.running for one in told if isinstance(one, Background)]

    (ask_id,) = await eventually(lambda: claude.permissions.pending)
    assert (claude.background, counted()) == (0, [])
    claude.permissions.resolve(Answer(epoch=1, ask_id=ask_id, decision=decision))
    if decision == "accept":
        await eventually(lambda: counted() == [1])
        await not_within(lambda: len(counted()) > 1)
        cli.details["a"]["status"] = "connected"
        await eventually(lambda: counted() == [1, 0])
    else:
        await not_within(counted)
    assert claude.background == 0


@pytest.mark.parametrize("url", [f"https://e.org/?key={SECRET}", f"https://u:{SECRET}@e.org/"])
async def test_page_whose_address_may_hide_secret_stays_hidden(url: str) -> None:
    user = User(links=True)
    given = McpServer(name="a", transport="http", url=url)
    words = await said(states(user, "", given), Cli({"a": "needs-auth"}))
    assert "Run `pykoclaw-acp mcp login --account default a`" in words
    assert user.asked == []


@pytest.mark.parametrize(
    ("scope", "account", "told"),
    [
        ("user", "", "Run `pykoclaw-acp mcp login --account default a` in a terminal."),
        ("user", "work", "Run `pykoclaw-acp mcp login --account work a` in a terminal."),
        ("local", "", "--account default a`, in this session's directory, in a terminal."),
        ("project", "work", "--account work a`, in this session's directory, in a terminal."),
    ],
)
async def test_sign_in_command_fits_the_servers_scope(scope: str, account: str, told: str) -> None:
    cli = Cli({"a": "needs-auth"}, a={"scope": scope})
    assert told in await said(states(account=account), cli)


async def test_connectors_of_the_account_are_not_told() -> None:
    cli = Cli({"claude.ai Mail": "needs-auth"}, **{"claude.ai Mail": {"scope": "claudeai"}})
    user = User(links=True)
    assert await said(states(user), cli) == ""
    assert user.asked == []


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have short pauses."""
    monkeypatch.setattr(server_states, "PAUSE", 0.01)
    monkeypatch.setattr(server_states, "LONGEST_PAUSE", 0.02)


@pytest.mark.usefixtures("soon")
async def test_failed_server_is_retried_between_turns() -> None:
    """Until it works."""
    one, cli = states(), Cli({"a": "failed", "b": "connected"}, a={"status": "failed"})
    idle = False
    one.is_idle = lambda: idle
    words = await said(one, cli)
    assert "tried again now and then between prompts, and at once by `/mcp reconnect a`." in words
    await not_within(lambda: cli.retried)
    idle = True
    await eventually(lambda: len(cli.retried) > 1)
    await said(one, cli)
    assert len(running("ServerStates._keep_trying")) == 1
    cli.works = True
    await eventually(lambda: not running("ServerStates._keep_trying"))
    assert set(cli.retried) == {"a"}


@pytest.mark.usefixtures("soon")
async def test_hanging_server_waits_for_the_user() -> None:
    error = 'MCP server "a" connection timed out after 30000ms'
    one, cli = states(), Cli({"a": "failed"}, a={"status": "failed", "error": error})
    assert "how it is configured; `/mcp reconnect a` then tries it again." in await said(one, cli)
    await eventually(lambda: not running("ServerStates._keep_trying"))
    assert cli.retried == []


@pytest.mark.usefixtures("soon")
async def test_server_that_user_reconnected_is_left_alone() -> None:
    one, cli = states(), Cli({"a": "failed"}, a={"status": "connected"})
    await said(one, cli)
    await eventually(lambda: not running("ServerStates._keep_trying"))
    assert cli.retried == []


async def test_pauses_grow_and_have_no_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those after a slow failure are longer."""
    one, cli = states(), Cli({"a": "failed"}, a={"status": "failed"})
    pauses: list[float] = []
    clock = itertools.chain((0.0, 0.1, 0.2, 0.3), itertools.count(step=20))

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 2:
            await said(one, cli, "next")
        cli.works = len(pauses) == 5

    monkeypatch.setattr(server_states, "asyncio", Mock(wraps=asyncio, sleep=sleep))
    monkeypatch.setattr(server_states, "time", Mock(monotonic=lambda: next(clock)))
    await said(one, cli)
    await eventually(lambda: not running("ServerStates._keep_trying"))
    assert pauses == [15, 30, 15, 60, 1000]


async def test_prompt_after_sign_in_has_the_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path))
    monkeypatch.setattr(server_states, "RETRY_WAIT", 0.05)
    one, cli = states(), Cli({"a": "needs-auth", "b": "failed"})
    await said(one, cli)
    await one.retry(cli)  # type: ignore[arg-type]
    assert cli.retried == [], "nobody has signed in"
    (tmp_path / ".credentials.json").write_text("{}")
    cli.hangs = True
    for _ in range(2):
        await one.retry(cli)  # type: ignore[arg-type]
    assert cli.retried == ["a"]
    one.close()


@pytest.mark.usefixtures("soon")
async def test_turn_during_try_ends_no_tries() -> None:
    """The user has connected to `b` before, and the turn says so first."""
    one, cli = states(), Cli({"a": "failed", "b": "failed"}, a={"status": "failed"})
    cli.details["b"] = {"status": "connected"}
    await said(one, cli)
    reconnect = cli.reconnect_mcp_server

    async def turn_begins(name: str) -> None:
        cli.states["b"] = "connected"
        await said(one, cli)
        await reconnect(name)

    cli.reconnect_mcp_server = turn_begins  # type: ignore[method-assign]
    await eventually(lambda: len(cli.retried) > 1)
    assert set(cli.retried) == {"a"}
    one.close()


@pytest.mark.usefixtures("soon")
async def test_failed_server_may_want_sign_in_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path))
    one, cli = states(), Cli({"a": "failed"}, a={"status": "needs-auth"})
    await said(one, cli)
    await eventually(lambda: not running("ServerStates._keep_trying"))
    (tmp_path / ".credentials.json").write_text("{}")
    await one.retry(cli)  # type: ignore[arg-type]
    assert cli.retried == ["a"]


@pytest.mark.usefixtures("soon")
async def test_server_that_still_connects_is_awaited() -> None:
    one, cli = states(), Cli({"a": "failed"}, a={"status": "pending"})
    await said(one, cli)
    await not_within(lambda: cli.retried or not running("ServerStates._keep_trying"))
    cli.details["a"]["status"] = "failed"
    await eventually(lambda: cli.retried)
    one.close()
