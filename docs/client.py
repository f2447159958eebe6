#!/usr/bin/env python3
"""A complete ACP client, standard library only: `client.py [--session ID] PROMPT...`.

Sends each PROMPT in a new session, or in session ID, and prints the answers. Permission requests
are answered at the terminal; without a terminal they are rejected.
"""

import json
import os
import subprocess
import sys

agent = subprocess.Popen(["pykoclaw-acp"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
calls = 0
speaker = ""  # kind of message that is being printed


def send(message: dict) -> None:
    agent.stdin.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    agent.stdin.flush()


def call(method: str, **params: object) -> dict:
    """Send a request and handle what the agent sends until its response."""
    global calls  # noqa: PLW0603
    calls += 1
    send({"id": calls, "method": method, "params": params})
    for line in agent.stdout:
        message = json.loads(line)
        if message.get("method") == "session/update":
            show(message["params"]["update"])
        elif message.get("method") == "session/request_permission":
            send({"id": message["id"], "result": {"outcome": decide(message["params"])}})
        elif message.get("id") == calls and "method" not in message:
            if "error" in message:
                sys.exit(message["error"]["message"])
            return message["result"]
    sys.exit("The agent closed the connection.")


def show(update: dict) -> None:
    global speaker  # noqa: PLW0603
    kind = update["sessionUpdate"]
    if (
        kind in ("user_message_chunk", "agent_message_chunk")
        and update["content"]["type"] == "text"
    ):
        if speaker not in ("", kind):
            print()
        speaker = kind
        print(update["content"]["text"], end="", flush=True)
    elif kind == "tool_call":
        print(f"\n[{update['title']}]", flush=True)


def decide(request: dict) -> dict:
    for option in request["options"]:
        question = f"\n{request['toolCall']['title']}: {option['name']}? [y/n] "
        if option["kind"].startswith("reject") or (sys.stdin.isatty() and input(question) == "y"):
            return {"outcome": "selected", "optionId": option["optionId"]}
    return {"outcome": "cancelled"}


prompts = sys.argv[1:]
call("initialize", protocolVersion=1, clientInfo={"name": "example", "version": "1"})
if prompts[:1] == ["--session"]:
    _, session, *prompts = prompts
    call("session/load", sessionId=session, cwd=os.getcwd(), mcpServers=[])
    print("\n(what was said before)")
else:
    session = call("session/new", cwd=os.getcwd(), mcpServers=[])["sessionId"]
for prompt in prompts:
    result = call("session/prompt", sessionId=session, prompt=[{"type": "text", "text": prompt}])
    print(f"\n({result['stopReason']})")
print(f"Continue with: python3 {sys.argv[0]} --session {session} PROMPT")
