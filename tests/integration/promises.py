"""What the program promises, checked on a memory world: at every moment, and when everything has come to rest."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from tests.integration.memory_front import WORKERS, Asked, MemoryFront
from tests.integration.memory_world import MemoryWorker, World

ENDED: Final = ("done", "cancelled", "failed", "unknown")
REFUSALS: Final = {-32600, -32602, -32002, -32800}  # of calls that are wrong, or withdrawn


@dataclass(frozen=True, slots=True)
class TurnRow:
    turn_id: str
    session: str
    key: str | None
    words: str
    state: str
    stop_reason: str | None
    origin: str


def turns(w: World) -> list[TurnRow]:
    """The journal, in the order of its rows."""
    found = w.rows(
        "SELECT turn_id, acp_session_id, request_key, prompt, state, stop_reason, origin FROM acp_turns ORDER BY rowid"
    )
    return [
        TurnRow(turn, session, key, _words(prompt), state, stop, origin)
        for turn, session, key, prompt, state, stop, origin in found
    ]


def _words(prompt: str) -> str:
    return "".join(block.get("text", "") for block in json.loads(prompt))


LOG: Final = (
    "SELECT e.first_seq, e.seq, t.turn_id, e.kind, e.payload FROM acp_sessions s"
    " JOIN acp_log e ON e.log_key = s.log_key"
    " LEFT JOIN acp_turns t ON t.acp_session_id = s.acp_session_id AND t.position = e.turn"
    " WHERE s.acp_session_id = ? ORDER BY e.seq"
)


@dataclass(frozen=True, slots=True)
class Entry:
    """A row of a log, which covers the places from `first` to `seq`."""

    first: int
    seq: int
    turn: str | None
    kind: str
    payload: dict[str, Any]


def log(w: World, session: str) -> list[Entry]:
    """A session's log."""
    return [
        Entry(first, seq, turn, kind, json.loads(payload)) for first, seq, turn, kind, payload in w.rows(LOG, session)
    ]


def answer_text(w: World, session: str, turn: str | None = None) -> str:
    """What the log has of the workers' words, in one turn or in all."""
    return "".join(
        str(one.payload["text"])
        for one in log(w, session)
        if one.kind == "text" and one.payload["message_id"].startswith(WORKERS) and turn in (None, one.turn)
    )


def check(w: World) -> None:
    """What holds at every moment."""
    if w.broken is not None:
        raise w.broken
    rows = turns(w)
    _nothing_ran_twice(w)
    _prompts_ran_in_order(w)
    assert not w.for_nobody, "a prompt of an earlier daemon's time ran although nobody stood behind it"
    assert not [worker for worker in w.launcher.workers if worker.killed], "a worker was killed that did its work"
    for session in {worker.spec.session_id for worker in w.launcher.workers} | _known(w):
        _log_is_whole(w, session)
    for front in w.fronts:
        _shown_is_logged(w, front)
        for number, one in front.asked.items():
            if one.answer is not None:
                _told_is_true(w, front, number, one, rows)


def check_at_rest(w: World) -> None:
    """What holds when it could be written again, and everybody had the time to go on."""
    check(w)
    rows = turns(w)
    assert not [one for one in rows if one.state not in ENDED]
    for front in w.fronts:
        assert not front.open, f"never answered: {[front.asked[number] for number in front.open]}"
    for worker in w.launcher.workers:
        _said_is_logged(w, worker, rows)
    closed = _closed(w)
    for front in w.fronts:
        for session, view in front.views.items():
            if session in front.ledger.sessions.keys() - closed:
                assert answer_text(w, session).endswith(view.text), "the client has not got the end"


async def come_to_rest(w: World) -> None:
    """Everybody does what he would: daemons are started, questions answered, refused things asked again, turns end."""

    def over() -> bool:
        waits = any(front.open or front.refused or front.questions for front in w.fronts)
        if not waits and all(row.state in ENDED for row in turns(w)):
            return True
        for front in list(w.fronts):
            front.try_again()
            for question in list(front.questions):
                front.reply(question, "allow_once")
        for worker in w.launcher.workers:
            if not worker.alive or worker.current is None:
                continue
            if not worker.asks:
                worker.tell("and so on. ")
                worker.end()
            elif not any(front.wants(worker.spec.session_id) for front in w.fronts):
                w.front().load(worker.spec.session_id)  # somebody must answer
        return False

    for _ in range(10):
        if w.app is not None or await w.start():
            break
        w.clock.pass_by(5)
    assert w.app is not None, "no daemon comes up on a store that can be written"
    await w.pass_by(5)
    while not over():
        await w.until(over)
        await w.pass_by(5)  # what was held back may be written now, and set something off


async def compare_with_a_new_client(w: World, session: str) -> None:
    """Whoever has seen the session from its beginning has seen what a load shows."""
    if session in _closed(w):
        return
    reader = w.front()
    number = reader.load(session)
    await w.until(lambda: reader.answer(number))
    await w.quiet()
    check(w)
    for front in w.fronts:
        other = front.views.get(session)
        if other is not None and other.start == 0 and session in front.ledger.sessions:
            assert other.text == reader.views[session].text


