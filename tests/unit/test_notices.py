"""Notices: to whom, when, and in which words."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from datetime import datetime
from functools import partial
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import AsyncMock

import pytest

from pykoclaw_acp.config import listing, loading
from pykoclaw_acp.error_kinds import ErrorKind
from pykoclaw_acp.errors import ConfigurationError
from pykoclaw_acp.model.failures import TurnFailure
from pykoclaw_acp.model.notices import (
    DeliveryTarget,
    EndedTurn,
    Notice,
    NoticeKind,
    NoticeSession,
    WaitingRequest,
)
from pykoclaw_acp.model.permissions import Form, PermissionRequest, RequestPolicy, Workspace
from pykoclaw_acp.model.questions import Question
from pykoclaw_acp.model.turns import Outcome, TurnState
from pykoclaw_acp.notify import command, sender, targets, webhook, words
from pykoclaw_acp.notify.acceptance import NotAccepted
from pykoclaw_acp.notify.quiet import QuietHours
from pykoclaw_acp.notify.targets import CommandTarget, Webhook
from pykoclaw_acp.system.clock import Clock
from tests.twins.database import MemoryDatabase
from tests.twins.notices import MemoryNoticeStore
from tests.twins.rows import NoticeRow, NotificationRow
from tests.waiting import eventually, pass_loop_time

PLACE = NoticeSession("session-1", "acp-12345678", "Tidy\x1b[2J up", "/home/ann/garden")
SECRET = "https://hooks.example.com/services/T0/S3CRET?x=1"


# --- targets


def test_commands_webhooks_and_conversations_are_told_apart() -> None:
    setting = "/usr/bin/tell 'my phone' -q, https://example.com/x, http://[::1]:80/, wa-andy-1@g.us"
    assert targets.parse(setting) == [
        CommandTarget(("/usr/bin/tell", "my phone", "-q")),
        Webhook("https://example.com/x"),
        Webhook("http://[::1]:80/"),
        DeliveryTarget("wa-andy-1@g.us", "wa"),
    ]


@pytest.mark.parametrize(
    "setting",
    [
        "tell",
        "./tell",
        "acp-12345678",
        "daily-report",
        "matrix-",
        "http://example.com/",
        "http://10.0.0.1/",
        "http://localhost.example.com/",
        "http://127.0.0.1.example.com/",
        "https://ann:password@example.com/",
        "https:///x",
        "https://example.com:port/",
        "https://example.com/a https://example.com/b",
        "https://example.com/a\thttps://example.com/b",
        "https://example.com/a\nb",
        "https://example.com/\x7f",
        "ftp://example.com/",
        "/bin/tell 'open",
    ],
)
def test_other_targets_are_refused_without_repeating_them(setting: str) -> None:
    with pytest.raises(ValueError, match=r".") as refused:
        targets.parse(setting)
    assert setting not in str(refused.value)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "[::1]", "localhost"])
def test_this_machine_may_be_told_without_encryption(host: str) -> None:
    assert targets.parse(f"http://{host}:8080/x") == [Webhook(f"http://{host}:8080/x")]


def test_port_of_webhook_is_not_repeated() -> None:
    with pytest.raises(ValueError, match="port") as refused:
        targets.parse("https://ann:S3CRET/")
    assert "S3CRET" not in str(refused.value)


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("https://[2001:db8::5]/hook", ("2001:db8::5", 443)),
        ("https://[2001:db8::abcd]:8443/", ("2001:db8::abcd", 8443)),
        ("http://[::1]/hook", ("::1", 80)),
        ("http://localhost", ("127.0.0.1", 80)),
        ("https://example.com/", ("example.com", 443)),
    ],
)
def test_webhook_is_sent_to_its_address(
    url: str, address: tuple[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    connected: list[tuple[str, int]] = []

    def connect(to: tuple[str, int], *_: Any) -> Any:
        connected.append(to)
        raise ConnectionRefusedError

    monkeypatch.setattr("socket.create_connection", connect)
    with pytest.raises(NotAccepted, match="ConnectionRefusedError"):
        webhook.Post(url, "key", b"{}", "n").wait(1)
    assert connected == [address]


def test_names_and_settings_shown_hold_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYKOCLAW_NOTIFY", f"{SECRET}, /bin/tell --token S3CRET")
    monkeypatch.setenv("PYKOCLAW_NOTIFY_SECRET", "S3CRET")
    settings = loading.load()
    shown = json.dumps([line.value for line in listing.describe(settings)])
    assert "https://hooks.example.com/…, /bin/tell" in json.loads(shown)
    assert "S3CRET" not in shown
    for one in targets.parse(str(settings.notify)):
        assert not isinstance(one, DeliveryTarget)
        assert "S3CRET" not in one.key


def test_bad_setting_is_not_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYKOCLAW_NOTIFY", "http://example.com/S3CRET")
    with pytest.raises(ConfigurationError, match="needs https") as refused:
        loading.load()
    assert "S3CRET" not in str(refused.value)


def test_webhook_needs_a_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYKOCLAW_NOTIFY", "https://example.com/")
    with pytest.raises(ConfigurationError, match="PYKOCLAW_NOTIFY_SECRET"):
        loading.load()
    monkeypatch.setenv("PYKOCLAW_NOTIFY", "wa-andy-1@g.us")
    assert loading.load().notify == "wa-andy-1@g.us"


def test_signature_covers_body_and_time() -> None:
    made = webhook.signature("key", b"{}", 1700000000)
    # printf '1700000000.{}' | openssl dgst -sha256 -hmac key
    assert made == (
        "t=1700000000,v1=9d713ed406bb7076d4123f0dc2c39d2df5c654ed4b0cd56b52c8b4c940bd63ae"
    )
    assert webhook.signature("key", b"{} ", 1700000000)[13:] != made[13:]
    assert webhook.signature("other", b"{}", 1700000000)[13:] != made[13:]


# --- retries


NOW = 200_000_000  # ms, own clock
NOTICE = Notice("turn-1", NoticeKind.TURN_ENDED, 0, PLACE, "A turn has ended.")


async def failures(
    *tried: tuple[int, float],
    quiet: QuietHours | None = None,
    kind: NoticeKind = NoticeKind.TURN_ENDED,
) -> list[NotificationRow]:
    """What becomes of notifications, tried so often and so old (s), that are not accepted."""
    database = MemoryDatabase(cast("Clock", SimpleNamespace(now=lambda: NOW)))
    rows = database.notifications
    for number, (attempts, age) in enumerate(tried):
        notice = replace(NOTICE, notice_id=f"turn-{number}", kind=kind)
        made = NOW - round(age * 1000)
        database.notices[notice.notice_id] = NoticeRow(notice, "{}", made)
        rows[notice.notice_id, "t"] = NotificationRow(NOW, attempts)
    store, target = MemoryNoticeStore(database), CommandTarget(("/nowhere",))
    store.is_pending = AsyncMock(return_value=True)  # type: ignore[method-assign]
    running = asyncio.create_task(sender.Sender(store, "t", target, None, quiet).run())
    await eventually(lambda: all(row.outcome or row.due > NOW for row in rows.values()))
    running.cancel()
    await asyncio.wait([running])
    return list(rows.values())


def pauses(rows: list[NotificationRow]) -> list[float]:
    return [(row.due - NOW) / 1000 for row in rows if row.outcome is None]


async def test_pauses_double_up_to_an_hour() -> None:
    rows = await failures(*((count, 0) for count in range(13)))
    doubled = [5.0 * 2**count for count in range(10)]
    assert pauses(rows) == [*doubled, 3600.0, 3600.0, 3600.0]


async def test_notice_due_in_quiet_hours_waits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lefts = [60.0, 60.0, 0.0]
    monkeypatch.setattr(QuietHours, "pause", lambda _: lefts.pop(0))
    trying = asyncio.create_task(failures((0, 0), quiet=QuietHours.parse("22:00-07:00")))
    for left in (2, 1):
        await eventually(partial(lambda left: len(lefts) == left, left))
        assert not trying.done()
        pass_loop_time(61)
    (row,) = await trying
    assert row.attempts == 1


async def test_a_notice_is_given_up_after_a_day() -> None:
    day = 24 * 3600
    rows = await failures((20, day - 3601), (20, day - 3599), (0, day - 4))
    assert pauses(rows) == [3600.0]
    assert [row.outcome for row in rows] == [None, "given_up", "given_up"]


async def test_question_that_waits_is_not_given_up() -> None:
    day = 24 * 3600
    rows = await failures((20, day - 1), (0, 2 * day), (2000, 90 * day), kind=NoticeKind.QUESTION)
    assert pauses(rows) == [3600.0, 5.0, 3600.0]


async def test_notice_of_a_day_ago_is_not_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """No daemon ran meanwhile, or the setting named nobody."""
    told = AsyncMock()
    monkeypatch.setattr(command, "tell", told)
    rows = await failures((0, 24 * 3600 - 1), (0, 24 * 3600 + 1), (3, 30 * 24 * 3600))
    assert [row.outcome for row in rows] == ["accepted", "given_up", "given_up"]
    assert told.await_count == 1


# --- quiet hours


@pytest.mark.parametrize(
    ("hours", "now", "left"),
    [
        ("22:00-07:00", "21:59", 0),
        ("22:00-07:00", "22:00", 9 * 3600),
        ("22:00-07:00", "23:30", 7.5 * 3600),
        ("22:00-07:00", "00:00", 7 * 3600),
        ("22:00-07:00", "06:59", 60),
        ("22:00-07:00", "07:00", 0),
        ("12:00-13:30", "12:30", 3600),
        ("12:00-13:30", "13:30", 0),
        ("12:00-13:30", "00:00", 0),
    ],
)
def test_quiet_hours_end_at_their_time(hours: str, now: str, left: float) -> None:
    at = datetime.fromisoformat(f"2026-11-22T{now}:00").astimezone()
    assert QuietHours.parse(hours).left(at) == left


@pytest.mark.parametrize("hours", ["22-7", "24:00-07:00", "22:00", "22:60-07:00", "07:00-07:00"])
def test_other_quiet_hours_are_refused(hours: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYKOCLAW_NOTIFY_QUIET", hours)
    with pytest.raises(ConfigurationError, match="PYKOCLAW_NOTIFY_QUIET"):
        loading.load()


# --- words


def turn(outcome: Outcome, *, watched: bool = False) -> EndedTurn:
    return EndedTurn("turn-1", PLACE, outcome, 1_700_000_000_000, watched)


def failed(kind: str) -> Outcome:
    return Outcome(TurnState.FAILED, failure=TurnFailure(ErrorKind(kind), "It \x07broke."))


DONE = Outcome(TurnState.DONE, stop_reason="end_turn")


@pytest.mark.parametrize(
    ("outcome", "watched", "expected"),
    [
        (DONE, False, NoticeKind.TURN_ENDED),
        (DONE, True, None),
        (Outcome(TurnState.DONE, stop_reason="max_tokens"), False, NoticeKind.TURN_ENDED),
        (Outcome(TurnState.CANCELLED, stop_reason="cancelled"), False, None),
        (failed("overloaded"), False, NoticeKind.TURN_ENDED),
        (failed("overloaded"), True, None),
        (failed("usage_limit"), True, NoticeKind.USAGE_LIMIT),
        (failed("rate_limit"), True, NoticeKind.USAGE_LIMIT),
        (failed("billing_error"), False, NoticeKind.USAGE_LIMIT),
        (failed("worker_lost"), True, NoticeKind.WORKER_FAILED),
        (failed("start_limit"), False, NoticeKind.WORKER_FAILED),
        (failed("start_failed"), True, NoticeKind.WORKER_FAILED),
    ],
)
def test_turns_are_told_of_if_nobody_knows(
    outcome: Outcome, watched: bool, expected: NoticeKind | None
) -> None:
    notice = words.of_turn(turn(outcome, watched=watched))
    assert (None if notice is None else notice.kind) == expected


@pytest.mark.parametrize("state", [TurnState.FAILED, TurnState.DONE])
def test_notice_of_run_names_the_task(state: TurnState) -> None:
    outcome = failed("overloaded") if state == TurnState.FAILED else DONE
    notice = words.of_turn(replace(turn(outcome), of_task=True))
    assert notice is not None
    assert "in a scheduled task of “Tidy" in notice.text
    assert notice.unanswered == (state == TurnState.FAILED)
    asked = words.of_request(replace(question(RequestPolicy.WAIT), of_task=True))
    assert asked is not None
    assert "in a scheduled task of “Tidy" in asked.text


def question(policy: RequestPolicy, **more: Any) -> WaitingRequest:
    values = {"title": "rm -rf \u202egarden", "tool_kind": "execute", **more}
    request = PermissionRequest(
        epoch=1, ask_id="0123456789abcdef", turn_id="turn-1", tool_call_id="tool", **values
    )
    return WaitingRequest(PLACE, request, policy, 1_700_000_000_000)


@pytest.mark.parametrize("policy", RequestPolicy)
def test_questions_are_told_of_while_they_wait(policy: RequestPolicy) -> None:
    waits = {RequestPolicy.WAIT, RequestPolicy.PARK, RequestPolicy.PARKED}
    assert (words.of_request(question(policy)) is not None) == (policy in waits)


def test_question_says_how_it_is_answered() -> None:
    notice = words.of_request(question(RequestPolicy.WAIT))
    assert notice is not None
    assert "pykoclaw-acp approve 0123456789ab --allow" in notice.text
    assert "pykoclaw-acp approve 0123456789ab --deny" in notice.text
    body = words.body(notice)
    assert body["question"]["id"] == "0123456789abcdef"
    assert (body["id"], body["event"]) == ("question-0123456789abcdef", "question")
    assert body["at"] == "2023-11-14T22:13:20+00:00"


def test_form_cannot_be_allowed_by_the_command() -> None:
    form = Form("server", "Which?", {})
    notice = words.of_request(question(RequestPolicy.WAIT, form=form))
    assert notice is not None
    assert "--allow" not in notice.text
    assert "--deny" in notice.text


def test_questions_are_answered_by_the_command() -> None:
    asked = (Question(question="Which?"), Question(question="When?"))
    notice = words.of_request(question(RequestPolicy.WAIT, questions=asked))
    assert notice is not None
    assert "--allow" not in notice.text
    assert "approve 0123456789ab --answer TEXT --answer TEXT\n" in notice.text
    assert words.body(notice)["question"]["kind"] == "questions"


@pytest.mark.parametrize("always", ["what the directory holds now", None])
def test_notice_tells_trust_from_running_without(always: str | None) -> None:
    asked = (Workspace("/home/ann/garden", "abc"),)
    notice = words.of_request(question(RequestPolicy.WAIT, workspaces=asked, always=always))
    assert notice is not None
    assert "Run without it: pykoclaw-acp approve 0123456789ab --allow" in notice.text
    assert ("Trust it: pykoclaw-acp approve 0123456789ab --always" in notice.text) == bool(always)
    assert words.body(notice)["question"]["kind"] == "trust"


def test_words_of_others_are_neutral_and_bounded() -> None:
    long = Outcome(TurnState.FAILED, failure=TurnFailure(ErrorKind.TURN_FAILED, "x" * 100_000))
    texts = [
        words.of_request(question(RequestPolicy.WAIT)),
        words.of_turn(turn(failed("overloaded"))),
        words.of_turn(turn(long)),
    ]
    for notice in texts:
        assert notice is not None
        assert len(notice.text) < 2000
        assert not set("\x1b\x07\u202e") & set(notice.text)
    assert "garden" in texts[0].text if texts[0] else False
