"""The wire: what a client may get wrong, and the connection lives on."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pykoclaw_acp import __version__
from tests.e2e.harness import Client, RpcError, Stack, script, text


async def error_of(client: Client, method: str, /, **params: Any) -> RpcError:
    with pytest.raises(RpcError) as error:
        await client.call(method, **params)
    return error.value


async def lives(client: Client) -> None:
    """The connection still works; everything that was written before is answered by now."""
    await client.initialize()


async def test_initialize_is_honest(shared: Stack) -> None:
    client = await shared.spawn()
    answer = await client.initialize()
    assert answer["protocolVersion"] == 1
    assert answer["agentInfo"]["name"] == "pykoclaw-acp"
    assert answer["agentInfo"]["version"] == __version__
    offered = answer["agentCapabilities"]
    assert offered["loadSession"] is True
    assert offered["promptCapabilities"] == {
        "image": True,
        "audio": False,
        "embeddedContext": True,
    }
    assert offered["_meta"] == {"claudeCode": {"promptQueueing": True}}
    assert offered["mcpCapabilities"] == {"http": True, "sse": True}
    assert set(offered["sessionCapabilities"]) == {
        "resume",
        "close",
        "additionalDirectories",
        "list",
        "delete",
        "archive",
        "title",
        "systemPrompt",
        "fork",
    }


async def test_other_protocol_versions_are_answered_with_ours(shared: Stack) -> None:
    client = await shared.spawn()
    for version in (0, 2, 999, 65535):
        assert (await client.initialize(protocolVersion=version))["protocolVersion"] == 1, version


async def test_bad_client_capabilities_fall_back(shared: Stack) -> None:
    client = await shared.spawn()
    for bad in (
        {"clientCapabilities": "all of them", "clientInfo": 7},
        {
            "clientCapabilities": {"fs": "yes", "terminal": 5, "new": {}},
            "clientInfo": {"name": 1, "version": None},
        },
        {"clientCapabilities": [1, 2], "clientInfo": {"name": "x"}},
        {"clientCapabilities": None, "clientInfo": None},
    ):
        assert (await client.initialize(**bad))["protocolVersion"] == 1, bad


async def test_nothing_comes_before_initialize(shared: Stack) -> None:
    client = await shared.spawn()
    error = await error_of(client, "session/new", cwd=str(shared.work), mcpServers=[])
    assert error.code == -32600
    assert "initialize" in error.message
    await lives(client)
    await client.new(shared.work)


NO_MESSAGES = [
    (b"{", -32700),
    (b'{"jsonrpc":"2.0","id":1,"method":"x"', -32700),
    (b"not json at all", -32700),
    (b'{"jsonrpc":"2.0","id":1,"method":"\xff\xfe"}', -32700),
    (
        b'[{"jsonrpc":"2.0","id":1,"method":"initialize"},{"jsonrpc":"2.0","id":2,"method":"x"}]',
        -32600,
    ),
    (b"[]", -32600),
    (b"42", -32600),
    (b'"text"', -32600),
    (b"{}", -32600),
    (b'{"jsonrpc":"2.0","id":{"a":1},"method":"x"}', -32600),
    (b'{"jsonrpc":"2.0","id":1.5,"method":"x"}', -32600),
]


async def test_lines_that_are_no_message(shared: Stack) -> None:
    """One error each, under `id` null."""
    client = await shared.spawn()
    for line, code in NO_MESSAGES:
        client.unplaced.clear()
        client.write(line + b"\n")
        await lives(client)
        assert [error["code"] for error in client.unplaced] == [code], line


async def test_json_nested_without_end(shared: Stack) -> None:
    client = await shared.spawn()
    for line in (b"[" * 200_000, b'{"a":' * 200_000, b'{"jsonrpc":"2.0","id":' + b"[" * 200_000):
        client.unplaced.clear()
        client.write(line + b"\n")
        await lives(client)
        assert [error["code"] in (-32700, -32600) for error in client.unplaced] == [True], line[:30]


async def test_bad_envelopes_are_answered_under_their_id(shared: Stack) -> None:
    client = await shared.spawn()
    for envelope in ({"id": 5, "method": "initialize"}, {"id": 5, "jsonrpc": "2.0", "method": 7}):
        future = client.expect(5, "initialize")
        client.send(envelope)
        with pytest.raises(RpcError, match="-32600"):
            await client.answer(future)


async def test_blank_lines_line_ends_and_pieces(shared: Stack) -> None:
    client = await shared.spawn()
    message, answered = client.request("initialize", protocolVersion=1)
    line = json.dumps(message).encode()
    client.write(b"\n\r\n  \n" + line[:20])
    client.write(line[20:] + b"\r\n")
    assert (await client.answer(answered))["protocolVersion"] == 1
    assert client.unplaced == []


async def test_ids_are_echoed_exactly(shared: Stack) -> None:
    client = await shared.spawn()
    for message_id in ("a string", "", '\u00e9\U0001f600"\\', 0, -7, 2**53, 10**30, None):
        future = client.expect(message_id, "initialize")
        client.send(
            {
                "jsonrpc": "2.0",
                "id": message_id,
                "method": "initialize",
                "params": {"protocolVersion": 1},
            }
        )
        await client.answer(future)


async def test_unknown_methods_are_refused(shared: Stack) -> None:
    client = await shared.start()
    error = await error_of(client, "session/dance")
    assert (error.code, error.data) == (-32601, {"method": "session/dance"})
    assert (await error_of(client, "_vendor/thing", x=1)).code == -32601
    answered = len(client.received)
    client.notify("session/dance", x=1)
    client.notify("$/unknown")
    client.notify("session/cancel", sessionId=["wrong"])
    await lives(client)
    assert len(client.received) == answered + 1


async def test_answers_that_nobody_asked_for_are_ignored(shared: Stack) -> None:
    client = await shared.start()
    answered = len(client.received)
    client.send(
        {"jsonrpc": "2.0", "id": "never asked", "result": {"outcome": {"outcome": "cancelled"}}},
        {"jsonrpc": "2.0", "id": 77, "error": {"code": 1, "message": "no"}},
        {"jsonrpc": "2.0", "result": {}},
        {"jsonrpc": "2.0", "id": None, "error": {"code": -32700, "message": "no"}},
        {"jsonrpc": "2.0", "id": "x", "result": None},
    )
    await lives(client)
    assert len(client.received) == answered + 1


SECRET = "s3cret-value"
PROMPT = [{"type": "text", "text": "x"}]
BAD_BLOCK = {"type": "text", "text": [SECRET]}
BAD_SERVER = {"name": "a", "command": "b", "args": [], "env": [{"name": "K", "value": [SECRET]}]}


WRONG: list[tuple[str, dict[str, Any], str]] = [
    ("session/new", {"mcpServers": []}, "cwd"),
    ("session/new", {"cwd": "/"}, "mcpServers"),
    ("session/new", {"cwd": [SECRET], "mcpServers": []}, "cwd"),
    ("session/new", {"cwd": "/", "mcpServers": SECRET}, "mcpServers"),
    ("session/new", {"cwd": "/", "mcpServers": [SECRET]}, "mcpServers[0]"),
    ("session/new", {"cwd": "/", "mcpServers": [BAD_SERVER]}, "mcpServers[0].env[0].value"),
    (
        "session/new",
        {"cwd": "/", "mcpServers": [], "additionalDirectories": [SECRET]},
        "additionalDirectories[0]",
    ),
    ("session/prompt", {"sessionId": 7, "prompt": PROMPT}, "sessionId"),
    ("session/prompt", {"sessionId": "x", "prompt": []}, "prompt"),
    ("session/prompt", {"sessionId": "x", "prompt": SECRET}, "prompt"),
    ("session/prompt", {"sessionId": "x", "prompt": [{"type": "text", "text": " \n"}]}, "prompt"),
    (
        "session/prompt",
        {"sessionId": "x", "prompt": [{"type": SECRET, "text": "x"}]},
        "prompt[0].type",
    ),
    ("session/prompt", {"sessionId": "x", "prompt": [*PROMPT, BAD_BLOCK]}, "prompt[1].text"),
    ("session/load", {"sessionId": "x", "cwd": "relative/" + SECRET, "mcpServers": []}, "cwd"),
    ("session/new", {"cwd": "relative/" + SECRET, "mcpServers": []}, "cwd"),
    ("initialize", {"protocolVersion": SECRET}, "protocolVersion"),
]


async def test_wrong_parameters_name_the_field_and_echo_nothing(shared: Stack) -> None:
    client = await shared.start()
    for method, params, field in WRONG:
        error = await error_of(client, method, **params)
        assert error.code == -32602
        assert f"`{field}`" in error.message
        assert SECRET not in json.dumps([error.message, error.data])
    await lives(client)
    assert SECRET not in shared.server_log(client)


async def test_parameters_that_are_no_object(shared: Stack) -> None:
    client = await shared.start()
    for params in ([1, 2], "text", 5):
        future = client.expect("here", "session/new")
        client.send({"jsonrpc": "2.0", "id": "here", "method": "session/new", "params": params})
        with pytest.raises(RpcError, match="-32602"):
            await client.answer(future)


async def test_meta_never_merges_into_parameters(shared: Stack) -> None:
    client = await shared.start()
    evil = {
        "cwd": "/evil",
        "sessionId": "evil",
        "additionalDirectories": ["/evil"],
        "mcpServers": [{"name": "evil"}],
    }
    session = await client.new(shared.work, _meta=evil)
    (row,) = shared.rows("SELECT * FROM acp_sessions WHERE acp_session_id = ?", session)
    assert (row["cwd"], row["additional_directories"]) == (str(shared.work), "[]")
    assert (
        shared.rows("SELECT * FROM acp_sessions WHERE acp_session_id = 'evil' OR cwd = '/evil'")
        == []
    )


async def test_directory_must_exist_for_a_new_session(shared: Stack) -> None:
    client = await shared.start()
    error = await error_of(client, "session/new", cwd=str(shared.root / "nowhere"), mcpServers=[])
    assert error.code == -32602
    (shared.root / "file").write_text("")
    assert (
        await error_of(client, "session/new", cwd=str(shared.root / "file"), mcpServers=[])
    ).code == -32602


@pytest.mark.parametrize("method", ["session/load", "session/resume"])
async def test_session_of_another_directory(shared: Stack, method: str) -> None:
    client = await shared.start()
    session = await client.new(shared.work)
    other = shared.root / "other"
    other.mkdir()
    error = await error_of(client, method, sessionId=session, cwd=str(other), mcpServers=[])
    assert error.code == -32602
    assert error.data == {
        "sessionCwd": str(shared.work),
        "cwd": str(other),
        "instead": "session/fork",
    }
    link = shared.root / "link"
    link.symlink_to(shared.work)
    await client.call(method, sessionId=session, cwd=str(link), mcpServers=[])


@pytest.mark.long
async def test_line_over_64_mib(stack: Stack) -> None:
    client = await stack.start()
    filler = b"x" * (65 * 1024 * 1024)
    long = client.expect("long", "session/new")
    client.write(
        b'{"jsonrpc":"2.0","id":"long","method":"session/new","params":{"cwd":"', filler, b'"}}\n'
    )
    with pytest.raises(RpcError, match="64 MiB") as refused:
        await client.answer(long)
    assert refused.value.code == -32600
    await lives(client)
    session = await client.new(stack.work)
    await client.prompt(session, text("It lives."))
    assert client.text(session) == "It lives."


NOISE = """
import atexit, os, sys

