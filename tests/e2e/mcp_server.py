"""A stdio MCP server by hand, with one tool: it says what its secret is made of. Run as a script by test_limits."""

import json
import os
import sys


def answer(method: str, params: dict[str, object]) -> dict[str, object]:
    if method == "initialize":
        info = {"name": "secretary", "version": "1"}
        return {"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}}, "serverInfo": info}
    if method == "tools/list":
        tool = {"name": "whisper", "description": "Whispers.", "inputSchema": {"type": "object", "properties": {}}}
        return {"tools": [tool]}
    if method == "tools/call":
        words = f"backwards: {os.environ['SECRET'][::-1]}"
        return {"content": [{"type": "text", "text": words}]}
    return {}


for line in sys.stdin:
    request = json.loads(line)
    if "id" in request:
        result = answer(request["method"], request.get("params") or {})
        print(json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": result}), flush=True)
