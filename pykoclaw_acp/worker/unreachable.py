"""Claude's service, or an MCP server, that cannot be reached: nobody takes the connection, or there
is no way to it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final
from urllib.parse import urlsplit
from urllib.request import proxy_bypass

from msgspec.structs import replace

from pykoclaw_acp.error_kinds import MISREAD, ErrorKind
from pykoclaw_acp.model.failures import TurnFailure
from pykoclaw_acp.neutral import neutral

# The codes that the CLI names in brackets, or first; `{}` is the host.
_WHY: Final[dict[str, str]] = {
    **dict.fromkeys(("ECONNREFUSED", "ConnectionRefused"), "nothing takes the connection at {}"),
    **dict.fromkeys(("ENOTFOUND", "EAI_AGAIN", "FailedToOpenSocket"), "the name {} is not found"),
    **dict.fromkeys(
        ("ENETUNREACH", "ENETDOWN", "EHOSTUNREACH", "EHOSTDOWN"), "there is no route to {}"
    ),
    "ERR_PROXY_TUNNEL": "the proxy refused the way to {}",
}
_USUAL: Final = "api.anthropic.com"
_BASE: Final = "ANTHROPIC_BASE_URL"
_PROXIES: Final = ("HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy")
_NO_PROXIES: Final = ("NO_PROXY", "no_proxy")
_ELSEWHERE: Final = ("CLAUDE_CODE_USE_BEDROCK", "CLAUDE_CODE_USE_VERTEX", "CLAUDE_CODE_USE_FOUNDRY")


def explained(failure: TurnFailure, words: str, environment: Mapping[str, str]) -> TurnFailure:
    """The failure, with the host that cannot be reached; `words` are the CLI's, `environment` is its
    own. Another failure as it is.
    """
    why = reason(words, _host(environment))
    if why is None or failure.status is not None:
        return failure
    said = f"Claude's service cannot be reached: {why}. {_advice(environment)}"
    return replace(failure, kind=ErrorKind.SERVICE_UNREACHABLE, message=said)


def reason(words: str, host: str) -> str | None:
    """What the CLI's words mean, with its code for it; None if they say nothing of a connection."""
    code = next((one for one in _WHY if f"({one})" in words or words.startswith(f"{one}:")), None)
    return None if code is None else f"{_WHY[code].format(host)} ({code})"


def _host(environment: Mapping[str, str]) -> str:
    """The host alone, in which no client finds a number that means something else to it."""
    if any(environment.get(name) for name in _ELSEWHERE):
        return "the configured address"
    shown = neutral(_address(environment)[:253])
    return f"the host in {_BASE}" if not shown or MISREAD in shown else f"`{shown}`"


def _address(environment: Mapping[str, str]) -> str:
    """The host's name, or its address; empty if it cannot be read."""
    try:
        return urlsplit(environment.get(_BASE, "")).hostname or _USUAL
    except ValueError:
        return ""


def _advice(environment: Mapping[str, str]) -> str:
    proxy = next((name for name in _PROXIES if environment.get(name)), None)
    direct = ",".join(environment.get(name, "") for name in _NO_PROXIES)
    if proxy_bypass(_address(environment), {"no": direct}):
        proxy = None
    checks = [
        f"{_BASE} and what it leads to" if environment.get(_BASE) else "the network connection",
        *([f"the proxy in {proxy}"] if proxy else []),
    ]
    return f"Check {' and '.join(checks)}, then send the prompt again."
