"""Whose credential a session runs with: its client's own, that of its account, or none, in words."""

from __future__ import annotations

import json
import time
from pathlib import Path
from uuid import uuid4

import pytest

from tests.e2e.commands import done, run
from tests.e2e.harness import Client, RpcError, Stack, files, script, text
from tests.e2e.harness.processes import environment
from tests.waiting import eventually

FIRST, SECOND = "sk-ant-of-the-first-client", "sk-ant-of-the-second-client"
TOKEN = "sk-ant-oat01-of-the-login"


def credentials(stack: Stack) -> list[str]:
    """Those that the model was asked with, without those of requests that Claude repeats."""
    return [one["credential"] for one in stack.asked()]


def login(folder: Path, token: str = TOKEN) -> None:
    """What the CLI's login writes."""
    folder.mkdir(parents=True, exist_ok=True)
    kept = {
        "accessToken": token,
        "refreshToken": "sk-ant-ort01-none",
        "expiresAt": int((time.time() + 36000) * 1000),
        "scopes": ["user:inference"],
        "subscriptionType": "max",
    }
    file = folder / ".credentials.json"
    file.write_text(json.dumps({"claudeAiOauth": kept}))
    file.chmod(0o600)


async def refused(client: Client, session: str, prompt: str = text("Never.")) -> RpcError:
    with pytest.raises(RpcError) as error:
        await client.prompt(session, prompt)
    assert error.value.code == -32000
    assert "/login" not in error.value.message.replace("pykoclaw-acp login", "")
    assert "/login" not in client.text(session)
    return error.value


@pytest.mark.long
async def test_clients_have_their_own_keys_alone(stack: Stack) -> None:
    """The first client starts the daemon, and its key is nobody else's."""
    first = await stack.front(ANTHROPIC_API_KEY=FIRST)
    mine = await first.new(stack.work)
    await first.prompt(mine, text("One."))
    second = await stack.front(ANTHROPIC_API_KEY=SECOND, PYKOCLAW_MAX_WORKERS="3")
    assert "its own values of PYKOCLAW_MAX_WORKERS hold" in second.log.read_text()
    assert "values" not in first.log.read_text()
    status = (await done(stack, "status", "--json")).json
    assert [one["settings"] for one in status["otherSettings"]] == [["PYKOCLAW_MAX_WORKERS"]]
    other = await second.new(stack.work)
    await second.prompt(other, text("Two."))
    none = await stack.front(ANTHROPIC_API_KEY="")
    third = await none.new(stack.work)
    assert (await refused(none, third)).kind == "authentication_missing"
    assert credentials(stack) == [FIRST, SECOND]

    processes = {one.pid for one in stack.processes()} - {one.process.pid for one in stack.clients}
    holders = {
        pid for pid in processes for key in (FIRST, SECOND) if key.encode() in environment(pid)
    }
    claude = {one.pid for one in stack.processes() if one.is_claude}
    assert len(processes) >= 4
    assert holders <= claude, "daemon, fork server and workers have no client's key"
    assert files.holding(stack.home, FIRST, SECOND) == []

    await second.close()
    stack.worker(other).kill()
    await none.load(other, stack.work)
    withheld = await refused(none, other)
    assert withheld.kind == "authentication_withheld"
    assert "ANTHROPIC_API_KEY" in withheld.message
    again = await stack.front(ANTHROPIC_API_KEY=SECOND)
    await again.load(other, stack.work)
    await again.prompt(other, text("Three."))
    assert stack.asked()[-1]["user_texts"] == [text("Two."), text("Three.")]
    for client in (first, again):
        await client.close()
    stack.worker(mine).kill()
    by_hand = await run(stack, "prompt", mine, text("Four."), ANTHROPIC_API_KEY=FIRST)
    assert (by_hand.status, by_hand.out) == (0, "Four.\n")
    assert credentials(stack) == [FIRST, SECOND, SECOND, FIRST]


