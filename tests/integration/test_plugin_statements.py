"""What plugins do with the shared database through the daemon: pykoclaw's handle on the real
file.
"""

from __future__ import annotations

import asyncio
import math
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack, closing
from datetime import UTC, date, datetime
from importlib.metadata import PackageNotFoundError
from operator import methodcaller
from pathlib import Path
from typing import Any, Final, TypeVar

import pytest

from pykoclaw_acp.channel.database import ANSWER_BYTES, DatabaseCall, SqlStatement
from pykoclaw_acp.channel.frames import PROTOCOL, Hello
from pykoclaw_acp.model.condition import DatabaseState
from pykoclaw_acp.store import plugin_guard, plugin_statements, value_limit
from pykoclaw_acp.store.database import Database
from pykoclaw_acp.store.opening import READERS
from pykoclaw_acp.store.plugin_statements import PluginStatements
from pykoclaw_acp.store.sqlite import sqlite3
from pykoclaw_acp.store.units import Statement, Unit
from pykoclaw_acp.worker.database_calls import DatabaseCalls
from pykoclaw_acp.worker.plugins.handle import Handle
from tests.integration.rows import NEW_SESSION
from tests.statements import Statements, watched

T = TypeVar("T")
FOREVER = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n"


class World:
    """A database, the daemon's side, and a handle, which is used in a thread as plugins do."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.statements = PluginStatements(database)
        self.calls = DatabaseCalls(1, self._send)
        self.calls.attach(Hello(epoch=1, after=0, protocol=PROTOCOL, database=True))
        self.handle = Handle(self.calls, asyncio.get_running_loop())

    async def _send(self, call: DatabaseCall) -> None:
        self.calls.answer(await self.statements.take(call))

    async def use(self, function: Callable[[Handle], T]) -> T:
        return await asyncio.to_thread(function, self.handle)

    async def run(self, sql: str, *parameters: Any) -> list[Any]:
        return await self.use(lambda db: db.execute(sql, parameters).fetchall())


@pytest.fixture
def statements(monkeypatch: pytest.MonkeyPatch) -> Statements:
    return watched(monkeypatch)


def further(statements: Statements) -> int:
    """Open connections besides those of the daemon."""
    return len(statements.open) - len(["writer"]) - READERS


@pytest.fixture
async def world(tmp_path: Path, statements: Statements) -> AsyncIterator[World]:
    database = await Database.open(tmp_path / "pykoclaw.db")
    await database.commit(NEW_SESSION)
    made = World(database)
    yield made
    made.statements.stop()
    await database.close()


async def test_what_is_written_is_read_by_every_program(world: World) -> None:
    await world.use(lambda db: db.executescript("CREATE TABLE notes (id INTEGER PRIMARY KEY, t)"))
    first = await world.use(lambda db: db.execute("INSERT INTO notes (t) VALUES (?)", ("one",)))
    assert (first.rowcount, first.lastrowid, first.description) == (1, 1, None)
    more = await world.use(
        lambda db: db.executemany("INSERT INTO notes (t) VALUES (:t)", ({"t": t} for t in "ab"))
    )
    assert more.rowcount == 2
    await world.use(lambda db: db.commit())
    with closing(sqlite3.connect(world.database.path)) as other:
        assert other.execute("SELECT t FROM notes").fetchall() == [("one",), ("a",), ("b",)]
    found = await world.use(lambda db: db.execute("SELECT id, t AS text FROM notes ORDER BY id"))
    assert [column[0] for column in found.description or ()] == ["id", "text"]
    row = found.fetchone()
    assert (row["TEXT"], row[0], len(row), dict(row)) == ("one", 1, 2, {"id": 1, "text": "one"})
    assert [tuple(one) for one in found] == [(2, "a"), (3, "b")]
    (returned,) = await world.run("INSERT INTO notes (t) VALUES ('c') RETURNING id")
    assert returned["id"] == 4


async def test_values_come_back_as_they_went(world: World) -> None:
    await world.use(lambda db: db.executescript("CREATE TABLE v (n INTEGER PRIMARY KEY, v)"))
    values: list[Any] = [
        None,
        True,
        -(2**63),
        1.5,
        math.inf,
        "ü\x00🎈",
        b"\x00\xff",
        bytearray(b"x"),
    ]
    values += [date(2026, 3, 1), datetime(2026, 3, 1, 2, 3, tzinfo=UTC)]
    rows = [[one] for one in values]
    await world.use(lambda db: db.executemany("INSERT INTO v (v) VALUES (?)", rows))
    expected: list[Any] = [None, 1, -(2**63), 1.5, math.inf, "ü\x00🎈", b"\x00\xff", b"x"]
    expected += ["2026-03-01", "2026-03-01 02:03:00+00:00"]
    assert [row["v"] for row in await world.run("SELECT v FROM v ORDER BY n")] == expected
    for bad, error in ((2**63, OverflowError), (object(), sqlite3.ProgrammingError)):
        with pytest.raises(error):
            await world.run("INSERT INTO v (v) VALUES (?)", bad)
    with pytest.raises(UnicodeEncodeError):
        await world.run("INSERT INTO v (v) VALUES (?)", "\ud800")
    with pytest.raises(sqlite3.ProgrammingError):
        await world.run("INSERT INTO v (v) VALUES (?)")
    assert len(await world.run("SELECT * FROM v")) == len(values)


async def test_rows_are_made_as_the_plugin_wants(world: World) -> None:
    def changed(db: Handle) -> list[Any]:
        found = []
        for factory in (None, sqlite3.Row, lambda cursor, row: (len(cursor.description), *row)):
            db.row_factory = factory
            found.append(db.execute("SELECT 1 AS one, 2 AS two").fetchone())
        return found

    plain, row, own = await world.use(changed)
    assert plain == (1, 2)
    assert row["two"] == 2
    assert own == (2, 1, 2)


async def test_a_transaction_is_one_batch(world: World) -> None:
    await world.use(lambda db: db.executescript("CREATE TABLE t (a PRIMARY KEY)"))

    def good(db: Handle) -> tuple[int, int]:
        with db.transaction() as batch:
            one = batch.execute("INSERT INTO t VALUES (?)", ("a",))
            two = batch.executemany("INSERT INTO t VALUES (?)", [("b",), ("c",)])
            with pytest.raises(sqlite3.NotSupportedError):
                _ = one.rowcount
        return one.rowcount, two.rowcount

    def broken(db: Handle) -> None:
        with db.transaction() as batch:
            batch.execute("INSERT INTO t VALUES ('d')")
            batch.execute("INSERT INTO t VALUES ('a')")

    def left(db: Handle) -> None:
        with db.transaction() as batch:
            batch.execute("INSERT INTO t VALUES ('e')")
            raise KeyError("changed my mind")

    def reading(db: Handle) -> None:
        with db.transaction() as batch:
            batch.execute("SELECT * FROM t")

    assert await world.use(good) == (1, 2)
    for function, error in (
        (broken, sqlite3.IntegrityError),
        (left, KeyError),
        (reading, sqlite3.NotSupportedError),
    ):
        with pytest.raises(error):
            await world.use(function)
    assert [row["a"] for row in await world.run("SELECT a FROM t")] == ["a", "b", "c"]


INSERT: Final = "INSERT INTO t VALUES ('outside')"


@pytest.mark.parametrize(
    "use",
    [
        methodcaller("execute", INSERT),
        methodcaller("executemany", INSERT, [()]),
        methodcaller("executescript", INSERT),
        methodcaller("commit"),
        methodcaller("rollback"),
        lambda db: ExitStack().enter_context(db.transaction()),
    ],
)
async def test_handle_is_refused_within_its_transaction(
    world: World, use: Callable[[Handle], Any]
) -> None:
    await world.use(lambda db: db.executescript("CREATE TABLE t (a)"))

    def mixed(db: Handle) -> None:
        with db.transaction() as batch:
            batch.execute("INSERT INTO t VALUES ('inside')")
            with pytest.raises(sqlite3.NotSupportedError, match="was not done"):
                use(db)
            use(db)

    with pytest.raises(sqlite3.NotSupportedError, match="was not done"):
        await world.use(mixed)
    await world.use(lambda db: db.execute("INSERT INTO t VALUES ('later')"))
    assert [row["a"] for row in await world.run("SELECT a FROM t")] == ["later"]


async def test_transaction_of_one_tool_refuses_no_other(world: World) -> None:
    """The tools of a plugin are coroutines in one thread."""
    await world.use(lambda db: db.executescript("CREATE TABLE t (a)"))

    async def collecting(db: Handle, begun: asyncio.Event, over: asyncio.Event) -> None:
        with db.transaction() as batch:
            batch.execute("INSERT INTO t VALUES ('first')")
            begun.set()
            await over.wait()
            with pytest.raises(sqlite3.NotSupportedError):
                db.execute(INSERT)
            batch.execute("INSERT INTO t VALUES ('last')")

    async def both(db: Handle) -> None:
        begun, over = asyncio.Event(), asyncio.Event()
        task = asyncio.create_task(collecting(db, begun, over))
        await begun.wait()
        db.execute("INSERT INTO t VALUES ('other')")
        db.commit()
        db.rollback()
        with db.transaction() as batch:
            batch.execute("INSERT INTO t VALUES ('own')")
        over.set()
        await task

    await world.use(lambda db: asyncio.run(both(db)))
    rows = await world.run("SELECT a FROM t")
    assert [row["a"] for row in rows] == ["other", "own", "first", "last"]


async def test_what_a_transaction_starts_is_refused_within(world: World) -> None:
    await world.use(lambda db: db.executescript("CREATE TABLE t (a)"))

    async def ask(db: Handle, over: asyncio.Event) -> None:
        with pytest.raises(sqlite3.NotSupportedError):
            db.execute(INSERT)
        await over.wait()
        db.execute("INSERT INTO t VALUES ('later')")

    async def starting(db: Handle) -> None:
        over = asyncio.Event()
        with db.transaction() as batch:
            batch.execute("INSERT INTO t VALUES ('inside')")
            task = asyncio.create_task(ask(db, over))
            with pytest.raises(sqlite3.NotSupportedError):
                await asyncio.to_thread(db.execute, INSERT)
        over.set()
        await task

    await world.use(lambda db: asyncio.run(starting(db)))
    assert [row["a"] for row in await world.run("SELECT a FROM t")] == ["inside", "later"]


async def test_workers_own_thread_never_waits_for_handle(world: World) -> None:
    collecting, over = threading.Event(), threading.Event()

    def hold(db: Handle) -> bool:
        with db.transaction():
            collecting.set()
            return over.wait(20)

    holding = asyncio.create_task(world.use(hold))
    assert await asyncio.to_thread(collecting.wait, 60)
    for use in (methodcaller("execute", INSERT), methodcaller("executescript", INSERT)):
        with pytest.raises(sqlite3.ProgrammingError, match="own thread"):
            use(world.handle)
    world.handle.commit()
    over.set()
    assert await holding


async def test_commit_is_never_rolled_back_in_silence(world: World) -> None:
    await world.use(lambda db: db.rollback())
    await world.run("UPDATE scheduled_tasks SET status = 'paused'")
    with pytest.raises(sqlite3.NotSupportedError):
        await world.use(lambda db: db.rollback())
    await world.run("UPDATE scheduled_tasks SET status = 'paused'")
    await world.use(lambda db: db.commit())
    await world.use(lambda db: db.rollback())
    await world.use(lambda db: db.close())
    with pytest.raises(sqlite3.ProgrammingError):
        await world.run("SELECT 1")


REFUSED = {
    "UPDATE acp_sessions SET title = 'mine'": "acp_sessions",
    "/* x */ -- y\n DELETE FROM acp_log": "acp_log",
    "WITH x AS (SELECT 1) INSERT INTO ACP_trust SELECT 1, 2, 3 FROM x": "acp_trust",
    "DROP TABLE acp_turns": "acp_turns",
    "CREATE TABLE acp_mine (a)": "acp_mine",
    "CREATE INDEX mine ON acp_turns (state)": "acp_turns",
    "CREATE TRIGGER t AFTER INSERT ON conversations BEGIN DELETE FROM acp_log; END": "conversations",
    "ALTER TABLE acp_turns RENAME TO mine": "ALTER",
    "DROP TABLE conversations": "conversations",
    "CREATE UNIQUE INDEX mine ON conversations (created_at)": "only plain indexes on conversations",
    "CREATE INDEX mine ON conversations (json(name))": "only plain indexes on conversations",
    "CREATE INDEX mine ON conversations (cwd) WHERE name > ''": "only plain indexes on conversations",
    "DROP INDEX idx_delivery_queue_status": "an index of delivery_queue",
    "ALTER TABLE conversations RENAME TO mine": "only add columns to conversations",
    "/* x */ ALTER TABLE scheduled_tasks RENAME COLUMN prompt TO p": "only add columns to scheduled_tasks",
    "ALTER TABLE main.[conversations] DROP COLUMN cwd": "only add columns to conversations",
    "ALTER TABLE conversations ADD mine TEXT DEFAULT '' CHECK (cwd > '')": "only add columns to conversations",
    "CREATE TEMP TABLE mine (a)": "nothing temporary",
    "PRAGMA foreign_keys = ON": "PRAGMA foreign_keys",
    "PRAGMA journal_mode": "PRAGMA journal_mode",
    "SELECT * FROM pragma_journal_mode": "PRAGMA journal_mode",
    "ATTACH 'other.db' AS other": "ATTACH",
    "VACUUM": "VACUUM",
    "BEGIN IMMEDIATE": "transaction()",
    "COMMIT": "transaction()",
    "SAVEPOINT s": "transaction()",
    "": "may not run",
}


@pytest.mark.parametrize("sql", REFUSED)
async def test_access_beyond_plugins_own_is_refused_by_name(world: World, sql: str) -> None:
    before = await world.database.read("SELECT * FROM acp_sessions")
    for function in (
        lambda db: db.execute(sql),
        lambda db: db.executescript(f"{sql};" if sql else "BEGIN; SELECT 1"),
    ):
        with pytest.raises(sqlite3.DatabaseError) as refused:
            await world.use(function)
        assert REFUSED[sql] in str(refused.value) or "does not end" in str(refused.value)
    assert await world.database.read("SELECT * FROM acp_sessions") == before
    assert (await world.run("SELECT count(*) AS n FROM acp_sessions"))[0]["n"] == len(before)


async def test_shared_tables_take_columns_and_plain_indexes(world: World) -> None:
    """What pykoclaw's own migrations do is left to plugins."""
    await world.use(
        lambda db: db.executescript(
            "ALTER TABLE conversations ADD COLUMN mine TEXT DEFAULT 'group';"
            'alter table main."conversations" -- mine as well\n add also;'
            'CREATE INDEX IF NOT EXISTS mine ON conversations (mine, "also" DESC);'
            "CREATE TABLE own (a); CREATE UNIQUE INDEX of_own ON own (json(a)); DROP INDEX of_own;"
            "ALTER TABLE own ADD b; DROP TABLE own;"
        )
    )
    await world.run("INSERT INTO conversations (name, created_at) VALUES ('wa-1', '')")
    (row,) = await world.run("SELECT mine, also FROM conversations")
    assert tuple(row) == ("group", None)


