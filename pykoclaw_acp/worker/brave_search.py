"""Web search by Brave's API, for the tool `brave_search`."""

from __future__ import annotations

import json
import urllib.error
import urllib.parse
import urllib.request
from typing import Any, Final

DESCRIPTION: Final = (
    "Search the web with Brave Search, which works outside of the US too, unlike WebSearch. Returns"
    " titles, URLs and descriptions."
)
SCHEMA: Final = {
    "type": "object",
    "properties": {
        "query": {"type": "string", "description": "What to search for."},
        "count": {"type": "integer", "description": "Number of results, 1 to 20; 10 by default."},
        "freshness": {
            "type": "string",
            "enum": ["pd", "pw", "pm", "py"],
            "description": "Results of the past day (pd), week (pw), month (pm) or year (py) only.",
        },
    },
    "required": ["query"],
}
ADDRESS: Final = "https://api.search.brave.com/res/v1/web/search"
TIMEOUT: Final = 15.0  # s
MAX_ANSWER: Final = 4 * 1024 * 1024  # bytes


def search(key: str, given: dict[str, Any]) -> str:
    """Search, for at most `TIMEOUT` between two bytes; an error is text too."""
    query = given["query"]
    wanted = {"q": query, "count": min(int(given.get("count", 10)), 20)}
    if freshness := given.get("freshness"):
        wanted["freshness"] = freshness
    request = urllib.request.Request(  # noqa: S310  the address is a constant
        f"{ADDRESS}?{urllib.parse.urlencode(wanted)}",
        headers={"Accept": "application/json", "X-Subscription-Token": key},
    )
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT) as response:  # noqa: S310
            found = json.loads(response.read(MAX_ANSWER)).get("web", {}).get("results", [])
    except urllib.error.HTTPError as error:
        return f"Brave Search error: HTTP {error.code} {error.reason}"
    except Exception as error:  # noqa: BLE001  whatever it is, the model is told
        return f"Brave Search error: {error}"
    texts = (
        f"**{one.get('title', '')}**\n{one.get('url', '')}\n{one.get('description', '')}"
        for one in found
    )
    return "\n\n".join(texts) or f"No results found for: {query}"