print("noise at import")
atexit.register(print, "noise at exit", flush=True)
done = []

def hook(event, args):
    if event == "os.listdir" and args[0] == "/proc" and not done:  # the server looks for strays: it is up
        done.append(event)
        print("noise in the middle", flush=True)
        os.write(1, b"noise on the descriptor\\n")
        os.system("echo noise of a child")

sys.addaudithook(hook)
"""


@pytest.mark.long
async def test_what_libraries_print_does_not_reach_the_client(stack: Stack) -> None:
    library = stack.root / "library"
    library.mkdir()
    (library / "sitecustomize.py").write_text(NOISE)
    # Unbuffered, Python would write what is printed before our first line itself.
    client = await stack.start(PYTHONPATH=str(library), PYTHONUNBUFFERED="")
    session = await client.new(stack.work)
    await client.prompt(session, text("Pure."))
    assert await client.close() == 0
    said = client.log.read_text()
    for noise in ("in the middle", "on the descriptor", "of a child", "at exit", "at import"):
        assert f"noise {noise}" in said


@pytest.mark.long
async def test_stdin_is_not_shared_with_children(stack: Stack) -> None:
    """A tool that reads its stdin gets nothing of the client's messages."""
    client = await stack.start()
    session = await client.new(stack.work)
    pending = client.prompting(
        session, script("bash touch begun; cat > stolen; touch over", "text Done.")
    )
    assert (await client.answer(pending))["stopReason"] == "end_turn"
    assert (stack.work / "stolen").read_bytes() == b""


async def test_last_line_without_a_newline(stack: Stack) -> None:
    client = await stack.spawn()
    message, answered = client.request("initialize", protocolVersion=1)
    client.write(json.dumps(message).encode())
    assert await client.close() == 0
    assert (await client.answer(answered))["protocolVersion"] == 1
