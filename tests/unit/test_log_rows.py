"""The writer's rows: folded when a message or a turn ends, whoever goes on with the log, and read
from every place.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence, Sized
from contextlib import closing, contextmanager
from functools import cache
from pathlib import Path
from typing import Any, cast

from hypothesis import given, settings
from hypothesis import strategies as st

from pykoclaw_acp.model.contexts import TurnEnd
from pykoclaw_acp.model.events import (
    Event,
    ModeChanged,
    Plan,
    PlanEntry,
    Text,
    TextPart,
    Thinking,
    ToolEnded,
    ToolProgressed,
    ToolStarted,
    Usage,
    UserMessage,
)
from pykoclaw_acp.model.log import Logged
from pykoclaw_acp.store import events, logs, migrate
from pykoclaw_acp.store.batch import BatchWriter
from pykoclaw_acp.store.database import Database
from pykoclaw_acp.store.journal.context import SqlContextStore
from pykoclaw_acp.store.open_file import OpenFile
from pykoclaw_acp.store.sqlite import sqlite3
from pykoclaw_acp.store.units import EndOfTurn, Statement, Unit
from tests.folds import seen
from tests.unit.sequences import anything, plans_in_order

S, OTHER = "s1", "s2"
NO_FILE = OpenFile(Path("/none"))


@cache
def schema() -> sqlite3.Connection:
    made = sqlite3.connect(":memory:", isolation_level=None)
    migrate.apply(made, migrate.load(), Path("memory"))
    return made


@contextmanager
def memory() -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        schema().backup(connection)
        for session in (S, OTHER):
            connection.execute(
                "INSERT INTO acp_sessions (acp_session_id, conversation_name, created_at, updated_at)"
                " VALUES (?, 'c', 0, 0)",
                (session,),
            )
        for turn in ("a", "b"):
            connection.execute(
                "INSERT INTO acp_turns (turn_id, acp_session_id, origin, prompt, state, created_at)"
                " VALUES (?, ?, 'client', '[]', 'running', 1)",
                (turn, S),
            )
        yield connection


def say(batches: BatchWriter, connection: sqlite3.Connection, *units: Unit) -> None:
    outcomes = batches.write(connection, units)
    assert not [one for one in outcomes if isinstance(one, Exception)], outcomes


def told(turn: str | None, *said: Event, ends: bool = False) -> Unit:
    return Unit(
        events=events.rows(S, turn, said), ends=(EndOfTurn(S, turn),) if ends and turn else ()
    )


class Reading:
    """A database of this connection alone, to read from."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    async def read(
        self, sql: str, parameters: Sequence[Any], _: int | None = None
    ) -> list[tuple[Any, ...]]:
        return self._connection.execute(sql, parameters).fetchall()


def page(connection: sqlite3.Connection, after: int, limit: int) -> list[Logged]:
    return asyncio.run(events.read(cast("Database", Reading(connection)), S, after, limit))


def read(connection: sqlite3.Connection, after: int) -> list[Logged]:
    return page(connection, after, 10_000)


def ranges(connection: sqlite3.Connection) -> list[tuple[int, int]]:
    return connection.execute("SELECT first_seq, seq FROM acp_log ORDER BY seq").fetchall()


@st.composite
def histories(draw: Any) -> list[tuple[str, Any]]:
    """What happens to a log: events in batches, the end of a turn, another daemon, another
    session's events.
    """
    steps = st.one_of(
        st.tuples(
            st.just("say"),
            st.lists(st.tuples(st.sampled_from([None, "a", "a", "b"]), anything), max_size=6),
        ),
        st.tuples(st.just("end"), st.sampled_from(["a", "b"])),
        st.tuples(st.just("restart"), st.none()),
        st.tuples(st.just("other"), anything),
        st.tuples(st.just("fail"), st.lists(anything, max_size=3)),
    )
    history = draw(st.lists(steps, max_size=15))
    said = iter(plans_in_order([one for step, what in history if step == "say" for one in what]))
    return [(step, [next(said) for _ in what] if step == "say" else what) for step, what in history]


