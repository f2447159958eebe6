"""What `/usage` shows: limits of the account, cost and tokens of the session, as Markdown, from what
the CLI answers to a request of its own. Its text for terminals has less.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import datetime
from typing import Any, Final

import structlog
from claude_agent_sdk import ClaudeSDKClient

from pykoclaw_acp.neutral import neutral
from pykoclaw_acp.translation.texts import duration
from pykoclaw_acp.worker import sdk_private
from pykoclaw_acp.worker.limits import local_time

COMMAND: Final = "/usage"
LIMIT: Final = 10.0  # s; the CLI may have to ask its service
CELLS: Final = 20  # of a bar
MOST: Final = 5  # recommendations, and MCP servers, of a period
_WINDOWS: Final = {
    "five_hour": "5 hours",
    "seven_day": "7 days, all models",
    "seven_day_opus": "7 days, Opus",
    "seven_day_sonnet": "7 days, Sonnet",
    "seven_day_oauth_apps": "7 days, other apps",
}
_PERIODS: Final = {"day": "the last 24 hours", "week": "the last 7 days"}
_TOKENS: Final = {
    "inputTokens": "Input",
    "outputTokens": "Output",
    "cacheReadInputTokens": "Cache read",
    "cacheCreationInputTokens": "Cache write",
}

log: Final = structlog.get_logger()


async def report(client: ClaudeSDKClient) -> str | None:
    """The usage as Markdown; None if the CLI does not say it."""
    try:
        async with asyncio.timeout(LIMIT):
            return markdown(await sdk_private.control(client, {"subtype": "get_usage"}))
    except Exception as error:  # noqa: BLE001  the SDK raises bare ones, and an answer may be another
        log.info("The usage is not known", action="usage_unknown", error=str(error)[:200])
        return None


def markdown(usage: dict[str, Any]) -> str:
    """The CLI's answer as Markdown; raises what a value of another type raises."""
    lines = ["## Usage"]
    if plan := usage.get("subscription_type"):
        lines += ["", f"Subscription: {plain(plan)}"]
    if limits := list(_limits(usage.get("rate_limits") or {})):
        lines += ["", "### Limits", "", "| limit | used | | resets |", "|---|---|---|---|", *limits]
    lines += ["", "### This session", "", *_session(usage["session"])]
    for name, said in _PERIODS.items():
        lines += _period(said, (usage.get("behaviors") or {}).get(name))
    return "\n".join(lines)


def _limits(limits: dict[str, Any]) -> Iterator[str]:
    models = limits.get("model_scoped") or []
    known = [(said, limits.get(name)) for name, said in _WINDOWS.items()]
    for said, one in [*known, *((f"7 days, {one['display_name']}", one) for one in models)]:
        if one and one.get("utilization") is not None:
            resets = one.get("resets_at")
            when = "" if not resets else local_time(datetime.fromisoformat(resets).timestamp())
            yield _limit(said, one["utilization"], when)
    extra = limits.get("extra_usage") or {}
    if extra.get("is_enabled") and extra.get("utilization") is not None:
        yield _limit("extra usage", extra["utilization"], "")


def _limit(said: str, percent: float, when: str) -> str:
    return f"| {plain(said)} | {percent:.3g} % | `{_bar(percent)}` | {when} |"


def _session(session: dict[str, Any]) -> Iterator[str]:
    yield f"Estimated cost: ${session['total_cost_usd']:.2f}"
    asked, whole = session["total_api_duration_ms"], session["total_duration_ms"]
    yield ""
    yield f"Time: {duration(asked / 1000)} of requests, {duration(whole / 1000)} in all"
    models = session.get("model_usage") or {}
    if models:
        yield from ("", f"| model | {' | '.join(_TOKENS.values())} |", f"|---|{'--:|' * 4}")
    for name, used in models.items():
        tokens = " | ".join(_count(used[key]) for key in _TOKENS)
        yield f"| {plain(name)} | {tokens} |"


def _period(said: str, period: dict[str, Any] | None) -> list[str]:
    if not period:
        return []
    counts = f"{period['request_count']} requests in {period['session_count']} sessions"
    lines = ["", f"### What used your limits in {said}", "", f"{counts}, on this machine"]
    shares = [
        *((one["pct"], one["title"]) for one in (period.get("recommendations") or [])[:MOST]),
        *(
            (one["pct"], f"MCP server {one['name']}")
            for one in (period.get("mcp_servers") or [])[:MOST]
        ),
    ]
    if shares:
        lines += ["", *(f"- {share:.3g} %: {plain(what)}" for share, what in shares)]
    return lines


def _bar(percent: float) -> str:
    filled = round(max(0.0, min(100.0, percent)) / 100 * CELLS)
    return "█" * filled + "░" * (CELLS - filled)


def _count(tokens: int) -> str:
    if tokens < 1000:
        return str(tokens)
    return f"{tokens / 1000:.1f}k" if tokens < 1_000_000 else f"{tokens / 1_000_000:.1f}M"


def plain(text: object) -> str:
    """Text of others in a line of Markdown, which it must not change."""
    line = neutral(str(text))
    return "".join(f"\\{one}" if one in "\\`*_[]<>|#" else one for one in line)
