"""The wheel of the version before is replaced by that of today while it works: its fronts and its
worker go on with the daemon of today.
"""

from __future__ import annotations

import io
import os
import re
import signal
import subprocess
import tarfile
from pathlib import Path
from typing import Any, Final

import pytest

from tests.e2e.harness import Client, Stack, script, text
from tests.e2e.harness.client import selected
from tests.waiting import eventually
from tests.wheels import ALONE, CHECKOUT, Environment, build

# A commit in each line, and what it is; `.ci/run` says which are not here.
COMMITS: Final = Path(__file__).with_name("versions_before").read_text().splitlines()
NEWEST, *OLDER = (line.split()[0] for line in COMMITS)
BEFORE: Final = (NEWEST, *(pytest.param(one, marks=pytest.mark.long) for one in OLDER))
COUNT: Final = 600
# It lasts until the next daemon may start, however long the installation takes.
TOOL: Final = "while [ ! -e go ]; do sleep 0.05; done; echo from-the-tool"
TURN: Final = script(f"repeat {COUNT}x10ms w{{n}}.", f"bash {TOOL}", "text The end.")
ASKING: Final = script("text May I?", "bash mkdir made", "text Thank you.")
HANGING: Final = script("text I begin.", "hang", "text Never.")
WHOLE: Final = [f"w{n}" for n in range(1, COUNT + 1)]


@pytest.fixture(scope="session", params=BEFORE)
def wheel_before(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Path:
    """The wheel of a version before."""
    before: str = request.param
    packed = subprocess.run(
        ["git", "-C", str(CHECKOUT), "archive", before], capture_output=True, check=False
    )
    if packed.returncode:
        pytest.skip(
            f"commit {before} is not here, as in a shallow clone: {packed.stderr.decode().strip()}"
        )
    place = tmp_path_factory.mktemp("before")
    with tarfile.open(fileobj=io.BytesIO(packed.stdout)) as archive:
        archive.extractall(place / "source", filter="data")
    return build(place / "source", place / "wheel")


class Installation(Environment):
    """Where fronts, daemon, fork server and workers run the program from."""

    def __init__(self, place: Path, today: Path) -> None:
        super().__init__(place)
        self.started: dict[str, Any] = {"program": (str(self.program),), **ALONE}
        self._today = today

    def upgrade(self) -> None:
        """The version of this checkout, in the place of the version before."""
        self.install(self._today)
        for path in CHECKOUT.glob("pykoclaw_acp/**/*.py"):
            assert (self.packages / path.relative_to(CHECKOUT)).read_bytes() == path.read_bytes()

    def runs(self, pid: int | None) -> bool:
        """Whether a process is one of this installation."""
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
        return command.startswith(os.fsencode(self.place / "bin/python"))


@pytest.fixture
def installed(tmp_path: Path, wheel_before: Path, wheel: Path) -> Installation:
    """A version before."""
    made = Installation(tmp_path / "installed", wheel)
    made.install(wheel_before)
    return made


def words(client: Client, session: str) -> list[str]:
    return re.findall(r"w\d+", client.text(session))


def prompts(stack: Stack) -> list[str]:
    newest = [one["messages"][-1] for one in stack.asked()]
    return [one["text"] for one in newest if one["role"] == "user" and not one["tool_results"]]


@pytest.mark.parametrize(
    "number",
    [pytest.param(signal.SIGTERM, marks=pytest.mark.long), signal.SIGKILL],
    ids=["SIGTERM", "SIGKILL"],
)
async def test_previous_version_fronts_and_worker_continue_after_upgrade(
    stack: Stack, installed: Installation, number: signal.Signals
) -> None:
    await stack.daemon(**installed.started)
    asking = await stack.front(**installed.started)
    watching = await stack.front(**installed.started)
    session = await asking.new(stack.work)
    await asking.prompt(session, text("It was so."))
    await watching.load(session, stack.work)
    running = asking.prompting(session, TURN)
    await asking.until(lambda: len(words(asking, session)) >= 20)
    waiting = asking.prompting(session, text("After it."))
    await eventually(lambda: stack.rows("SELECT 1 FROM acp_turns WHERE state = 'queued'"))
    assert installed.runs(stack.worker(session).pid)

    installed.upgrade()
    await stack.end_daemon(number)  # the fronts start the next one
    (stack.work / "go").touch()
    assert (await asking.answer(running))["stopReason"] == "end_turn"
    assert (await asking.answer(waiting))["stopReason"] == "end_turn"
    assert installed.runs(stack.daemon_pid())
    await watching.until(lambda: watching.text(session).endswith("After it."))
    for client in (asking, watching):
        assert words(client, session) == WHOLE
        statuses = [one["status"] for one in client.of(session, "tool_call", "tool_call_update")]
        assert statuses == ["in_progress", "completed"]
    assert prompts(stack) == [text("It was so."), TURN, text("After it.")]
    states = stack.rows("SELECT state FROM acp_turns WHERE acp_session_id = ?", session)
    assert [row["state"] for row in states] == ["done", "done", "done"]

    fresh = await stack.front()
    await fresh.load(session, stack.work)
    for client in (asking, watching):
        assert client.text(session) == fresh.text(session)
    assert (await asking.prompt(session, text("All is well.")))["stopReason"] == "end_turn"


async def test_old_worker_is_decided_and_cancelled_after_upgrade(
    stack: Stack, installed: Installation
) -> None:
    """A tool call that asks before the upgrade, and a turn of another session that hangs."""
    await stack.daemon(**installed.started)
    client = await stack.front(**installed.started)
    client.permit = lambda _: None  # it is open until the new daemon is there
    asking, hanging = await client.new(stack.work), await client.new(stack.work)
    decided = client.prompting(asking, ASKING)
    await client.until(lambda: client.questions)
    cancelled = client.prompting(hanging, HANGING)
    await client.until(lambda: client.text(hanging) == "I begin.")
    olds = {stack.worker(session).pid for session in (asking, hanging)}

    installed.upgrade()
    await stack.end_daemon()
    await eventually(stack.daemon_pid)
    assert olds == {stack.worker(session).pid for session in (asking, hanging)}
    assert not (stack.work / "made").exists()
    client.reply(client.questions[0], selected("allow_once"))
    assert (await client.answer(decided))["stopReason"] == "end_turn"
    assert (stack.work / "made").is_dir()
    assert client.text(asking) == "May I?Thank you."
    (row,) = stack.rows("SELECT outcome, option_id FROM acp_permissions")
    assert row == {"outcome": "selected", "option_id": "allow_once"}

    client.cancel(hanging)
    assert (await client.answer(cancelled))["stopReason"] == "cancelled"
    assert stack.worker(hanging).pid in olds, "it obeyed, and was not killed"
    states = stack.rows("SELECT state FROM acp_turns ORDER BY state")
    assert [row["state"] for row in states] == ["cancelled", "done"]
    assert (await client.prompt(asking, text("All is well.")))["stopReason"] == "end_turn"