async def test_a_plugins_trigger_cannot_reach_what_is_ours(world: World) -> None:
    await world.use(
        lambda db: db.executescript(
            "CREATE TABLE t (a); CREATE TRIGGER g AFTER INSERT ON t BEGIN DELETE FROM acp_sessions; END;"
        )
    )
    with pytest.raises(sqlite3.DatabaseError, match="acp_sessions"):
        await world.run("INSERT INTO t VALUES (1)")
    assert await world.database.read("SELECT count(*) FROM acp_sessions") == [(1,)]


async def test_columns_can_be_looked_at(world: World) -> None:
    rows = await world.run("PRAGMA table_info(conversations)")
    assert [row["name"] for row in rows][:2] == ["name", "session_id"]
    rows = await world.run("SELECT name FROM pragma_table_info('conversations')")
    assert rows[0]["name"] == "name"


async def test_a_script_goes_on_where_pykoclaws_would(world: World) -> None:
    """Each statement is committed for itself; what follows the one that fails does not run."""
    script = """
        CREATE TABLE one (a); -- with a comment; and a semicolon
        INSERT INTO one VALUES (';');
        BEGIN; INSERT INTO one VALUES ('both'); INSERT INTO missing VALUES (1); COMMIT;
        CREATE TABLE two (a);
    """
    with pytest.raises(sqlite3.OperationalError, match="missing"):
        await world.use(lambda db: db.executescript(script))
    assert [row["a"] for row in await world.run("SELECT a FROM one")] == [";"]
    with pytest.raises(sqlite3.OperationalError, match="two"):
        await world.run("SELECT * FROM two")