@settings(deadline=None)
@given(histories())
def test_log_reads_from_any_place_as_told_live(history: list[tuple[str, Any]]) -> None:
    live: list[Event] = []
    with memory() as connection:
        batches = BatchWriter(NO_FILE, relaxed=False)
        for step, what in history:
            if step == "say":
                say(batches, connection, *(told(turn, event) for turn, event in what))
                live += [event for _, event in what]
            elif step == "end":
                say(batches, connection, told(what, ends=True))
            elif step == "restart":
                batches = BatchWriter(NO_FILE, relaxed=False)
            elif step == "other":
                say(batches, connection, Unit(events=events.rows(OTHER, None, [what])))
            else:
                broken = Unit(
                    events=events.rows(S, "a", what),
                    ends=(EndOfTurn(S, "a"), EndOfTurn("nobody", "a")),
                )
                assert isinstance(batches.write(connection, [broken])[0], Exception)
        for after in range(len(live) + 1):
            rest = read(connection, after)
            assert [seq for one in rest for seq in range(one.first, one.seq + 1)] == list(
                range(after + 1, len(live) + 1)
            )
            assert seen([*live[:after], *(one.event for one in rest)]) == seen(live)


def test_message_folds_at_next_event_or_turn_end() -> None:
    with memory() as connection:
        batches = BatchWriter(NO_FILE, relaxed=False)
        say(batches, connection, told("a", UserMessage("a", {"type": "text", "text": "hi"})))
        for _ in range(3):
            say(batches, connection, told("a", Thinking("m-0", "hm ")))
        assert ranges(connection) == [(1, 1), (2, 2), (3, 3), (4, 4)]
        say(batches, connection, told("a", Text("m-1", "so ")))
        assert ranges(connection) == [(1, 1), (2, 4), (5, 5)]
        say(batches, connection, told("a", Text("m-1", "it is")), told("a", ends=True))
        assert ranges(connection) == [(1, 1), (2, 4), (5, 6)]
        assert connection.execute(
            "SELECT first_seq, last_seq FROM acp_turns WHERE turn_id = 'a'"
        ).fetchone() == (1, 6)
        say(batches, connection, told("b", Text("m-1", "x"), Text("m-1", "y"), ends=True))
        assert ranges(connection)[3:] == [(7, 8)]


def test_next_daemon_continues_message_at_any_frame() -> None:
    said: list[Event] = [
        *[Thinking("m-0", "hm ")] * 3,
        *[Text("m-1", "so ")] * 4,
        ModeChanged("plan"),
        Text("m-2", "!"),
    ]
    for at in range(len(said) + 1):
        with memory() as connection:
            for part in (said[:at], said[at:]):
                batches = BatchWriter(NO_FILE, relaxed=False)
                for event in part:
                    say(batches, connection, told("a", event))
            say(BatchWriter(NO_FILE, relaxed=False), connection, told("a", ends=True))
            assert ranges(connection) == [(1, 3), (4, 7), (8, 8), (9, 9)], at


def test_replaced_state_loses_row_also_after_daemon_restart() -> None:
    progress = ToolProgressed("t", (TextPart("still running"),))
    ended = ToolEnded("t", "completed", (TextPart("done"),))
    for restart in (False, True):
        with memory() as connection:
            batches = BatchWriter(NO_FILE, relaxed=False)
            say(
                batches,
                connection,
                told("a", ToolStarted("t", "Bash", "ls", "execute"), progress, Usage(1, 9)),
            )
            say(batches, connection, told("a", Text("m", "a"), Text("m", "b"), Usage(2, 9)))
            if restart:
                batches = BatchWriter(NO_FILE, relaxed=False)
            say(batches, connection, told("b", Usage(3, 9), ended))
            kinds = connection.execute(
                "SELECT first_seq, seq, kind FROM acp_log ORDER BY seq"
            ).fetchall()
            assert kinds == [
                *(
                    (1, 1, "tool_started"),
                    (2, 5, "text"),
                    (6, 6, "usage"),
                    (7, 7, "usage"),
                    (8, 8, "tool_ended"),
                ),
            ]


