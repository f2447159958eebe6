"""What the CLI says of content that it does not take, as it was seen to say it."""

from __future__ import annotations

import pytest
from claude_agent_sdk import ResultMessage

from pykoclaw_acp.worker.failures import turn_failure


def failure(words: str, status: int | None, named: str = "invalid_request") -> tuple[str, str]:
    result = ResultMessage(
        subtype="success", duration_ms=1, duration_api_ms=1, is_error=True, num_turns=1, session_id="s", result=words,
        api_error_status=status,
    )  # fmt: skip
    found = turn_failure(result, (named, words))
    return found.kind, found.message


@pytest.mark.parametrize(
    ("words", "kind", "advice"),
    [
        ("Prompt is too long", "context_too_large", "Shorten it"),
        ("Prompt is too long · A single-exchange conversation cannot be compacted", "context_too_large", "attach less"),
        ("Prompt is too long · automatic compaction failed: API Error: 400 x", "context_too_large", "Shorten"),
        (
            "API Error: 400 input length and `max_tokens` exceed context limit: 190000 + 21000 > 200000",
            "context_too_large",
            "context of the conversation is full",
        ),
        ("Image was too large. Try resizing the image or using a different approach.", "image_refused", "smaller"),
        (
            "API Error: an image in the conversation could not be processed and was removed. Re-read the file …",
            "image_refused",
            "another format",
        ),
        ("API Error: 400 This model does not support image input", "image_refused", "Choose another model"),
        ("PDF too large (max 100 pages, 20MB). Try reading the file a different way", "document_refused", "pages"),
        ("PDF is password protected. Try using a CLI tool", "document_refused", "password"),
        ("API Error: 400 Your credit balance is too low to access the Anthropic API.", "billing_error", "Add credit"),
        ("API Error: 400 tools.0.name: is invalid", "invalid_request", "refused the request as invalid"),
    ],
)  # fmt: skip
def test_refused_content_is_one_clear_error(words: str, kind: str, advice: str) -> None:
    for status in (400, None):
        found, message = failure(words, status)
        assert found == kind
        assert advice in message
        said = words.removeprefix("API Error: ").removeprefix("400 ")
        assert said[:60] in message, "the CLI's own words, too"


def test_lost_connection_is_no_service_error() -> None:
    words = "API Error: Connection to the API was lost (ECONNRESET). Check your network and retry."
    kind, message = failure(words, None, "server_error")
    assert kind == "server_error"
    assert message.startswith(
        "The connection to Claude's service was lost. Send the prompt again. ("
    )
    _, message = failure("API Error: 500 connection error", 500, "server_error")
    assert message.startswith("Claude's service had an error.")


@pytest.mark.parametrize(
    "words",
    [
        "Request too large (max 32MB). Accumulated images and attachments in the conversation pushed the …",
        "API Error: something",
    ],
)
def test_too_large_request_is_not_blamed_on_images(words: str) -> None:
    """The CLI says so of every status 413, whatever was in the request."""
    kind, message = failure(words, 413)
    assert kind == "context_too_large"
    assert message.startswith("The request is larger than Claude's service takes: this prompt, or")
    assert message.endswith("(HTTP status 413)")