@pytest.mark.parametrize(
    "script",
    [
        "CREATE TABLE a (x);\n-- end; of the schema\n",
        "CREATE TABLE a (x); /* done; */",
        "CREATE TABLE a (x); /* done",
        "CREATE TABLE a (x);; /* nothing */ ;",
        "\ufeff-- 1\nCREATE TABLE a (x)",
        "-- 1\nBEGIN; -- go\nCREATE TABLE a (x);\n/* and */ COMMIT; -- end",
        "BEGIN /* now */ EXCLUSIVE;; CREATE TABLE a (x); COMMIT TRANSACTION",
    ],
)
async def test_comments_may_stand_anywhere_in_scripts(world: World, script: str) -> None:
    await world.use(lambda db: db.migrate(script))
    assert len(await world.run("PRAGMA table_info(a)")) == 1


async def test_a_script_may_have_only_comments(world: World) -> None:
    for script in ("", " ;", "-- nothing to do"):
        await world.use(methodcaller("executescript", script))


async def test_a_transaction_inside_another_is_refused(world: World) -> None:
    with pytest.raises(sqlite3.OperationalError, match="transaction"):
        await world.use(
            lambda db: db.executescript("BEGIN; CREATE TABLE a (x); BEGIN; SELECT 1; COMMIT")
        )
    assert not await world.run("PRAGMA table_info(a)")


