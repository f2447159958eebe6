"""`_pykoclaw.dev/follow`: a session's log as notifications, for commands."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Any, Final

import msgspec

from pykoclaw_acp.link.framing import MAX_LONG_LINE_OUT
from pykoclaw_acp.model.choices import Command, Selection
from pykoclaw_acp.model.events import Event, PlanEntry, Text, Thinking, UserMessage, size
from pykoclaw_acp.model.log import Logged
from pykoclaw_acp.model.permissions import Decision, Form, PermissionRequest
from pykoclaw_acp.model.questions import Question
from pykoclaw_acp.model.session_environment import ClientEnvironment
from pykoclaw_acp.protocol import permissions, presentation, projection
from pykoclaw_acp.protocol.control.following import (
    EVENT,
    QUESTION,
    SETTLED,
    EventNotification,
    QuestionNotification,
    SettledNotification,
)
from pykoclaw_acp.protocol.control.permissions import AskedOption, AskedQuestion
from pykoclaw_acp.protocol.jsonrpc import encode_notification
from pykoclaw_acp.protocol.presentation import Presentation
from pykoclaw_acp.protocol.updates import Update
from pykoclaw_acp.server.peer import Peer
from pykoclaw_acp.sessions import contents
from pykoclaw_acp.sessions.permissions.all_requests import OPTIONS
from pykoclaw_acp.sessions.permissions.decisions import REJECT_ONCE
from pykoclaw_acp.system.environment import of_sessions

Times = Callable[[str], Awaitable[int | None]]
"""When a turn's prompt came, in ms since 1970; None if it is no turn of ours."""


class CommandClient:
    """Implements `sessions.ports.Client`: shows all that the settings show; its permission requests are answered by
    `questions/answer`.
    """

    name: Final = "cli"
    forms: Final = True
    only_declines: Final = True
    pages: Final = False
    asks_together: Final = False
    cancels_when_absent: Final = False
    drops_plan: Final = False

    def __init__(
        self, peer: Peer, *, present: bool, thoughts: bool = True, times: Times | None = None
    ) -> None:
        """`thoughts`: with Claude's thinking. `times`: with the events of the log, as FollowParams has
        it, and when prompts came.
        """
        self.present = present
        self._peer = peer
        self._shown = Presentation(thoughts=thoughts)
        self._times = times
        self._prompt: tuple[str, int | None] = ("", None)  # the newest one, and when it came
        self._asked: dict[str, Decision | None] = {}  # how a request was settled, if it is

    async def start_updates(self, session_id: str, seq: int, number: int) -> None:
        """Nothing to say."""

    def stop_updates(self, session_id: str) -> None:
        """Nothing to say."""

    async def deliver(self, session_id: str, logged: Logged) -> None:
        """Send the event, if it is shown; what would not fit into a line is replaced by a note."""
        update = presentation.update(logged.seq, logged.event, self._shown)
        if update is None:
            return
        event = presentation.visible(logged.event, self._shown)
        at = await self._came(event)
        fits = not isinstance(event, UserMessage) or size(event) <= MAX_LONG_LINE_OUT
        line = self._line(session_id, logged, update, event, at) if fits else b""
        if not fits or len(line) > MAX_LONG_LINE_OUT:
            cut = contents.cut(event)
            line = self._line(session_id, logged, projection.update(logged.seq, cut), cut, at)
        await self._peer.notify(line)

    def recall(self, session_id: str, logged: Logged) -> None:
        """Nothing to do: it shows what comes as it is."""

    async def offer(self, session_id: str, commands: tuple[Command, ...]) -> None:
        """Nothing to say: it submits no prompt that could be one of them."""

    async def insert(self, session_id: str, message_id: str, text: str) -> None:
        """Nothing to say: it resumes nothing."""

    async def show(self, session_id: str, message_id: str, text: str) -> None:
        """Nothing to say: it shows the log."""

    async def show_plan(self, session_id: str, entries: tuple[PlanEntry, ...]) -> None:
        """Nothing to say: it drops none."""

    async def show_choices(self, session_id: str, selection: Selection) -> None:
        """Nothing to say: it chooses nothing."""

    async def skip_own(self, session_id: str, seq: int) -> None:
        """Nothing to say: it never submits a prompt."""

    async def request_permission(
        self, session_id: str, request: PermissionRequest
    ) -> dict[str, Any]:
        """Show the request until it is settled; the answer never comes from here."""
        shown = QuestionNotification(
            id=request.ask_id,
            session=session_id,
            title=request.title,
            always=request.always is not None,
            **whole(request),
        )
        self._asked[request.ask_id] = None
        await self._peer.notify(encode_notification(QUESTION, shown))
        never: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        try:
            return await never
        finally:
            settled = _settled(request.ask_id, self._asked.pop(request.ask_id, None))
            with contextlib.suppress(ConnectionError):
                await self._peer.notify(encode_notification(SETTLED, settled))

    async def repeat_request(self, ask_id: str) -> None:
        """Nothing to say: it resumes nothing."""

    def close_request(self, ask_id: str, decision: Decision | None = None) -> None:
        """Note how it was settled: whoever was asked is told when the asking ends."""
        if ask_id in self._asked:
            self._asked[ask_id] = decision

    async def _came(self, event: Event | None) -> int | None:
        """When the prompt came that the event is a part of, if it is asked for and known."""
        if self._times is None or not isinstance(event, UserMessage):
            return None
        if self._prompt[0] != event.message_id:
            self._prompt = (event.message_id, await self._times(event.message_id))
        return self._prompt[1]

    def _line(
        self, session_id: str, logged: Logged, update: Update, event: Event | None, at: int | None
    ) -> bytes:
        raw = without_bulk(event) if self._times is not None and event is not None else None
        told = EventNotification(
            session=session_id,
            seq=logged.seq,
            turn_id=logged.turn_id,
            update=update,
            event=raw,
            at=at,
        )
        return encode_notification(EVENT, told)


