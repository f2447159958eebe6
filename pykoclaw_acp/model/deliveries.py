"""Messages that pykoclaw's programs deliver to a conversation: pure functions, by pykoclaw's
rules.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Final, NamedTuple

from pykoclaw_acp.model.conversations import NO_CHANNEL, OWN
from pykoclaw_acp.model.events import MAX_TEXT, Event, Text, split_text
from pykoclaw_acp.model.prompt_text import Note
from pykoclaw_acp.model.scheduled import said_in

CHANNELS: Final = frozenset({"wa", OWN, "matrix", "tg", NO_CHANNEL, "slack"})
SENT: Final = "send-cli"  # in place of a task's id: `pykoclaw send`
LONGEST: Final = 1024 * 1024  # characters of a message that are shown
LONGEST_NOTE: Final = 16 * 1024  # characters of a message that Claude is given
LONGEST_NAME: Final = 60  # characters of a prompt by which its task is named
ONE_RUN: Final = timedelta(seconds=60)
"""Most between what Claude said in a run and the row that delivers it."""

_ID: Final = "delivery-"  # how the ids of messages and notes begin
_OPEN, _CLOSE = "<reply>", "</reply>"


class DeliveryState(StrEnum):
    """State of a delivery. Values of `delivery_queue.status`, which is pykoclaw's."""

    PENDING = "pending"  # waits for the program of its channel
    DELIVERED = "delivered"  # was shown or sent
    FAILED = "failed"  # could not be, and is not tried again


@dataclass(frozen=True, slots=True)
class Delivery:
    """A row of `delivery_queue` for a session; `message` holds its first `LONGEST` characters of
    `length`. `own`: it is what was said in the conversation that it is for.
    `prompt`: the beginning of the task's, if there is the task.
    """

    delivery_id: str
    task_id: str
    message: str
    length: int
    created_at: str
    own: bool = False
    prompt: str | None = None

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to show."""
        return not self.message.strip()


@dataclass(frozen=True, slots=True)
class ImportedDelivery:
    """An imported turn that said what is delivered: `seq` of its first event, the entry of its
    newest text in a transcript, and that of its prompt.
    """

    seq: int
    path: str
    entry: str
    prompt: str


class DeliveredEnd(NamedTuple):
    """Where a turn has said the last of what is delivered, as the event's position; `whole`: and it
    said nothing else.
    """

    position: int
    whole: bool


@dataclass(slots=True)
class WaitingDeliveries:
    """Deliveries that wait for a session, in their order; `deleted`: the session is gone."""

    session_id: str
    deleted: bool
    delivery_ids: list[str]


def shown(delivery: Delivery) -> list[Event]:
    """A message of its own in the session's log, set off by empty lines; none for an empty one."""
    if delivery.is_empty:
        return []
    said = f"\n\n**{_heading(delivery)}**\n\n{_cut(delivery, LONGEST)}\n\n"
    return [Text(f"{_ID}{delivery.delivery_id}", part) for part in split_text(said, MAX_TEXT)]


def is_of_delivery(message_id: str) -> bool:
    """Whether the message with this id shows a delivery; its text belongs to no turn."""
    return message_id.startswith(_ID)


def end_in(delivery: Delivery, turn: Sequence[Event | None]) -> DeliveredEnd | None:
    """The end of what is delivered in a turn; None if it was not said there. What several programs
    say at one time stands in the log as of one turn: their words may come before and after it.
    """
    parts = list(said_in(turn))
    message = delivery.message.strip()
    said = "".join(text for _, text in parts).strip()
    if parts and message in (said, without_reply_tags(said).strip()):
        return DeliveredEnd(parts[-1][0], whole=True)
    for first in range(len(parts)):
        said = ""
        for at, text in parts[first:]:
            said = (said + text).lstrip()
            if said.rstrip() == message:
                return DeliveredEnd(at, whole=False)
            if not message.startswith(said):
                break
    return None


def is_of_run(delivery: Delivery, said_at: datetime | None) -> bool:
    """Whether what was said at this time may be of the run that is delivered. Without the times, it
    is not: what is shown twice is read, what is not shown is lost.
    """
    created = time_of(delivery.created_at)
    return created is not None and said_at is not None and abs(created - said_at) <= ONE_RUN


def time_of(text: str) -> datetime | None:
    """A time as pykoclaw writes it; None if it is none."""
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        return None
    return at if at.tzinfo is not None else at.replace(tzinfo=UTC)


def note(delivery: Delivery) -> Note:
    """What Claude is told of a delivery that the user was shown, be it as a turn."""
    return Note(
        f"{_ID}{delivery.delivery_id}",
        f"{_heading(delivery)} The user was shown this message, of {delivery.created_at}:\n\n"
        f"{_cut(delivery, LONGEST_NOTE)}",
    )


def target(conversation: str, wanted: str | None) -> tuple[str, str]:
    """The conversation and channel that the result of a task in `conversation` is delivered to;
    `wanted` is the task's own target.
    """
    to = wanted or conversation
    if channel(to) in CHANNELS and "-" in to:
        return to, channel(to)
    own, hyphen, rest = conversation.partition("-")
    if not hyphen or own not in CHANNELS:
        return to, channel(to)
    if to == rest or rest.endswith(f"-{to}"):
        return conversation, own
    return f"{own}-{to}", own


def channel(name: str) -> str:
    """The channel of a conversation: what comes before the first hyphen."""
    prefix, hyphen, _ = name.partition("-")
    return prefix if hyphen else NO_CHANNEL


def without_reply_tags(text: str) -> str:
    """The contents of `<reply>` tags, one to a line; without a closed tag the text as it is."""
    found = list(_replies(text))
    return "\n".join(filter(None, map(str.strip, found))) if found else text


def _replies(text: str) -> Iterator[str]:
    at = text.find(_OPEN)
    while at >= 0:
        begin = at + len(_OPEN)
        end = text.find(_CLOSE, begin)
        if end < 0:
            return
        yield text[begin:end]
        at = text.find(_OPEN, end + len(_CLOSE))


def _heading(delivery: Delivery) -> str:
    if delivery.task_id == SENT:
        return "Delivered by `pykoclaw send`."
    words = " ".join((delivery.prompt or "").split())
    if not words:
        return f"Result of the scheduled task {delivery.task_id}."
    cut = words if len(words) <= LONGEST_NAME else f"{words[:LONGEST_NAME].rstrip()}…"
    return f"Result of the scheduled task “{cut}”."


def _cut(delivery: Delivery, limit: int) -> str:
    if delivery.length <= limit:
        return delivery.message
    return (
        f"{delivery.message[:limit]}\n\n(Cut: the message has {delivery.length:,} characters. All of it is in "
        f"the table delivery_queue, id {delivery.delivery_id}.)"
    )
