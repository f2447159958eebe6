"""What a script can make the model do. Times are seconds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Text:
    """Text in the given deltas, `every` seconds apart. Neighbouring `Text` steps make one block of
    several lines.
    """

    deltas: tuple[str, ...]
    every: float = 0.0


@dataclass(frozen=True)
class Thinking:
    """Thinking in one delta; its text is sent only to a request whose `thinking.display` is
    `summarized`.
    """

    text: str


@dataclass(frozen=True)
class Tool:
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
    """An `error` event inside the stream; to a request without stream, the HTTP error
    of that type.
    """

    type: str
    message: str
    times: int | None = None


@dataclass(frozen=True)
class Cut:
    """The connection closes where it stands."""

    times: int | None = None


@dataclass(frozen=True)
class Hang:
    """Not a byte for that long; None is until the client goes away."""

    seconds: float | None = None
    times: int | None = None


@dataclass(frozen=True)
class Stop:
    """The response ends with this `stop_reason`."""

    reason: str


@dataclass(frozen=True)
class Report:
    """A text that lists what the request held."""


Fault = HttpError | StreamError | Cut | Hang
Step = Text | Thinking | Tool | Stop | Report | Fault
Response = tuple[Step, ...]
