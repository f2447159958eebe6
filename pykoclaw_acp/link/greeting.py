"""The answer to `initialize`: the agent's capabilities. A front gives it too, when the daemon is
late.

Standard library only.
"""

from __future__ import annotations

from pykoclaw_acp import __version__
from pykoclaw_acp.link import logins

TYPE_CHECKING = False  # `typing` would cost the front half of its start-up time
if TYPE_CHECKING:
    from typing import Any, Final

PROTOCOL_VERSION: Final = 1


def greeting(capabilities: object = None, account: str | None = None) -> dict[str, Any]:
    """The answer; it names our own protocol version, whichever was asked for (ACP:
    never an error).

    `capabilities` are the client's, as it sent them; `account`: the one that its environment names.
    """
    return {
        "protocolVersion": PROTOCOL_VERSION,
        "agentCapabilities": {
            "loadSession": True,
            "promptCapabilities": {"image": True, "audio": False, "embeddedContext": True},
            "mcpCapabilities": {"http": True, "sse": True},
            "sessionCapabilities": {
                "resume": {},
                "close": {},
                "additionalDirectories": {},
                "list": {},
                "delete": {},
                "archive": {},
                "title": {},
                "systemPrompt": {"mode": {"override": {}}},
                "fork": {},
            },
            "auth": {"logout": {}, "status": {}},
            # As claude-agent-acp says it: its clients send prompts during a turn only then.
            "_meta": {"claudeCode": {"promptQueueing": True}},
        },
        "agentInfo": {"name": "pykoclaw-acp", "version": __version__, "title": "pykoclaw"},
        "authMethods": logins.methods(capabilities, account),
        "_meta": {"steering": {"supported": True}},  # as claude-agent-acp says it
    }