def _closed(w: World) -> set[str]:
    return {session for (session,) in w.rows("SELECT acp_session_id FROM acp_sessions WHERE closed_at IS NOT NULL")}


def _known(w: World) -> set[str]:
    return {session for (session,) in w.rows("SELECT acp_session_id FROM acp_sessions")}


def _nothing_ran_twice(w: World) -> None:
    by_turn = Counter(turn for worker in w.launcher.workers for turn in worker.turns)
    by_words = Counter(words for worker in w.launcher.workers for words in worker.prompts)
    assert not [turn for turn, times in by_turn.items() if times > 1], by_turn
    assert not [words for words, times in by_words.items() if times > 1], by_words


def _prompts_ran_in_order(w: World) -> None:
    """Those of one client in one session, as it sent them."""
    for front in w.fronts:
        numbers = {one.marker: number for number, one in front.asked.items() if one.marker is not None}
        for session in {worker.spec.session_id for worker in w.launcher.workers}:
            ran = [numbers[words] for words in _ran(w, session) if words in numbers]
            assert ran == sorted(ran), f"the client sent {sorted(ran)}, they ran as {ran}"


def _ran(w: World, session: str) -> Iterator[str]:
    for worker in w.launcher.workers:
        if worker.spec.session_id == session:
            yield from worker.prompts


def _log_is_whole(w: World, session: str) -> None:
    """No gap, and turns stand there one after the other, as they ran."""
    entries = log(w, session)
    assert [one.first for one in entries] == [1, *(one.seq + 1 for one in entries)][: len(entries)]
    ran = [turn for worker in w.launcher.workers if worker.spec.session_id == session for turn in worker.turns]
    told = [one.turn for one in entries if one.turn in ran]
    changes = [turn for at, turn in enumerate(told) if at == 0 or told[at - 1] != turn]
    assert changes == [turn for turn in ran if turn in changes], f"ran as {ran}, the log has {changes}"


def _shown_is_logged(w: World, front: MemoryFront) -> None:
    for session, view in front.views.items():
        said = answer_text(w, session)
        seqs = [seq for seq, _ in view.shown]
        assert seqs == sorted(set(seqs))
        last = max((one.seq for one in log(w, session)), default=0)
        assert not seqs or seqs[-1] <= last, f"shown {seqs[-1]}, the log ends at {last}"
        if view.start == 0:
            assert said.startswith(view.text), f"shown {view.text!r}, the log has {said!r}"
        else:
            assert view.text in said, f"shown {view.text!r}, the log has {said!r}"


def _told_is_true(w: World, front: MemoryFront, number: int, one: Asked, rows: list[TurnRow]) -> None:
    """An answer is what the file says."""
    answer = one.answer
    assert answer is not None
    if one.method == "session/new" and "result" in answer:
        assert answer["result"]["sessionId"] in _known(w), "an acknowledged session is gone"
    if one.method != "session/prompt":
        return
    key = f"{front.ledger.front}:{number}"
    mine = [row for row in rows if row.key == key] or [row for row in rows if row.words == one.marker]
    assert len([row for row in rows if row.key == key]) <= 1
    if "result" in answer:
        told = answer["result"]["stopReason"]
        assert mine, f"told {told}, and the journal does not know the prompt"
        assert told in {row.stop_reason for row in mine}, f"told {told}, the journal says {mine}"
        assert {row.state for row in mine} <= set(ENDED), f"told {told}, the journal says {mine}"
    else:
        _refusal_is_true(answer["error"], [row for row in mine if row.key == key], mine)


def _refusal_is_true(error: dict[str, Any], this: list[TurnRow], mine: list[TurnRow]) -> None:
    """`this` is the very request's row, `mine` are all of its words'."""
    data = error.get("data") or {}
    if "turnState" in data:
        assert data["turnState"] in {row.state for row in mine}, f"told {error}, the journal says {mine}"
        return
    assert data.get("retryable") or error["code"] in REFUSALS, f"an error that says nothing: {error}"
    ran = [row for row in this if row.state not in ("queued", "cancelled")]
    assert not ran, f"told {error} of a prompt that was accepted and ran: {ran}"


def _said_is_logged(w: World, worker: MemoryWorker, rows: list[TurnRow]) -> None:
    """What a worker told is in the log: all of it, unless it was killed with something in its memory."""
    session = worker.spec.session_id
    states = {row.turn_id: row.state for row in rows}
    for turn, said in worker.said.items():
        logged = answer_text(w, session, turn)
        if worker.lost_something:
            assert said.startswith(logged)
        else:
            assert logged == said, f"the worker said {said!r}, the log has {logged!r}"
    for turn in worker.done:
        if not worker.lost_something:
            assert states[turn] in ("done", "cancelled"), f"the worker ended {turn}, the journal says {states[turn]}"
