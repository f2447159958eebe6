"""Permission requests of a worker in memory, and persons who answer them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

from pykoclaw_acp.channel.frames import Answer, AskWithdrawn, Interrupt, Prompt, ToWorker
from pykoclaw_acp.model.away import AwayPolicy
from pykoclaw_acp.model.events import OpenTools
from pykoclaw_acp.model.permissions import Decision, Form, PermissionRequest, RequestPolicy
from pykoclaw_acp.model.questions import Question, QuestionOption
from pykoclaw_acp.model.turns import Turn, TurnTimes
from pykoclaw_acp.sessions.session import Session
from pykoclaw_acp.store.database import Statement, Unit
from pykoclaw_acp.store.session_journal import SessionJournal
from tests.integration.memory_launcher import MemoryChannel
from tests.integration.rig import TIMES, Client, Rig
from tests.integration.rig import rig as plain_rig
from tests.waiting import eventually, pass_loop_time, running, within

LONG = 3600.0  # s


SOON = 0.2  # s

COLOURS = Question(
    "Which colours?", "Colours", (QuestionOption("Red", "As a rose"), QuestionOption("Blue")), True
)
SIZE = Question("Which size?", "Size", (QuestionOption("Small"), QuestionOption("Large")))
BOTH = (COLOURS, SIZE)


def choice(option: str) -> dict[str, Any]:
    return {"outcome": "selected", "optionId": option}


async def write(r: Rig, statement: Statement) -> None:
    await r.database.commit(Unit(statements=(statement,)))


class Person(Client):
    """A client that keeps what it is asked, and answers when the test says so."""

    def __init__(
        self,
        name: str = "editor",
        *,
        present: bool = True,
        forms: bool = False,
        pages: bool = False,
    ) -> None:
        super().__init__()
        self.name = name
        self.present = present
        self.forms = forms
        self.pages = pages
        self.asked: list[PermissionRequest] = []
        self.repeated: list[str] = []
        self.withdrawn: list[str] = []
        self.told: list[str] = []
        self.decided: dict[str, Decision | None] = {}
        self.unanswered: dict[str, asyncio.Future[dict[str, Any]]] = {}

    async def request_permission(
        self, session_id: str, request: PermissionRequest
    ) -> dict[str, Any]:
        self.asked.append(request)
        future = self.unanswered[request.ask_id] = asyncio.get_running_loop().create_future()
        try:
            return dict(await future)
        except asyncio.CancelledError:
            self.withdrawn.append(request.ask_id)
            raise

    async def repeat_request(self, ask_id: str) -> None:
        if ask_id in self.unanswered:
            self.repeated.append(ask_id)

    def close_request(self, ask_id: str, decision: Decision | None = None) -> None:
        self.told.append(ask_id)
        self.decided[ask_id] = decision

    async def answer(self, ask_id: str, outcome: dict[str, Any] | Exception) -> None:
        await eventually(lambda: ask_id in self.unanswered)
        if isinstance(outcome, Exception):
            self.unanswered.pop(ask_id).set_exception(outcome)
        else:
            self.unanswered.pop(ask_id).set_result(outcome)

    @property
    def ids(self) -> list[str]:
        return [one.ask_id for one in self.asked]


class Asking:
    """A session in whose turn Claude asks; its worker withdraws what is open when it is
    interrupted.
    """

    def __init__(self, r: Rig, session: Session, turn: Turn, channel: MemoryChannel) -> None:
        self.r, self.session, self.turn, self.channel = r, session, turn, channel
        self.answers: list[Answer] = []
        self.prompts: list[Prompt] = []
        self.unanswered: list[str] = []
        self._send = channel.send
        channel.send = self._listen  # type: ignore[method-assign]

    async def _listen(self, frame: ToWorker) -> None:
        if isinstance(frame, Answer):
            self.answers.append(frame)
            self.unanswered.remove(frame.ask_id)
        elif isinstance(frame, Interrupt):
            for ask_id in self.unanswered:
                self.channel.last += 1
                self.channel.say(
                    AskWithdrawn(epoch=frame.epoch, n=self.channel.last, ask_id=ask_id)
                )
            self.unanswered.clear()
        elif isinstance(frame, Prompt):
            self.prompts.append(frame)
        await self._send(frame)

    def ask(
        self,
        ask_id: str,
        call: str = "the call",
        always: str | None = None,
        turn_id: str | None = None,
        form: Form | None = None,
        **more: Any,
    ) -> PermissionRequest:
        self.channel.last += 1
        self.unanswered.append(ask_id)
        question = PermissionRequest(
            epoch=self.channel.spec.epoch,
            n=self.channel.last,
            ask_id=ask_id,
            turn_id=turn_id or self.turn.turn_id,
            tool_call_id=f"tool-{ask_id}",
            title="Bash: make",
            tool_kind="execute",
            always=always,
            input={"command": "make"},
            call=call,
            form=form,
            **more,
        )
        self.channel.say(question)
        return question

    async def row(self, ask_id: str) -> tuple[Any, ...]:
        """Policy, outcome, option, who."""
        return next(iter(await self._rows("policy, outcome, option_id, answered_by", ask_id)), ())

    async def asked(self, ask_id: str) -> None:
        """Wait until the question is in the database."""

        await self._until("policy", ask_id)

    async def away(self, ask_id: str) -> int:
        """Wait until a policy's clock runs; its deadline."""

        return int(await self._until("deadline", ask_id))

    async def deadline(self, ask_id: str) -> int | None:
        rows = await self._rows("deadline", ask_id)
        return rows[0][0] if rows else None

    async def _until(self, column: str, ask_id: str) -> Any:
        """Wait until the column has a value; its value."""

        async def look() -> Any:
            rows = await self._rows(column, ask_id)
            return rows[0][0] if rows else None

        return await eventually(look)

    async def _rows(self, columns: str, ask_id: str) -> list[tuple[Any, ...]]:
        return await self.r.database.read(
            f"SELECT {columns} FROM acp_permissions WHERE permission_id = ?",
            (ask_id,),
        )

    async def times_out_in(self, ask_id: str, seconds: float) -> None:
        """Let this time pass: the question is open until a minute before, and not a minute after."""
        pass_loop_time(seconds - 60)
        assert not await within(lambda: ask_id not in self.session.permissions.pending_ids, 0.3)
        assert (await self.row(ask_id))[1] is None
        pass_loop_time(120)
        assert await self.settled(ask_id) == ("timeout", None, "timeout")

    async def settled(self, ask_id: str) -> tuple[Any, ...]:
        """Outcome, option, who, once there is one."""

        await self._until("outcome", ask_id)
        return (await self.row(ask_id))[1:]


