"""Notices: what people are told of while nobody is there. Plain data."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from pykoclaw_acp.model.permissions import PermissionRequest, RequestPolicy
from pykoclaw_acp.model.turns import Outcome


class NoticeKind(StrEnum):
    """What has happened; `event` of a notice."""

    QUESTION = "question"  # a permission request is pending, and nobody is there
    TURN_ENDED = "turn_ended"  # a turn ended that nobody watched
    USAGE_LIMIT = "usage_limit"  # a usage limit stopped a turn
    WORKER_FAILED = "worker_failed"  # a worker could not be started, or failed during a turn


class NotificationOutcome(StrEnum):
    """How the attempts to notify a target ended."""

    ACCEPTED = "accepted"
    GIVEN_UP = "given_up"  # it did not accept in time
    OUTDATED = "outdated"  # the permission request was settled before
    REMOVED = "removed"  # the target is no longer in the setting, or the session was deleted


@dataclass(frozen=True, slots=True)
class NoticeSession:
    """The session that a notice is about, in the words of its row; if a task's run has it for itself,
    `conversation` is the task's.
    """

    session_id: str
    conversation: str
    title: str | None
    cwd: str | None


@dataclass(frozen=True, slots=True)
class EndedTurn:
    """An ended turn. `ended_at`: ms since 1970. `watched`: a client got the response, or was shown
    the end, or a result is delivered. `of_task`: a scheduled run led to it.
    """

    turn_id: str
    place: NoticeSession
    outcome: Outcome
    ended_at: int
    watched: bool
    of_task: bool = False


@dataclass(frozen=True, slots=True)
class WaitingRequest:
    """A pending permission request; `asked_at`: ms since 1970, `of_task` as in EndedTurn."""

    place: NoticeSession
    request: PermissionRequest
    policy: RequestPolicy
    asked_at: int
    of_task: bool = False


@dataclass(frozen=True, slots=True)
class Notice:
    """A notice; `at`: ms since 1970. `text` is for people, `about` for programs. `unanswered`: its
    own conversation gets nothing else of it.
    """

    notice_id: str
    kind: NoticeKind
    at: int
    place: NoticeSession
    text: str
    about: dict[str, Any] = field(default_factory=dict)
    unanswered: bool = False


@dataclass(frozen=True, slots=True)
class DueNotification:
    """A notice that a command or a webhook is still to accept; `age`: s since the notice,
    by the own clock."""

    notice_id: str
    target: str
    kind: NoticeKind
    body: str
    attempts: int
    age: float


@dataclass(frozen=True, slots=True)
class DeliveryTarget:
    """A conversation of another channel, which gets notices by `delivery_queue`."""

    conversation: str
    prefix: str
