"""Steps of a script. Times are seconds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class TextStep:
    """Text in the given deltas, `every` seconds apart. Adjacent `TextStep`s form one block of
    several lines.
    """

    deltas: tuple[str, ...]
    every: float = 0.0


@dataclass(frozen=True)
class ThinkingStep:
    """Thinking in one delta; the text is sent only if the request's `thinking.display` is
    `summarized`.
    """

    text: str


@dataclass(frozen=True)
class ToolStep:
    """A tool call. It ends the response, unless the next step is `parallel` to it."""

    name: str
    input: dict[str, Any]
    parallel: bool = False


@dataclass(frozen=True)
class HttpError:
    """An HTTP error instead of a response. `retry_after` is whole seconds."""

    status: int
    message: str
    retry_after: int | None = None
    times: int | None = None


@dataclass(frozen=True)
class StreamError:
    """An `error` event in the stream; for a request without streaming, the HTTP error of that type."""

    type: str
    message: str
    times: int | None = None


@dataclass(frozen=True)
class Cut:
    """Close the connection in mid-response."""

    times: int | None = None


@dataclass(frozen=True)
class Hang:
    """Send nothing for this long; None: until the client disconnects."""

    seconds: float | None = None
    times: int | None = None


@dataclass(frozen=True)
class StopStep:
    """End the response with this `stop_reason`."""

    reason: str


@dataclass(frozen=True)
class ReportStep:
    """A text that lists the content of the request."""


@dataclass(frozen=True)
class Limit:
    """What the response says of a subscription's usage limit; `rejected` makes it an HTTP error.

    `resets` is seconds from now, `used` percent.
    """

    status: str
    window: str
    resets: int
    used: int | None = None
    times: int | None = None


Fault = HttpError | StreamError | Cut | Hang | Limit
Step = TextStep | ThinkingStep | ToolStep | StopStep | ReportStep | Fault
Steps = tuple[Step, ...]
