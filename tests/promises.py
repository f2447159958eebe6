"""What the program promises, as a plain model of what clients were told: at every moment, and at
rest.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

SAID: Final = ("m-", "msg_")  # how the ids of Claude's own messages begin; the program's are UUIDs
ENDED: Final = ("done", "cancelled", "failed", "unknown")
REFUSALS: Final = {-32600, -32602, -32002, -32800}  # of calls that are wrong, or withdrawn


@dataclass(slots=True)
class View:
    """What a client holds of a session since it last asked for its history: places and updates, in
    order.

    `start`: the place behind which it began; 0 is the beginning.
    """

    start: int
    shown: list[tuple[int, dict[str, Any]]] = field(default_factory=list)

    @property
    def text(self) -> str:
        """Claude's words, without the program's own about turns that have no answer."""
        return "".join(
            one["content"]["text"]
            for _, one in self.shown
            if one["sessionUpdate"] == "agent_message_chunk" and one["messageId"].startswith(SAID)
        )


@dataclass(slots=True)
class Asked:
    """A request of a client's: what came of it, and for a prompt its words, under which it is
    counted.
    """

    method: str
    params: dict[str, Any]
    answer: dict[str, Any] | None = None
    marker: str | None = None


class Front(Protocol):
    """A client and its front."""

    @property
    def asked(self) -> Mapping[int, Asked]:
        """Its requests, by the numbers of their lines."""

    @property
    def open(self) -> Sequence[int]:
        """Requests that wait for their answer."""

    @property
    def views(self) -> Mapping[str, View]:
        """What it was shown, by session."""

    @property
    def followed(self) -> AbstractSet[str]:
        """Sessions of which it is shown what comes."""

    def key(self, number: int) -> str:
        """Under which key the journal has this request."""


class Ran(Protocol):
    """Something that ran turns of a session, one after the other: a worker, or what is known of
    one.
    """

    @property
    def session(self) -> str:
        """The session."""

    @property
    def turns(self) -> Sequence[str]:
        """Ids of the turns, in order."""

    @property
    def prompts(self) -> Sequence[str]:
        """The words that it was given, in order."""

    @property
    def said(self) -> Mapping[str, str]:
        """What it told in each turn."""

    @property
    def done(self) -> AbstractSet[str]:
        """Turns that it brought to their end."""

    @property
    def lost_something(self) -> bool:
        """Whether it may have told less, as it was killed or interrupted."""

    @property
    def killed(self) -> bool:
        """Whether a daemon killed it although it did its work."""


class Told(Protocol):
    """Everything that clients were told and that ran, beside the file."""

    @property
    def broken(self) -> BaseException | None:
        """What a front could not believe."""

    @property
    def fronts(self) -> Sequence[Front]:
        """The clients that are there."""

    @property
    def workers(self) -> Sequence[Ran]:
        """Whatever ran."""

    @property
    def for_nobody(self) -> Sequence[str]:
        """Turns that were waiting when a daemon started, and ran although nobody came."""

    def rows(self, query: str, *parameters: Any) -> list[tuple[Any, ...]]:
        """What the file says."""


@dataclass(frozen=True, slots=True)
class TurnRow:
    turn_id: str
    session: str
    key: str | None
    words: str
    state: str
    stop_reason: str | None
    origin: str


def turns(w: Told) -> list[TurnRow]:
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
    " WHERE s.acp_session_id = (SELECT COALESCE(i.alias_of, i.acp_session_id) FROM acp_sessions i"
    " WHERE i.acp_session_id = ?) ORDER BY e.seq"
)


@dataclass(frozen=True, slots=True)
class Entry:
    """A row of a log, which covers the places from `first` to `seq`."""

    first: int
    seq: int
    turn: str | None
    kind: str
    payload: dict[str, Any]


def log(w: Told, session: str) -> list[Entry]:
    """A session's log, by any of its ids."""
    return [
        Entry(first, seq, turn, kind, json.loads(payload))
        for first, seq, turn, kind, payload in w.rows(LOG, session)
    ]


def answer_text(w: Told, session: str, turn: str | None = None) -> str:
    """What the log has of the workers' words, in one turn or in all."""
    return "".join(
        str(one.payload["text"])
        for one in log(w, session)
        if one.kind == "text"
        and one.payload["message_id"].startswith(SAID)
        and turn in (None, one.turn)
    )


def check(w: Told) -> None:
    """What holds at every moment."""
    if w.broken is not None:
        raise w.broken
    rows = turns(w)
    _nothing_ran_twice(w)
    _prompts_ran_in_order(w)
    assert not w.for_nobody, (
        "a prompt of an earlier daemon's time ran although nobody stood behind it"
    )
    assert not [worker for worker in w.workers if worker.killed], (
        "a worker was killed that did its work"
    )
    for session in {worker.session for worker in w.workers} | _known(w):
        _log_is_whole(w, session)
    for front in w.fronts:
        _shown_is_logged(w, front)
        for number, one in front.asked.items():
            if one.answer is not None:
                _told_is_true(w, front, number, one, rows)