def test_task_list_has_one_row_despite_restart() -> None:
    one, two = (Plan(tuple(PlanEntry(name) for name in names)) for names in ("a", "ab"))
    for restart in (False, True):
        with memory() as connection:
            batches = BatchWriter(NO_FILE, relaxed=False)
            say(batches, connection, told("a", one, Text("m", "a"), two, Text("m", "b")))
            if restart:
                batches = BatchWriter(NO_FILE, relaxed=False)
            say(batches, connection, told("a", one, Plan(()), one, Text("m", "c"), two, ends=True))
            say(batches, connection, told("b", one))
            kept = [event.event for event in read(connection, 0) if isinstance(event.event, Plan)]
            assert kept == [one, Plan(()), two, one]


def test_pruned_log_never_reuses_seq() -> None:
    with memory() as connection:
        say(
            BatchWriter(NO_FILE, relaxed=False),
            connection,
            told("a", Text("m", "a"), Text("m", "b")),
        )
        batches = BatchWriter(NO_FILE, relaxed=False)
        say(batches, connection, told("a", Text("m", "c")))
        connection.execute(f"UPDATE acp_sessions AS s SET last_seq = {logs.LAST_SEQ}")
        say(batches, connection, Unit(statements=(Statement("DELETE FROM acp_log"),)))
        say(batches, connection, told("a", Text("m", "d")))
        assert ranges(connection) == [(4, 4)]
        connection.execute("DELETE FROM acp_log")
        say(BatchWriter(NO_FILE, relaxed=False), connection, told("a", Text("m", "e")))
        assert ranges(connection) == [(4, 4)]


def test_live_piece_changes_one_row_without_turn_lookup() -> None:
    with memory() as connection:
        batches = BatchWriter(NO_FILE, relaxed=False)
        say(batches, connection, told("a", Text("m", "a")))
        ran: list[str] = []
        connection.set_trace_callback(ran.append)
        say(batches, connection, told("a", Text("m", "b")))
        connection.set_trace_callback(None)
        assert [sql.split()[0] for sql in ran] == ["BEGIN", "INSERT", "COMMIT"]


def test_pages_work_is_independent_of_what_follows() -> None:
    """Neither table is searched beyond the page."""
    with memory() as connection:
        batches = BatchWriter(NO_FILE, relaxed=False)
        steps: list[int] = []
        for _ in range(2):
            for number in range(1000):
                say(batches, connection, told(None, Text(f"m{number}", "a"), Plan(())))
            connection.execute("ANALYZE")  # as in a database that has been used for a while
            steps.append(_steps(connection, lambda: page(connection, 0, 100), 100))
        assert steps[1] <= steps[0] * 1.1


def test_newest_turns_cost_only_by_their_number() -> None:
    with memory() as connection:
        steps: list[int] = []
        store = SqlContextStore(cast("Database", Reading(connection)))

        def ends() -> list[TurnEnd]:
            return asyncio.run(store.newest_ends(S, "claude", 20))

        for end in (200, 400):
            connection.executemany(
                "INSERT INTO acp_turns (turn_id, acp_session_id, claude_session_id, origin, prompt, state,"
                " stop_reason, last_uuid, position, created_at)"
                " VALUES (?1, ?2, 'claude', 'client', '[]', 'done', 'end_turn', ?1, ?3, 1)",
                [(f"turn-{number}", S, number) for number in range(end - 200 + 10, end + 10)],
            )
            steps.append(_steps(connection, ends, 20))
        assert steps[1] <= steps[0] * 2.5


def _steps(connection: sqlite3.Connection, query: Callable[[], Sized], rows: int) -> int:
    """Of SQLite's machine, by tens, for a query with so many rows."""
    counted = 0

    def count() -> int:
        nonlocal counted
        counted += 1
        return 0

    connection.set_progress_handler(count, 10)
    assert len(query()) == rows
    connection.set_progress_handler(None, 10)
    return counted
