"""MCP servers that clients give, with the real CLI: on stdio, over http and over sse."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import pty
import re
import signal
import socket
from asyncio.subprocess import DEVNULL, PIPE

import pytest

from tests.e2e.commands import done, run
from tests.e2e.given_servers import program
from tests.e2e.harness import Client, RpcError, Stack, files, script, text
from tests.e2e.harness.client import selected
from tests.e2e.harness.processes import environment
from tests.e2e.harness.stack import PROGRAM
from tests.e2e.mcp_web import approve, ending, serving
from tests.e2e.other_programs import BUNDLED
from tests.waiting import eventually

SECRET = "s3cret-of-a-server"
LITERAL = "Bearer ${HOME} " + SECRET


def results(client: Client, session: str) -> list[str]:
    """What the tools have answered, in order."""
    ended = client.of(session, "tool_call_update")
    return [one["content"][0]["content"]["text"] for one in ended if one["status"] == "completed"]


async def test_claude_that_waits_for_slow_server_is_told(stack: Stack) -> None:
    gate = stack.root / "gate"
    os.mkfifo(gate)
    given = program("slow", SECRET)
    start = ["-c", 'read line < "$0"; exec "$@"', str(gate), given["command"], *given["args"]]
    client = await stack.start()
    session = await client.new(
        stack.work, mcpServers=[given | {"command": "/bin/sh", "args": start}]
    )
    prompted = client.prompting(session, text("Here."))
    await client.until(lambda: client.besides)
    gate.write_text("go\n")
    assert (await client.answer(prompted))["stopReason"] == "end_turn"
    assert len(client.besides) == 1
    assert client.besides[0].endswith("may be waiting for an MCP server: `slow`.\n\n")
    assert client.text(session) == "Here."
    client.besides.clear()
    await client.prompt(session, text("Again."))
    await client.load(session, stack.work)
    assert client.besides == []


async def test_servers_reach_claude_and_their_secrets_nothing_else(
    stack: Stack,
) -> None:
    """Also a worker that a new daemon has launched: the front gives it the servers again."""
    async with serving() as web, serving("sse") as events:
        headers = [{"name": "Authorization", "value": LITERAL}]
        given = [
            program("local", SECRET),
            web.given(headers=headers, url=f"{web.url}/mcp?key={SECRET}"),
            events.given(type="sse", name="events", url=f"{events.url}/sse", headers=headers),
        ]
        client = await stack.front()
        session = await client.new(stack.work, mcpServers=given)
        calls = (
            "tool mcp__local__whisper {}",
            'tool mcp__web__greet {"name": "Ada"}',
            'tool mcp__events__greet {"name": "Bob"}',
        )
        for round_ in (1, 2):
            await client.prompt(session, script(*calls, "text Done."))
            said = results(client, session)[-3:]
            assert said[0] == f"backwards: {SECRET[::-1]}"
            assert ["Ada" in said[1], "Bob" in said[2]] == [True, True]
            for server in (web, events):
                assert {one.get("authorization") for _, one in server.requests} == {LITERAL}
            if round_ == 1:
                await client.until(lambda: "mcp__local__remind" in commands(client, session))
                await no_secret_seen(stack)
                await stack.end_daemon(signal.SIGKILL)
                for one in stack.processes():
                    if one.is_worker:
                        one.kill()
                web.requests.clear()
                events.requests.clear()
        await client.load(session, stack.work, mcpServers=[])
        await client.prompt(session, script("tool mcp__local__whisper {}", "text Gone."))
        last = client.of(session, "tool_call_update")[-1]
        assert last["status"] == "failed", "the client has taken its servers back"
        await no_secret_seen(stack)


async def test_large_result_has_beginning_and_end(stack: Stack) -> None:
    rows = "\n".join(f"row {n}" for n in range(11_000))
    client = await stack.start()
    session = await client.new(stack.work, mcpServers=[program("long", rows[::-1])])
    await client.prompt(session, script("tool mcp__long__whisper {}", "text Done."))
    (said,) = results(client, session)
    assert said.startswith("backwards: row 0\nrow 1\n")
    assert " KiB left out; the whole is in /" in said
    assert said.endswith("row 10998\nrow 10999")


def commands(client: Client, session: str) -> set[str]:
    return {one["name"] for one in client.commands.get(session, [])}


async def no_secret_seen(stack: Stack) -> None:
    """Neither on a command line, nor in a file: transcripts, logs, spools, and the database."""
    own = {process.pid for process in stack.processes() if "mcp_server.py" in process.command}
    assert all(SECRET not in process.command for process in stack.processes())
    environments = {process.pid: environment(process.pid) for process in stack.processes()}
    assert {pid for pid, one in environments.items() if SECRET.encode() in one} <= own
    await eventually(lambda: files.holding(stack.root, SECRET) == [])
    assert SECRET not in json.dumps([dict(row) for row in stack.rows("SELECT * FROM acp_sessions")])


def notes(client: Client, session: str) -> str:
    """What pykoclaw-acp itself has said."""
    chunks = client.of(session, "agent_message_chunk")
    return "".join(
        one["content"]["text"] for one in chunks if one["_meta"].get("pykoclaw.dev/note")
    )


async def test_hanging_server_holds_up_first_prompt_only(stack: Stack) -> None:
    """It is started again when the user wants it: Claude takes no prompt up meanwhile."""
    started = stack.root / "started"
    hanging = ["-c", 'echo >> "$0"; exec sleep 1000', str(started)]
    client = await stack.start(MCP_TIMEOUT="1000")
    given = {"name": "mute", "command": "/bin/sh", "args": hanging, "env": []}
    session = await client.new(stack.work, mcpServers=[given])
    for words in ("One.", "Two.", "Three."):
        await client.prompt(session, text(words))
    assert started.read_text() == "\n"
    assert "connection timed out after" in notes(client, session)
    assert "`/mcp reconnect mute` then tries it again." in notes(client, session)
    await client.prompt(session, "/mcp reconnect mute")
    assert started.read_text() == "\n\n"


@pytest.mark.long
async def test_repaired_program_comes_back_by_itself(shared: Stack) -> None:
    """While its user does nothing."""
    started, gate = shared.root / "started", shared.root / "repaired"
    given = program("back", SECRET)
    start = ["-c", 'echo >> "$0"; [ -e "$1" ] || exit 1; shift; exec "$@"', str(started), str(gate)]
    start += [given["command"], *given["args"]]
    client = await shared.front()
    session = await client.new(
        shared.work, mcpServers=[given | {"command": "/bin/sh", "args": start}]
    )
    await client.prompt(session, text("One."))
    assert "and at once by `/mcp reconnect back`." in notes(client, session)
    before = started.read_text()
    gate.touch()
    await eventually(lambda: started.read_text() != before)
    await client.prompt(session, script("tool mcp__back__whisper {}", "text Two."))
    assert results(client, session)[-1] == f"backwards: {SECRET[::-1]}"


@pytest.mark.long
async def test_broken_server_is_told_once_and_tried_again(shared: Stack) -> None:
    place = socket.socket()  # bound, so that no other program gets it; it does not listen yet
    place.bind(("127.0.0.1", 0))
    port = place.getsockname()[1]
    headers = [{"name": "Authorization", "value": SECRET}]
    url = f"http://127.0.0.1:{port}/mcp?key={SECRET}"
    dead = {"type": "http", "name": "dead", "url": url, "headers": headers}
    async with serving(sign_in=True) as web:
        client = await shared.front()
        session = await client.new(shared.work, mcpServers=[dead, web.given()])
        await client.prompt(session, text("One."))
        said = notes(client, session)
        assert "**MCP server `dead` does not work: " in said
        assert "ECONNREFUSED" in said
        assert (
            "**MCP server `web` wants you to sign in.** Run `pykoclaw-acp mcp login --account default web`"
            in said
        )
        assert SECRET not in said
        await client.prompt(session, text("Two."))
        await client.prompt(session, "/mcp")
        (table,) = [one for one in client.text(session).split("## ") if "MCP servers\n" in one]
        assert "| dead | does not work |" in table
        assert "| web | wants a sign-in |" in table
        assert SECRET not in table
        await done(shared, "workers", "stop")
        await client.prompt(session, text("Three."))
        assert notes(client, session) == said, "told again, by this worker or the next"
        async with serving(place=place) as repaired:
            await eventually(lambda: repaired.requests)
            call = 'tool mcp__dead__greet {"name": "Ada"}'

            async def works() -> list[str]:
                await client.prompt(session, script(call, "text Four."))
                return [one for one in results(client, session) if "Hello, Ada." in one]

            works_now: list[str] = await eventually(works)
            assert works_now
        other = await client.new(shared.work, mcpServers=[dead])
        await client.prompt(other, text("Five."))
        assert "`dead` does not work" in notes(client, other), "not told in another session"


@pytest.mark.long
async def test_prompt_ends_though_server_writes_without_end(stack: Stack) -> None:
    """It keeps Claude's process from reading anything: not ready in time, or with a prompt that it
    never begins.
    """
    client = await stack.front()
    spam = {"name": "spam", "command": "/usr/bin/yes", "args": [], "env": []}
    session = await client.new(stack.work, mcpServers=[spam])
    with pytest.raises(RpcError) as refused:
        await asyncio.wait_for(client.prompting(session, text("Never.")), 900)
    assert refused.value.message.count("`spam`") == 1
    assert refused.value.kind in ("worker_lost", "start_timeout")
    await client.load(session, stack.work, mcpServers=[])
    await client.prompt(session, text("Works."))
    assert "Works." in client.text(session)


@pytest.mark.long
async def test_user_signs_in_on_page_client_opens(stack: Stack) -> None:
    """Once: Claude keeps the token, where only the user can read it."""
    async with serving(sign_in=True) as web:
        client = await stack.spawn_front()
        await client.initialize(clientCapabilities={"elicitation": {"url": {}}})
        client.permit = lambda asked: None if "mode" in asked else selected("allow_once")
        session = await client.new(stack.work, mcpServers=[web.given()])
        await client.prompt(session, text("Without it."))
        (page,) = await client.until(lambda: client.questions)
        params = page["params"]
        assert (params["mode"], params["elicitationId"]) == ("url", page["id"])
        assert params["message"].startswith("web asks: Sign in")
        client.reply(page, {"action": "accept"})

        async def stays() -> bool:
            details = await client.call("_pykoclaw.dev/sessions/show", session=session)
            return bool(details["worker"]["state"] == "background")

        stays_meanwhile: bool = await eventually(stays)
        assert stays_meanwhile, "the worker in which Claude waits for the browser"
        await approve(params["url"])
        call = 'tool mcp__web__greet {"name": "Ada"}'

        async def works() -> list[str]:
            await client.prompt(session, script(call, "text With it."))
            return [one for one in results(client, session) if "Hello, Ada." in one]

        works_now: list[str] = await eventually(works)
        assert works_now
        asked = len(client.questions)
        other = await client.new(stack.work, mcpServers=[web.given()])
        await client.prompt(other, script(call, "text With it."))
        assert "Hello, Ada." in results(client, other)[-1]
        assert all("mode" not in one["params"] for one in client.questions[asked:])
        assert notes(client, other) == ""
        assert web.accounts is not None
        issued = list(web.accounts.tokens)  # the CLI may have renewed the first one already
        (kept,) = files.holding(stack.root, issued[-1])
        assert kept.name == ".credentials.json"
        assert kept.stat().st_mode & 0o077 == 0
        assert {path for token in issued for path in files.holding(stack.root, token)} == {kept}


@pytest.mark.long
async def test_command_signs_in_to_clients_server(stack: Stack) -> None:
    """The session that is open has it with its next prompt; headers belong to the server."""
    headers = [{"name": "X-Tenant", "value": SECRET}]
    async with serving(sign_in=True) as web:
        client = await stack.front()
        session = await client.new(stack.work, mcpServers=[web.given(headers=headers)])
        await client.prompt(session, text("Without it."))
        (listed,) = (await done(stack, "mcp", "list", "--json")).json
        assert listed == {
            "name": "web",
            "transport": "http",
            "address": f"{web.url}/mcp",
            "sessions": 1,
        }
        command = await asyncio.create_subprocess_exec(
            *PROGRAM, "mcp", "login", "web", stdin=PIPE, stdout=PIPE, env=stack.environment
        )
        assert command.stdin is not None
        assert command.stdout is not None
        page = ""
        while not page.startswith(web.url):
            page = (await asyncio.wait_for(command.stdout.readline(), 120)).decode().strip()
        command.stdin.write(f"{await ending(page)}\n".encode())  # a browser on another machine
        out, _ = await asyncio.wait_for(command.communicate(), 120)
        assert "Signed in to web." in out.decode()
        assert command.returncode == 0
        call = 'tool mcp__web__greet {"name": "Ada"}'
        await client.prompt(session, script(call, "text With it."))
        assert "Hello, Ada." in "".join(results(client, session))
        again = await done(stack, "mcp", "login", f"{web.url}/mcp")
        assert "nothing to sign in to" in again.out
        for one in ("login", "logout"):
            refused = await run(stack, "mcp", one, "nothing")
            assert "There is no MCP server nothing" in refused.error
            assert refused.status == 1
        assert web.accounts is not None
        assert web.accounts.tokens
        left = await done(stack, "mcp", "logout", "web")
        assert "Signed out of web." in left.out
        assert "/revoke" in [path for path, _ in web.requests]
        assert files.holding(stack.root, "access-", "refresh-") == []
        await done(stack, "workers", "stop")
        await client.prompt(session, text("Without it again."))
        assert notes(client, session).count("wants you to sign in") == 2
        await no_secret_seen(stack)


@pytest.mark.long
async def test_command_signs_in_to_directorys_server(stack: Stack) -> None:
    """One that `claude mcp add` has added there: Claude's own command does it, in a terminal."""
    async with serving(sign_in=True) as web:
        added = await asyncio.create_subprocess_exec(
            BUNDLED, "mcp", "add", "--transport", "http", "web", f"{web.url}/mcp",
            cwd=stack.work, env=stack.environment, stdin=DEVNULL, stdout=DEVNULL,
        )  # fmt: skip
        assert await asyncio.wait_for(added.wait(), 120) == 0
        client = await stack.front()
        session = await client.new(stack.work)
        await client.prompt(session, text("Without it."))
        told = "Run `pykoclaw-acp mcp login --account default web`, in this session's directory, in a terminal."
        assert told in notes(client, session)
        assert "There is no MCP server web" in (await run(stack, "mcp", "login", "web")).error
        terminal, theirs = pty.openpty()
        try:
            command = await asyncio.create_subprocess_exec(
                *PROGRAM, "mcp", "login", "web", cwd=stack.work, env=stack.environment,
                stdin=theirs, stdout=theirs, stderr=theirs,
            )  # fmt: skip
            os.close(theirs)
            said = b""
            page = re.compile(re.escape(f"{web.url}/authorize?".encode()) + rb"[^\s\x1b\x07]+")
            while not (b"paste" in said and page.search(said)):
                said += await asyncio.to_thread(os.read, terminal, 4096)
            (found,) = set(page.findall(said))
            os.write(terminal, f"{await ending(found.decode())}\r".encode())
            with contextlib.suppress(OSError):  # the command has ended
                while await asyncio.to_thread(os.read, terminal, 4096):
                    pass
            assert await asyncio.wait_for(command.wait(), 120) == 0
        finally:
            os.close(terminal)
        call = 'tool mcp__web__greet {"name": "Ada"}'
        await client.prompt(session, script(call, "text With it."))
        assert "Hello, Ada." in "".join(results(client, session))