def check_at_rest(w: Told) -> None:
    """What holds when it could be written again, and everybody had the time to go on."""
    check(w)
    rows = turns(w)
    assert not [one for one in rows if one.state not in ENDED]
    for front in w.fronts:
        assert not front.open, f"never answered: {[front.asked[number] for number in front.open]}"
    for worker in w.workers:
        _said_is_logged(w, worker, rows)
    assert is_shown(w), "a client has not got the end"


def is_shown(w: Told) -> bool:
    """Whether each client has got the end of the logs that it follows."""
    ended = closed(w)
    return all(
        answer_text(w, session).endswith(view.text)
        for front in w.fronts
        for session, view in front.views.items()
        if session in front.followed - ended
    )


def closed(w: Told) -> set[str]:
    return {
        session
        for (session,) in w.rows(
            "SELECT i.acp_session_id FROM acp_sessions i JOIN acp_sessions s"
            " ON s.acp_session_id = COALESCE(i.alias_of, i.acp_session_id) WHERE s.closed_at IS NOT NULL"
        )
    }


def _known(w: Told) -> set[str]:
    return {session for (session,) in w.rows("SELECT acp_session_id FROM acp_sessions")}


def _nothing_ran_twice(w: Told) -> None:
    by_turn = Counter(turn for worker in w.workers for turn in worker.turns)
    by_words = Counter(words for worker in w.workers for words in worker.prompts)
    assert not [turn for turn, times in by_turn.items() if times > 1], by_turn
    assert not [words for words, times in by_words.items() if times > 1], by_words


def _prompts_ran_in_order(w: Told) -> None:
    """Those of one client in one session, as it sent them."""
    for front in w.fronts:
        numbers = {
            one.marker: number for number, one in front.asked.items() if one.marker is not None
        }
        for session in {worker.session for worker in w.workers}:
            ran = [numbers[words] for words in _ran(w, session) if words in numbers]
            assert ran == sorted(ran), f"the client sent {sorted(ran)}, they ran as {ran}"


def _ran(w: Told, session: str) -> Iterator[str]:
    for worker in w.workers:
        if worker.session == session:
            yield from worker.prompts


def _log_is_whole(w: Told, session: str) -> None:
    """No gap, and turns stand there one after the other, as they ran."""
    entries = log(w, session)
    assert [one.first for one in entries] == [1, *(one.seq + 1 for one in entries)][: len(entries)]
    ran = [turn for worker in w.workers if worker.session == session for turn in worker.turns]
    told = [one.turn for one in entries if one.turn in ran]
    changes = [turn for at, turn in enumerate(told) if at == 0 or told[at - 1] != turn]
    assert changes == [turn for turn in ran if turn in changes], (
        f"ran as {ran}, the log has {changes}"
    )


def _shown_is_logged(w: Told, front: Front) -> None:
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


def _told_is_true(w: Told, front: Front, number: int, one: Asked, rows: list[TurnRow]) -> None:
    """An answer is what the file says."""
    answer = one.answer
    assert answer is not None
    if one.method == "session/new" and "result" in answer:
        assert answer["result"]["sessionId"] in _known(w), "an acknowledged session is gone"
    if one.method != "session/prompt":
        return
    key = front.key(number)
    mine = [row for row in rows if row.key == key] or [
        row for row in rows if row.words == one.marker
    ]
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
        assert data["turnState"] in {row.state for row in mine}, (
            f"told {error}, the journal says {mine}"
        )
        return
    if data.get("errorKind") == "store_uncertain":
        return  # nothing is said of what became of it
    refused = (
        data.get("retryable")
        or data.get("errorKind") in ("daemon_not_started", "store_damaged")
        or error["code"] in REFUSALS
    )
    assert refused, f"an error that says nothing: {error}"
    ran = [row for row in this if row.state not in ("queued", "cancelled")]
    assert not ran, f"told {error} of a prompt that was accepted and ran: {ran}"


def _said_is_logged(w: Told, worker: Ran, rows: list[TurnRow]) -> None:
    """What a worker told is in the log: all of it, unless it was killed with something in its
    memory.
    """
    session = worker.session
    states = {row.turn_id: row.state for row in rows}
    for turn, said in worker.said.items():
        logged = answer_text(w, session, turn)
        if worker.lost_something:
            assert said.startswith(logged)
        else:
            assert logged == said, f"the worker said {said!r}, the log has {logged!r}"
    for turn in worker.done:
        if not worker.lost_something:
            assert states[turn] in ("done", "cancelled"), (
                f"the worker ended {turn}, the journal says {states[turn]}"
            )