def without_bulk(event: Event) -> dict[str, Any] | None:
    """The event, unless its update says all of it; without the images that this has, and colours."""
    if isinstance(event, UserMessage | Text | Thinking):
        return None
    found: dict[str, Any] = msgspec.to_builtins(event)
    for part in found.get("content") or ():
        if part.get("type") == "image":
            part["data"] = ""
        part.pop("coloured", None)
    return found


def given_by(environment: dict[str, str] | None) -> ClientEnvironment | None:
    """What a command's environment gives to a worker that is started for it."""
    return None if environment is None else ClientEnvironment.of(of_sessions(environment))


def whole(request: PermissionRequest) -> dict[str, Any]:
    """The fields of `QuestionInfo` and `QuestionNotification` that say all that a
    request holds.
    """
    named: dict[str, str] = {REJECT_ONCE: "Decline"}
    if not request.filled_in:
        named = dict(permissions.choices(request).items())
    return {
        "tool": request.tool,
        "input": request.input,
        "content": permissions.shown(request),
        "always_allows": request.always,
        "choices": {
            decision: named[option] for decision, option in OPTIONS.items() if option in named
        },
        "form": None if request.form is None else _form(request.form),
        "questions": [_asked(one) for one in request.questions] or None,
    }


def _settled(ask_id: str, decision: Decision | None) -> SettledNotification:
    if decision is None:
        return SettledNotification(id=ask_id)
    chosen = next((name for name, option in OPTIONS.items() if option == decision.option), None)
    return SettledNotification(id=ask_id, outcome=decision.outcome, decision=chosen, by=decision.by)


def _asked(one: Question) -> AskedQuestion:
    options = (AskedOption(label=it.label, description=it.description) for it in one.options)
    return AskedQuestion(
        question=one.question, header=one.header, options=tuple(options), multiple=one.multiple
    )


def _form(form: Form) -> str:
    return form.message if form.url is None else f"{form.message}\n{form.url}"
