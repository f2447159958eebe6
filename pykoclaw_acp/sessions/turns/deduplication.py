"""Deduplication: a re-sent prompt joins its turn instead of running again.

A front re-sends its lines after a reconnect, a client repeats an idempotency key, and some clients
(Mitto) re-send a prompt without any id when their agent process died, as soon as they have opened
the session again.
"""

from __future__ import annotations

import time
from typing import Final

import structlog

from pykoclaw_acp.errors import InvalidParams
from pykoclaw_acp.model.turns import Outcome, PromptKeys, SessionRecord, Turn, TurnState
from pykoclaw_acp.sessions.ports import TurnJournal
from pykoclaw_acp.sessions.turns.queue import TurnQueue

BY_ITSELF: Final = 10.0  # s after it has opened a session in which a client re-sends by itself
IDEMPOTENCY: Final = "pykoclaw.dev/idempotencyKey"

log: Final = structlog.get_logger()


class Deduplication:
    """Turns of one session that a re-sent prompt may join; `window` (s) is for prompts without any
    id.
    """

    def __init__(
        self,
        record: SessionRecord,
        journal: TurnJournal,
        queue: TurnQueue,
        window: float,
    ) -> None:
        self._record = record
        self._queue = queue
        self._journal = journal
        self._window = window
        self.prompted = False  # since it is in memory: of its newest turn everything is known
        self._lost: dict[str, Turn] = {}

    @property
    def expects_resends(self) -> bool:
        """Whether a prompt may still be sent again whose turn only the memory knows."""
        now = time.monotonic()
        return any(
            one.waiting or now - (one.lost_at or now) <= self._window for one in self._lost.values()
        )

    @property
    def _young(self) -> bool:
        """Whether clients of the daemon before may still send their prompts again."""
        clock = self._journal.clock
        return clock.age(clock.started) <= self._window

    async def find(self, keys: PromptKeys, client: str, opened: float | None = None) -> Turn | None:
        """The turn that this prompt is; None if it is a new one. `opened`: when its client has opened
        the session (s, monotonic), if it did on this connection: words that it sends much later are
        a person's.

        Raises InvalidParams for an idempotency key that stood at another prompt.
        """
        turn = (
            await self._by_request(keys)
            or await self._by_idempotency(keys)
            or await self._sent_again(keys, client, opened)
        )
        if turn is not None:
            log.info(
                "A prompt joins its turn",
                action="prompt_joined",
                session=self._record.session_id,
                turn=turn.turn_id,
            )
        return turn

    async def has_ended_after(self, at: int, request: str | None) -> bool:
        """Whether the newest prompt has ended, and came after this line of a client's."""
        newest = await self._journal.newest_turn(self._record.session_id, 0)
        return newest is not None and newest[0].came_after(at, request)

    def note_prompt(self) -> None:
        """Note that a new prompt was accepted."""
        self.prompted = True

    def add_call(self, turn: Turn) -> None:
        """Count a call that waits for the turn's end."""
        turn.waiting += 1
        turn.lost_at = None

    def lose_call(self, turn: Turn) -> None:
        """Count off a call whose client is gone."""
        turn.waiting -= 1
        if turn.waiting == 0 and not turn.answered:
            self.expect(turn)

    def expect(self, turn: Turn) -> None:
        """Expect the turn's prompt again: from now on nobody waits for its end."""
        turn.lost_at = time.monotonic()
        self._lost[turn.turn_id] = turn

    async def mark_answered(self, turn: Turn) -> None:
        """Note that a client has the response: the same words are a new prompt now."""
        turn.answered = True
        self._lost.pop(turn.turn_id, None)
        try:
            await self._journal.mark_answered(turn.turn_id)
        except Exception:  # noqa: BLE001  of a server that stops: the client has its answer all the same
            log.debug(
                "An answered turn could not be noted", action="answered_lost", turn=turn.turn_id
            )

    async def mark_request_answered(self, request_key: str) -> None:
        """Note that a client has the response to this request, if it was a prompt and its turn has
        ended.
        """
        lost = [turn for turn in self._lost.values() if turn.keys.request == request_key]
        ended = await self._journal.ended_turns(self._record.session_id, "request_key", request_key)
        for turn in [*lost, *(turn for turn, _ in ended if not turn.answered)]:
            await self.mark_answered(turn)

    async def _by_request(self, keys: PromptKeys) -> Turn | None:
        if keys.request is None:
            return None
        for turn in self._queue.turns:
            if turn.keys.request == keys.request:
                return turn
        return self._first(
            await self._journal.ended_turns(self._record.session_id, "request_key", keys.request)
        )

    async def _by_idempotency(self, keys: PromptKeys) -> Turn | None:
        if keys.idempotency is None:
            return None
        live = [turn for turn in self._queue.turns if turn.keys.idempotency == keys.idempotency]
        turn = next(iter(live), None) or self._first(
            await self._journal.ended_turns(
                self._record.session_id, "idempotency_key", keys.idempotency
            )
        )
        if turn is not None and turn.keys.fingerprint != keys.fingerprint:
            raise InvalidParams(
                "`idempotencyKey`: the key was used for another prompt. Choose a new one."
            )
        return turn

    async def _sent_again(self, keys: PromptKeys, client: str, opened: float | None) -> Turn | None:
        now = time.monotonic()
        if keys.fingerprint is None:  # no client sends it, so none sends it again
            return None
        if opened is not None and now - opened > BY_ITSELF:
            return None
        for turn_id, turn in list(self._lost.items()):
            if turn.lost_at is None or now - turn.lost_at > self._window:
                self._lost.pop(turn_id, None)  # it may have been answered meanwhile
            elif (
                turn.keys.fingerprint == keys.fingerprint
                and turn.client in (None, client)
                and _unseen(turn, keys)
                and not await self._journal.is_rewound(turn_id)
            ):
                return turn
        if self.prompted or not self._young:
            return None
        # Its turn may have ended under an earlier daemon, together with its client.
        since = self._journal.clock.started - int(self._window * 1000)
        newest = await self._journal.newest_turn(self._record.session_id, since)
        if (
            newest is None
            or newest[0].keys.fingerprint != keys.fingerprint
            or not _unseen(newest[0], keys)
            or await self._journal.is_rewound(newest[0].turn_id)
        ):
            return None
        return self._first([newest])

    def _first(self, ended: list[tuple[Turn, Outcome]]) -> Turn | None:
        if not ended:
            return None
        turn, outcome = ended[0]
        turn.ended.set_result((outcome, self._record.last_seq))
        return turn


def _unseen(turn: Turn, keys: PromptKeys) -> bool:
    """Whether the client of these keys may be sending the turn's words again, not knowing what
    became of it.

    A front knows its own lines, and sends them again under their own numbers; who has stopped a
    turn knows its end.
    """
    ours, theirs = turn.keys.idempotency, keys.idempotency
    if ours is not None and theirs is not None and ours != theirs:
        return False  # its client tells them apart
    stopped = turn.cancelled.is_set() or turn.state == TurnState.CANCELLED
    return (
        not turn.answered and not stopped and (keys.front is None or turn.keys.front != keys.front)
    )
