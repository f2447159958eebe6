"""`/usage` as Markdown, of what the CLI answers."""

from __future__ import annotations

from typing import Any

import pytest

from pykoclaw_acp.worker import usage_report

MODEL = {
    "inputTokens": 11400,
    "outputTokens": 12,
    "cacheReadInputTokens": 1_500_000,
    "cacheCreationInputTokens": 0,
}
SESSION = {
    "total_cost_usd": 0.0456,
    "total_api_duration_ms": 900,
    "total_duration_ms": 61_000,
    "model_usage": {"claude-*opus*": MODEL},
}
BARE = {
    "session": SESSION,
    "subscription_type": None,
    "rate_limits_available": False,
    "rate_limits": None,
    "behaviors": None,
}


class Client:
    """A client whose CLI answers so, or raises."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer
        self.asked: list[dict[str, Any]] = []
        self._query = self

    async def _send_control_request(self, request: dict[str, Any]) -> Any:
        self.asked.append(request)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


def test_a_session_has_its_cost_and_tokens() -> None:
    assert usage_report.markdown(BARE).splitlines() == [
        "## Usage",
        "",
        "### This session",
        "",
        "Estimated cost: $0.05",
        "",
        "Time: 1 s of requests, 1 min 1 s in all",
        "",
        "| model | Input | Output | Cache read | Cache write |",
        "|---|--:|--:|--:|--:|",
        "| claude-\\*opus\\* | 11.4k | 12 | 1.5M | 0 |",
    ]


def test_limits_and_what_used_them_are_shown() -> None:
    window = {"utilization": 50, "resets_at": "2026-01-01T00:00:00Z"}
    period = {
        "request_count": 7,
        "session_count": 2,
        "recommendations": [{"key": "x", "pct": 40, "title": "Long | contexts"}],
        "mcp_servers": [{"name": "web", "pct": 12.5}],
    }
    shown = usage_report.markdown(
        {
            **BARE,
            "subscription_type": "max",
            "rate_limits": {
                "five_hour": window,
                "seven_day": None,
                "model_scoped": [{**window, "display_name": "Opus", "resets_at": None}],
                "extra_usage": {"is_enabled": True, "utilization": 3},
            },
            "behaviors": {"day": period, "week": None},
        }
    )
    lines = shown.splitlines()
    assert "Subscription: max" in lines
    five, opus, extra = (line for line in lines if "█" in line or "░" in line)
    assert five.startswith("| 5 hours | 50 % | `██████████░░░░░░░░░░` | ")
    assert len(five.split("|")[-2]) > 2, "when it resets"
    assert opus == "| 7 days, Opus | 50 % | `██████████░░░░░░░░░░` |  |"
    assert extra.startswith("| extra usage | 3 % | `█░")
    assert "7 requests in 2 sessions, on this machine" in lines
    assert "- 40 %: Long \\| contexts" in lines
    assert "- 12.5 %: MCP server web" in lines


@pytest.mark.parametrize("answer", [{}, {"session": 3}, RuntimeError("unknown subtype"), None])
async def test_another_kind_of_answer_leaves_clis_words(answer: Any) -> None:
    client: Any = Client(answer)
    assert await usage_report.report(client) is None
    assert client.asked == [{"subtype": "get_usage"}]