@pytest.mark.long
async def test_a_login_helps_at_once(stack: Stack) -> None:
    """Nobody has logged in: a session can be made, and its first prompt says what to do."""
    client = await stack.front(ANTHROPIC_API_KEY="")
    session = await client.new(stack.work)
    assert await client.call("auth/status") == {"state": "unauthenticated"}
    missing = await refused(client, session)
    assert missing.kind == "authentication_missing"
    assert "`pykoclaw-acp login`" in missing.message
    assert (
        "default (of new sessions): not logged in (the key of a client"
        in (await run(stack, "status")).out
    )
    assert stack.asked() == []
    with pytest.raises(RpcError) as unknown:
        await client.call("authenticate", methodId="anthropic-api-key")
    assert unknown.value.code == -32000
    assert "`pykoclaw-acp login`" in unknown.value.message
    login(stack.home / ".claude")
    assert await client.call("authenticate", methodId="anthropic-api-key") == {}
    login_of_claude = {"label": "Claude, account default", "active": True}
    known = {"state": "authenticated", "accounts": [login_of_claude]}
    assert await client.call("auth/status") == known
    with_key = await stack.front(ANTHROPIC_API_KEY=FIRST)
    both = [{"label": "ANTHROPIC_API_KEY", "active": True}, {**login_of_claude, "active": False}]
    assert (await with_key.call("auth/status"))["accounts"] == both
    await client.prompt(session, text("Here."))
    assert credentials(stack) == [f"Bearer {TOKEN}"]
    wrong = await refused(client, session, script("error 401"))
    assert (wrong.kind, wrong.data["httpStatus"]) == ("authentication_gateway", 401)
    assert "ANTHROPIC_BASE_URL" in wrong.message
    assert await client.call("logout") == {}
    assert not (stack.home / ".claude/.credentials.json").exists()
    with pytest.raises(RpcError) as closed:
        await client.new(stack.work)
    assert closed.value.code == -32000
    assert (await refused(client, session)).kind == "authentication_missing"
    assert (await client.call("auth/status"))["state"] == "unauthenticated"


FAKE_LOGIN = """#!/bin/sh
[ "$1 $2" = "auth login" ] || exit 3
cp {file} "$CLAUDE_CONFIG_DIR/.credentials.json"
"""


@pytest.mark.long
async def test_an_account_is_kept(stack: Stack) -> None:
    login(stack.root / "made")
    cli = stack.root / "claude-that-logs-in"
    cli.write_text(FAKE_LOGIN.format(file=stack.root / "made/.credentials.json"))
    cli.chmod(0o755)
    made = await run(stack, "login", "--account", "work", PYKOCLAW_CLI_PATH=str(cli))
    assert (made.status, "account work" in made.out) == (0, True), made
    folder = stack.data / "accounts/work"
    assert folder.stat().st_mode & 0o777 == 0o700

    client = await stack.front(ANTHROPIC_API_KEY="", PYKOCLAW_ACCOUNT="work")
    session = await client.new(stack.work)
    await client.prompt(session, text("One."))
    assert list((folder / "projects").glob(f"*/{session}.jsonl"))
    assert stack.transcript(session) == ""
    await client.close()

    await stack.end_daemon()
    for process in stack.processes():
        process.kill()
    client = await stack.front(ANTHROPIC_API_KEY=FIRST)
    with pytest.raises(RpcError) as unknown:
        await client.new(stack.work, _meta={"pykoclaw.dev/account": "nobody"})
    assert "pykoclaw-acp login --account nobody" in unknown.value.message
    with pytest.raises(RpcError) as changed:
        await client.load(session, stack.work, _meta={"pykoclaw.dev/account": "default"})
    assert (changed.value.code, changed.value.data) == (-32602, {"account": "work"})
    await client.load(session, stack.work, _meta={"pykoclaw.dev/account": "work"})
    assert client.text(session) == "One."
    await client.prompt(session, text("Two."))
    assert stack.asked()[-1]["user_texts"] == [text("One."), text("Two.")]
    (known,) = (folder / "projects").glob(f"*/{session}.jsonl")
    terminal = str(uuid4())  # what `claude` has begun in a terminal with this account
    lines = known.read_text().splitlines(keepends=True)
    ids = {json.loads(line).get("uuid") for line in lines} - {None}
    begun = "".join(lines).replace(session, terminal)
    for one in ids:
        begun = begun.replace(one, str(uuid4()))
    known.with_name(f"{terminal}.jsonl").write_text(begun)

    async def listed() -> bool:
        sessions = (await client.call("session/list"))["sessions"]
        return terminal in [one["sessionId"] for one in sessions]

    there: bool = await eventually(listed)
    assert there
    of_account = await stack.front(ANTHROPIC_API_KEY="", PYKOCLAW_ACCOUNT="work")
    await of_account.load(terminal, stack.work, _meta={"pykoclaw.dev/account": "work"})
    await of_account.prompt(terminal, text("Of the account."))
    assert stack.asked()[-1]["user_texts"][0] == text("One.")
    assert credentials(stack)[-1] == f"Bearer {TOKEN}"
    own = await client.new(stack.work)
    await client.prompt(own, text("Three."))
    assert credentials(stack)[0] == f"Bearer {TOKEN}"
    assert credentials(stack)[-1] == FIRST
    status = (await done(stack, "status", "--json")).json
    assert [(one["name"], one["credential"]) for one in status["accounts"]] == [
        ("default", None),
        ("work", "login"),
    ]