@asynccontextmanager
async def rig(
    path: Path, policy: Any = "wait", timeout: float = LONG, grace: float = SOON, **more: Any
) -> AsyncIterator[Rig]:
    async with plain_rig(path, times=times(policy, timeout, grace), **more) as r:
        yield r


def times(policy: str, timeout: float = LONG, grace: float = SOON) -> TurnTimes:
    """With this policy while nobody is there."""
    return replace(TIMES, away_policy=AwayPolicy(policy), away_timeout=timeout, away_grace=grace)


async def begin(r: Rig, *clients: Person) -> Asking:
    """A turn that runs until the test ends it; with no client, nobody is there."""
    session = await r.session()
    for client in clients:
        session.subscribe(client, 0)
    turn = Turn(str(uuid4()), session.id, [{"type": "text", "text": "hang"}])
    await session.submit(turn)
    await eventually(
        lambda: any(one.spec.session_id == session.id and one.acked for one in r.launcher.launched)
    )
    return Asking(
        r,
        session,
        turn,
        next(one for one in r.launcher.launched if one.spec.session_id == session.id),
    )


async def running_in(r: Rig) -> Asking:
    """The session, the turn and the worker that got a prompt last, while that turn runs."""

    def find() -> list[Asking]:
        channel = next((one for one in reversed(r.launcher.launched) if one.contents), None)
        if channel is None or channel.dead:
            return []
        session = r.sessions.live[channel.spec.session_id]
        return [Asking(r, session, one, channel) for one in session.turns if one.taken_up][:1]

    return (await eventually(find))[0]


async def restarted(r: Rig, asking: Asking) -> Session:
    """What the next daemon has, its worker adopted; the session of the one that died says and does
    nothing more.
    """
    old = asking.session
    for settling in running("settle-request"):
        settling.cancel()
    rows = await SessionJournal(r.database).find_active(old.id)
    r.sessions.live.remove(old.id)
    session = await r.sessions.find(old.id)
    assert session is not None
    session.restore_requests(
        asking.channel.spec.epoch, [row for row in rows if row.policy != RequestPolicy.PARKED]
    )
    session.adopt(asking.channel.spec.epoch, [asking.turn], {}, OpenTools())
    return session


async def park(r: Rig, **request: Any) -> Asking:
    asking = await begin(r)
    asking.ask("q1", **request)
    await eventually(lambda: asking.turn.ended.done() and not r.launcher.live)
    return asking
