"""A stdio MCP server by hand: one tool says what its secret is made of, one asks the user; a prompt
and a resource. Tests run it as a script.

`survey` passes its arguments on as an elicitation, and says what came back.
"""

import json
import os
import sys

TOOLS = {"whisper": "Whispers.", "survey": "Asks the user."}
TITLES = {"whisper": "Whisper a secret"}
NOTE = {"name": "one", "uri": "note://one", "mimeType": "text/plain"}


def answer(method: str, params: dict[str, object]) -> dict[str, object]:
    if method == "initialize":
        info = {"name": "secretary", "version": "1"}
        return {
            "protocolVersion": params["protocolVersion"],
            "capabilities": {"tools": {}, "prompts": {}, "resources": {}},
            "serverInfo": info,
        }
    if method == "tools/list":
        schema = {"type": "object", "properties": {}}
        return {
            "tools": [
                {
                    "name": name,
                    "description": said,
                    "inputSchema": schema,
                    "annotations": {"title": TITLES.get(name, name)},
                }
                for name, said in TOOLS.items()
            ]
        }
    if method == "prompts/list":
        return {"prompts": [{"name": "remind", "description": "Reminds."}]}
    if method == "resources/list":
        return {"resources": [NOTE]}
    if method == "resources/read":
        return {"contents": [{**NOTE, "text": "Buy milk.\nBuy bread."}]}
    if method == "tools/call":
        asks = params["name"] == "survey"
        words = elicit(params["arguments"]) if asks else f"backwards: {os.environ['SECRET'][::-1]}"
        return {"content": [{"type": "text", "text": words}]}
    return {}


def elicit(params: object) -> str:
    """Ask; gives the result as JSON."""
    print(
        json.dumps(
            {"jsonrpc": "2.0", "id": "form", "method": "elicitation/create", "params": params}
        ),
        flush=True,
    )
    for line in sys.stdin:
        message = json.loads(line)
        if message.get("id") == "form":
            return json.dumps(message.get("result"))
    return "the client is gone"


for line in sys.stdin:
    request = json.loads(line)
    if "id" in request:
        result = answer(request["method"], request.get("params") or {})
        print(json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": result}), flush=True)