async def test_a_migration_runs_once_under_a_daemon(world: World) -> None:
    script = "CREATE TABLE IF NOT EXISTS m (a); INSERT INTO m VALUES (1)"
    for _ in range(3):
        await world.use(lambda db: db.migrate(script))
    assert len(await world.run("SELECT * FROM m")) == 1
    for _ in range(2):  # one that fails is tried by the next worker
        with pytest.raises(sqlite3.OperationalError):
            await world.use(lambda db: db.migrate("INSERT INTO nowhere VALUES (1)"))


class SlowClock:
    """A clock that goes on a millisecond with each look at it, and further as a test wants."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def monotonic(self) -> float:
        self.seconds += 0.001
        return self.seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SlowClock:
    made = SlowClock()
    monkeypatch.setattr(plugin_guard, "time", made)
    return made


async def _daemon_writes(world: World) -> None:
    own = Unit((Statement("UPDATE acp_sessions SET title = 'ours'"),))
    await asyncio.wait_for(world.database.commit(own), 60)


async def test_writes_succeed_however_long_between_them(
    world: World, clock: SlowClock, statements: Statements
) -> None:
    """SQLite asks the guard at one in many runs of BEGIN and COMMIT as well."""
    await world.use(lambda db: db.executescript("CREATE TABLE t (a)"))

    def late(_: sqlite3.Connection, sql: str, __: object) -> None:
        if sql == "COMMIT":
            clock.seconds += 60

    statements.before = late
    for number in range(100):
        await world.run("INSERT INTO t VALUES (?)", number)
    await _daemon_writes(world)
    assert len(await world.run("SELECT a FROM t")) == 100


@pytest.mark.usefixtures("clock")
async def test_stopped_writes_give_the_lock_back(world: World) -> None:
    await world.use(lambda db: db.executescript("CREATE TABLE t (a)"))
    for _ in range(60):
        with pytest.raises(sqlite3.OperationalError, match="nothing was changed"):
            await world.run(f"INSERT INTO t {FOREVER}")
    await _daemon_writes(world)
    await world.run("INSERT INTO t VALUES (1)")
    assert len(await world.run("SELECT a FROM t")) == 1


async def test_a_rollback_that_fails_locks_nobody_out(world: World, statements: Statements) -> None:
    def failing(_: sqlite3.Connection, sql: str, __: object) -> None:
        if sql == "ROLLBACK":
            raise sqlite3.OperationalError("disk I/O error")

    await world.use(lambda db: db.executescript("CREATE TABLE t (a PRIMARY KEY)"))
    await world.run("INSERT INTO t VALUES (1)")
    statements.before = failing
    with pytest.raises(sqlite3.IntegrityError):
        await world.run("INSERT INTO t VALUES (1)")
    await _daemon_writes(world)
    await world.run("INSERT INTO t VALUES (2)")
    assert len(await world.run("SELECT a FROM t")) == 2
    assert further(statements) == 2  # that of the reads, and the new one


async def test_statements_are_bounded_in_time(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plugin_statements, "READ_TIME", 0.1)
    monkeypatch.setattr(plugin_statements, "WRITE_TIME", 0.1)
    await world.use(lambda db: db.executescript("CREATE TABLE t (a)"))
    with pytest.raises(sqlite3.OperationalError, match=r"may take 0\.1 s"):
        await world.run(FOREVER)
    with pytest.raises(sqlite3.OperationalError, match="nothing was changed"):
        await world.run(f"INSERT INTO t {FOREVER}")
    numbers = [[n] for n in range(100_000)]
    sql = "INSERT INTO t SELECT ? FROM (SELECT 1 UNION SELECT 2 UNION SELECT 3)"
    with pytest.raises(sqlite3.OperationalError, match="smaller steps"):
        await world.use(lambda db: db.executemany(sql, numbers))
    assert await world.run("SELECT * FROM t") == []


@pytest.mark.parametrize(
    "made",
    [
        "zeroblob(900000000)",
        "randomblob(300000000)",
        "printf('%.*c', 900000000, 'x')",
        "replace(printf('%4000d', 1), ' ', printf('%4000d', 1))",
        "zeroblob(4000000) || zeroblob(4000000)",
    ],
)
@pytest.mark.parametrize("sql", ["INSERT INTO big SELECT {}", "SELECT length({})"])
async def test_no_value_is_longer_than_may_be(world: World, sql: str, made: str) -> None:
    await world.use(lambda db: db.executescript("CREATE TABLE big (x)"))
    with pytest.raises(sqlite3.OperationalError, match="may have 4 MiB here"):
        await world.run(sql.format(made))
    await world.run("INSERT INTO big SELECT zeroblob(4000000)")
    assert [tuple(one) for one in await world.run("SELECT length(x) FROM big")] == [(4_000_000,)]


async def test_long_values_are_refused_where_no_limit_works(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(value_limit, "limit", lambda _: False)
    with pytest.raises(sqlite3.OperationalError, match="may not use zeroblob"):
        await world.run("SELECT ZEROBLOB(10)")
    assert [tuple(one) for one in await world.run("SELECT upper('a')")] == [("A",)]


async def test_statements_run_with_an_unknown_sqlite(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unknown(name: str) -> str:
        raise PackageNotFoundError(name)

    monkeypatch.setattr(value_limit, "version", unknown)
    assert [tuple(one) for one in await world.run("SELECT upper('a')")] == [("A",)]


async def test_connections_that_cannot_be_prepared_are_closed(
    world: World, statements: Statements
) -> None:
    begun, over = threading.Event(), threading.Event()

    def failing(_: sqlite3.Connection, sql: str, __: object) -> None:
        if sql.startswith("PRAGMA busy_timeout"):
            begun.set()
            over.wait(60)
            raise sqlite3.OperationalError("not prepared")

    statements.before = failing
    call = DatabaseCall(epoch=1, call=1, statements=[SqlStatement("SELECT 1")])
    cancelled = asyncio.ensure_future(world.statements.take(call))
    try:
        assert await asyncio.to_thread(begun.wait, 60)
        cancelled.cancel()
    finally:
        over.set()
    with pytest.raises(asyncio.CancelledError):
        await cancelled
    with pytest.raises(sqlite3.OperationalError, match="not prepared"):
        await world.run("SELECT 1")
    statements.before = lambda *_: None
    assert further(statements) == 0
    assert len(await world.run("SELECT 1")) == 1


async def test_running_statement_blocks_neither_daemon_nor_others(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plugin_statements, "READ_TIME", 3600.0)
    reading = asyncio.ensure_future(world.run(FOREVER))
    other = Handle(world.calls, asyncio.get_running_loop())
    await asyncio.to_thread(other.execute, "UPDATE scheduled_tasks SET status = 'paused'")
    assert await world.database.read("SELECT count(*) FROM acp_sessions") == [(1,)]
    assert not reading.done()
    world.statements.stop()
    with pytest.raises(sqlite3.OperationalError):
        await reading


async def test_an_open_transaction_blocks_nobody(world: World) -> None:
    await world.use(lambda db: db.executescript("CREATE TABLE t (a)"))
    opened, over = threading.Event(), threading.Event()

    def hold(db: Handle) -> None:
        with db.transaction() as batch:
            batch.execute("INSERT INTO t VALUES ('held')")
            opened.set()
            assert over.wait(300)

    holding = asyncio.ensure_future(world.use(hold))
    try:
        assert await asyncio.to_thread(opened.wait, 60)
        another = Handle(world.calls, asyncio.get_running_loop())
        write = asyncio.to_thread(another.execute, "INSERT INTO t VALUES ('another plugin')")
        await asyncio.wait_for(write, 60)
        own = Unit((Statement("UPDATE acp_sessions SET title = 'ours'"),))
        await asyncio.wait_for(world.database.commit(own), 60)
        with closing(sqlite3.connect(world.database.path, timeout=0)) as program:
            program.execute("INSERT INTO conversations (name, created_at) VALUES ('theirs-1', '')")
            program.commit()
        assert not holding.done()
    finally:
        over.set()
        await holding
    rows = await world.run("SELECT a FROM t ORDER BY rowid")
    assert [row["a"] for row in rows] == ["another plugin", "held"]


async def test_statement_beginning_as_daemon_ends_is_ended_too(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plugin_statements, "READ_TIME", 3600.0)
    connect, opening, stopped = world.database.connect, asyncio.Event(), asyncio.Event()

    async def slowly() -> Any:
        opening.set()
        await stopped.wait()
        return await connect()

    monkeypatch.setattr(world.database, "connect", slowly)
    reading = [asyncio.ensure_future(world.run(FOREVER)) for _ in range(2)]
    await asyncio.wait_for(opening.wait(), 60)
    world.statements.stop()
    stopped.set()
    for one in reading:
        with pytest.raises(sqlite3.OperationalError):
            await asyncio.wait_for(one, 60)


async def test_answers_are_bounded_in_size(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(sqlite3.OperationalError, match="LIMIT"):
        await world.run(" UNION ALL ".join([f"SELECT zeroblob({ANSWER_BYTES // 2 - 1000})"] * 3))
    with pytest.raises(sqlite3.DataError, match="MiB"):
        await world.run("SELECT ?", "x" * 5_000_000)
    monkeypatch.setattr(plugin_statements, "MAX_ROWS", 10)
    with pytest.raises(sqlite3.OperationalError, match="LIMIT"):
        await world.run(f"SELECT i FROM ({FOREVER.replace('count(*)', 'i')})")


async def test_plugin_is_told_why_database_cannot_be_written(world: World) -> None:
    world.database.condition.failed(DatabaseState.BLOCKED, "The disk is full.")
    with pytest.raises(sqlite3.OperationalError, match="The disk is full"):
        await world.run("UPDATE scheduled_tasks SET status = 'paused'")


async def test_another_programs_lock_errs_after_short_wait(world: World) -> None:
    with closing(sqlite3.connect(world.database.path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(sqlite3.OperationalError, match="locked"):
            await world.run("UPDATE scheduled_tasks SET status = 'paused'")
        other.execute("ROLLBACK")
    await world.run("UPDATE scheduled_tasks SET status = 'paused'")


async def test_a_file_that_was_replaced_is_not_written(world: World, tmp_path: Path) -> None:
    await world.use(lambda db: db.executescript("CREATE TABLE t (a)"))
    path = world.database.path
    path.rename(tmp_path / "moved")
    path.touch()
    try:
        with pytest.raises(sqlite3.OperationalError, match="Another file"):
            await world.run("INSERT INTO t VALUES (1)")
    finally:
        (tmp_path / "moved").rename(path)
    assert await world.run("SELECT * FROM t") == []


async def test_no_connection_opens_before_plugin_needs_one(
    world: World, statements: Statements
) -> None:
    assert further(statements) == 0
    await world.run("SELECT 1")
    assert further(statements) == 1
    await world.run("DELETE FROM scheduled_tasks")
    await world.run("DELETE FROM scheduled_tasks")
    assert further(statements) == 2
