"""Permission questions of a session: asked of every attached client, settled by the first answer."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import structlog

from pykoclaw_acp.sessions.attachment import Attachment
from pykoclaw_acp.sessions.ports import Journal, Settled, Workers
from pykoclaw_acp.worker.frames import Answer, Ask

if TYPE_CHECKING:
    from pykoclaw_acp.sessions.session import Session

ALLOW_ONCE: Final = "allow_once"
ALLOW_ALWAYS: Final = "allow_always"
_REFUSALS: Final = {
    "selected": "The user refused this tool call.",
    "cancelled": "The user did not answer the permission question.",
    "timeout": "Nobody answered the permission question in time.",
}

log: Final = structlog.get_logger()


@dataclass(eq=False, slots=True)
class _Open:
    """A question that waits; `seq` is what a client must have been shown before it is asked."""

    epoch: int
    question: Ask
    seq: int
    outcome: asyncio.Future[dict[str, Any]]
    asked: set[asyncio.Task[None]] = field(default_factory=set)
    settling: asyncio.Task[None] | None = None


class Questions:
    """The open ones. Only an option that was offered counts as a yes; everything else refuses the tool call."""

    def __init__(self, session: Session, journal: Journal, workers: Workers, timeout: float | None) -> None:
        self._session = session
        self._journal = journal
        self._workers = workers
        self._timeout = timeout
        self._open: dict[str, _Open] = {}

    def open(self, epoch: int, question: Ask, seq: int) -> None:
        """Ask the clients, once each was shown the log up to `seq`."""
        loop = asyncio.get_running_loop()
        one = self._open[question.ask_id] = _Open(epoch, question, seq, loop.create_future())
        one.settling = loop.create_task(self._settle(one))
        for attachment in self._session.attachments:
            self._ask(one, attachment)

    def attached(self, attachment: Attachment) -> None:
        """A client came: it is asked what is still open."""
        for one in self._open.values():
            self._ask(one, attachment)

    def withdraw(self, ask_id: str) -> None:
        """The question is moot."""
        one = self._open.get(ask_id)
        if one is not None:
            self._close(one)
            if one.settling is not None:
                one.settling.cancel()

    async def withdraw_all(self) -> None:
        """Nobody waits for any answer any more."""
        for ask_id in list(self._open):
            self.withdraw(ask_id)
            await self._journal.settle(Settled(ask_id, "interrupted"))

    def _ask(self, one: _Open, attachment: Attachment) -> None:
        task = asyncio.get_running_loop().create_task(self._ask_client(one, attachment))
        one.asked.add(task)
        task.add_done_callback(one.asked.discard)

    async def _ask_client(self, one: _Open, attachment: Attachment) -> None:
        """A client's answer counts, also its refusal to answer; a client that went away leaves the question open."""
        try:
            await attachment.reached(one.seq)
            outcome = await attachment.client.ask(self._session.id, one.question)
        except ConnectionError:
            return
        except Exception as error:  # noqa: BLE001  whatever a client does, the question is settled
            log.info("A client could not answer", action="permission_unanswered", error=repr(error))
            outcome = {"outcome": "unanswered"}
        if not one.outcome.done():
            one.outcome.set_result(outcome)

    def _close(self, one: _Open) -> None:
        """Nobody is asked any more; those who were are told that it is settled."""
        self._open.pop(one.question.ask_id, None)
        for asked in list(one.asked):
            asked.cancel()

    async def _settle(self, one: _Open) -> None:
        ask_id = one.question.ask_id
        try:
            outcome = await asyncio.wait_for(asyncio.shield(one.outcome), self._timeout)
        except TimeoutError:
            outcome = {"outcome": "timeout"}
        self._close(one)
        answer, settled = _decide(one.epoch, one.question, outcome)
        try:
            await self._journal.settle(settled)
        except Exception:
            log.exception("The answer could not be recorded", action="permission_not_recorded")
            answer = Answer(epoch=one.epoch, ask_id=ask_id, decision="reject", message="The answer was not recorded.")
        log.info("Permission settled", action="permission_settled", session=self._session.id, outcome=settled.outcome)
        with contextlib.suppress(ConnectionError):
            await self._workers.send(self._session.id, answer)


def _decide(epoch: int, question: Ask, outcome: dict[str, Any]) -> tuple[Answer, Settled]:
    ask_id, kind, option = question.ask_id, str(outcome.get("outcome")), outcome.get("optionId")
    who = "client" if kind in ("selected", "cancelled") else None
    if kind == "selected" and option == ALLOW_ONCE:
        return Answer(epoch=epoch, ask_id=ask_id, decision="allow_once"), Settled(ask_id, kind, option, who)
    if kind == "selected" and option == ALLOW_ALWAYS and question.always is not None:
        return Answer(epoch=epoch, ask_id=ask_id, decision="allow_always"), Settled(ask_id, kind, option, who)
    words = _REFUSALS.get(kind, "The permission question could not be answered.")
    chosen = option if kind == "selected" and isinstance(option, str) else None
    return Answer(epoch=epoch, ask_id=ask_id, decision="reject", message=words), Settled(ask_id, kind, chosen, who)
