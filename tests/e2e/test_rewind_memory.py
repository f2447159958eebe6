"""What Claude remembers after a rewind or in a fork, where other programs, or a loss of its memory, came
in between; with the real CLI.
"""

from __future__ import annotations

import asyncio
import json

import pytest

from tests.e2e.harness import Client, Stack, script, text
from tests.e2e.other_programs import answers, terminal
from tests.e2e.rewinds import front
from tests.waiting import eventually


async def say(client: Client, session: str, word: str) -> None:
    await client.prompt(session, f"Word: {word}\n" + text(f"Noted {word}."))


async def rewind(client: Client, session: str, message: str | None = None) -> None:
    await client.call("_pykoclaw.dev/rewind", session=session, message=message, files=False)


async def fork(client: Client, stack: Stack, session: str, message: str | None) -> str:
    meta = {} if message is None else {"pykoclaw.dev/messageId": message}
    made = await client.call(
        "session/fork", sessionId=session, cwd=str(stack.work), mcpServers=[], _meta=meta
    )
    return str(made["sessionId"])


def asked(stack: Stack) -> str:
    """What the newest request tells the model of users' words, notes among them."""
    return "\n".join(stack.asked()[-1]["user_texts"])


def is_told(told: str, word: str) -> bool:
    """Once; the terminal's turn is in a summary, too, if it was looked at while it ran."""
    return told.count(f"Word: {word}") in ((1, 2) if word == "theirs" else (1,))


def turns(stack: Stack) -> list[str]:
    found = stack.rows("SELECT turn_id FROM acp_turns ORDER BY position, created_at")
    return [row["turn_id"] for row in found]


def theirs(stack: Stack) -> str:
    """The newest message of the terminal's turn."""
    found = stack.rows(
        "SELECT payload FROM acp_log WHERE payload LIKE '%Noted theirs.%' AND turn IS NULL"
    )
    return str(json.loads(found[-1]["payload"])["message_id"])


async def at_once(client: Client, stack: Stack, *words: str) -> str:
    """A session in which these were prompted while a terminal ran a turn, which Claude goes on from."""
    session = await client.new(stack.work)
    await say(client, session, "one")
    (transcript,) = stack.transcripts(session)
    gate = stack.root / f"gate-{session}"
    going = f"bash while [ ! -e {gate} ]; do sleep 0.05; done"
    asked = "Word: theirs " + script(going, "text Noted theirs.")
    run = asyncio.create_task(terminal(stack, session, asked, "--allowedTools=Bash"))
    await eventually(lambda: '"tool_use"' in transcript.read_text())
    for word in words:
        await say(client, session, word)
    stack.worker(session).kill()  # else its CLI may note its own end last, and Claude goes on there
    await eventually(lambda: stack.claude(session) is None)
    gate.touch()
    await run
    await client.until(lambda: "Noted theirs." in client.text(session))
    return session


@pytest.mark.parametrize(
    "words", [("ours",), pytest.param(("more", "ours"), marks=pytest.mark.long)]
)
async def test_rewound_turn_of_a_branch_is_not_told(stack: Stack, words: tuple[str, ...]) -> None:
    client = await front(stack)
    session = await at_once(client, stack, *words)
    await rewind(client, session)
    for word in ("two", "three"):
        await say(client, session, word)
        told = asked(stack)
        assert "Word: one" in told
        assert "Word: ours" not in told
        assert is_told(told, "theirs")
        assert is_told(told, "more") is ("more" in words)
        assert "Noted theirs." in answers(stack), "the whole turn, which began before"


@pytest.mark.parametrize("rounds", [1, pytest.param(2, marks=pytest.mark.long)])
async def test_rewind_keeps_the_branch_claude_had(stack: Stack, rounds: int) -> None:
    client = await front(stack)
    session = await at_once(client, stack, "ours")
    for _ in range(rounds):
        await say(client, session, "two")
        await rewind(client, session)
    await say(client, session, "three")
    told = asked(stack)
    assert [is_told(told, one) for one in ("one", "theirs", "ours")] == [True] * 3
    assert "two" not in told
    assert "Asked: Word: ours" in told
    assert "Noted ours." in told
    assert answers(stack)[0] == "Noted one."
    assert "Noted theirs." in answers(stack)
    assert "PYKOCLAW_LOST_CONTEXT" not in client.text(session)
    await rewind(client, session)
    await rewind(client, session)
    await say(client, session, "four")
    assert "ours" not in asked(stack)
    assert "Noted theirs." in answers(stack)


@pytest.mark.long
@pytest.mark.parametrize("at", ["ours", "theirs", "end"])
async def test_fork_keeps_the_branch_claude_had(stack: Stack, at: str) -> None:
    client = await front(stack)
    session = await at_once(client, stack, "ours")
    if at != "end":
        await say(client, session, "two")
    message = {"ours": turns(stack)[1], "theirs": theirs(stack), "end": None}[at]
    made = await fork(client, stack, session, message)
    await say(client, made, "three")
    told = asked(stack)
    assert "PYKOCLAW_LOST_CONTEXT" not in client.text(made)
    assert answers(stack)[0] == "Noted one."
    assert "Asked: Word: ours" in told
    assert "two" not in told
    assert is_told(told, "theirs")
    assert "Noted ours.\nNoted theirs." not in told
    assert ("Noted theirs." in answers(stack)) == (at != "ours")


@pytest.mark.long
async def test_second_rewind_keeps_what_was_before_the_first(stack: Stack) -> None:
    """The first one covered a turn of a terminal."""
    client = await front(stack)
    session = await client.new(stack.work)
    await say(client, session, "one")
    await say(client, session, "two")
    await terminal(stack, session, "Word: inbetween " + text("Noted inbetween."))
    await say(client, session, "three")
    (_, second, _) = turns(stack)
    await rewind(client, session, second)
    await say(client, session, "four")
    await rewind(client, session)
    await say(client, session, "five")
    told = asked(stack)
    assert "Word: one" in told
    assert not any(word in told for word in ("two", "inbetween", "three", "four"))
    assert "PYKOCLAW_LOST_CONTEXT" not in client.text(session)


@pytest.mark.long
async def test_rewind_keeps_a_terminals_turn_before_it(stack: Stack) -> None:
    client = await front(stack)
    session = await client.new(stack.work)
    await say(client, session, "one")
    await terminal(stack, session, "Word: inbetween " + text("Noted inbetween."))
    await say(client, session, "two")
    await rewind(client, session)
    await say(client, session, "three")
    await rewind(client, session)
    await say(client, session, "four")
    told = asked(stack)
    assert "Word: one" in told
    assert "Word: inbetween" in told
    assert not any(word in told for word in ("two", "three"))


@pytest.mark.long
async def test_fork_keeps_a_terminals_turn_before_a_rewind(stack: Stack) -> None:
    """Also if nothing was prompted in it."""
    client = await front(stack)
    session = await client.new(stack.work)
    await say(client, session, "one")
    await terminal(stack, session, "Word: inbetween " + text("Noted inbetween."))
    await say(client, session, "two")
    (_, second) = turns(stack)
    made = await fork(client, stack, session, second)
    await rewind(client, made)
    await say(client, made, "three")
    told = asked(stack)
    assert "Word: one" in told
    assert "Word: inbetween" in told
    assert "two" not in told
    assert "it gets a summary" not in client.text(made)


@pytest.mark.long
async def test_terminals_turn_after_a_rewind_is_told(stack: Stack) -> None:
    client = await front(stack)
    session = await client.new(stack.work)
    await say(client, session, "one")
    await say(client, session, "two")
    await rewind(client, session)
    await terminal(stack, session, "Word: meanwhile " + text("Noted meanwhile."))
    await say(client, session, "three")
    told = asked(stack)
    assert "Word: one" in told
    assert "Asked: Word: meanwhile" in told, "in a note"
    assert "two" not in told
    await say(client, session, "four")
    assert "two" not in asked(stack)
    assert client.text(session).count("Another program") == 1


@pytest.mark.long
async def test_session_survives_rewinds_into_lost_memory(stack: Stack) -> None:
    client = await front(stack)
    session = await client.new(stack.work)
    await say(client, session, "one")
    await say(client, session, "two")
    await client.close()
    await stack.kill_everything()
    for transcript in stack.transcripts():
        transcript.unlink()
    client = await front(stack)
    await client.load(session, stack.work)
    await say(client, session, "three")
    first, second, _ = turns(stack)
    await rewind(client, session)
    assert "It gets a summary" in client.text(session)
    await say(client, session, "four")
    assert "Asked: Word: one" in asked(stack)
    assert "Asked: Word: two" in asked(stack)
    await rewind(client, session, second)
    await say(client, session, "five")
    assert "Asked: Word: one" in asked(stack)
    assert "two" not in asked(stack)
    assert client.text(session).count("PYKOCLAW_LOST_CONTEXT") == 1
    made = await fork(client, stack, session, first)
    await say(client, made, "six")
    assert "Asked: Word: one" in asked(stack)
    assert "five" not in asked(stack)


@pytest.mark.long
async def test_rewind_after_a_loss_keeps_what_is_left(stack: Stack) -> None:
    """A transcript that was cut off has the turns before."""
    client = await front(stack)
    session = await client.new(stack.work)
    await say(client, session, "one")
    (path,) = stack.transcripts(session)
    size = path.stat().st_size
    await say(client, session, "two")
    await client.close()
    await stack.kill_everything()
    with path.open("r+") as file:
        file.truncate(size)
    client = await front(stack)
    await client.load(session, stack.work)
    await say(client, session, "three")
    assert "Asked: Word: two" in asked(stack)
    _, second, _ = turns(stack)
    await rewind(client, session)
    made = await fork(client, stack, session, second)
    for one in (session, made):
        await say(client, one, "four")
        told = asked(stack)
        assert "Asked: Word: two" in told
        assert "Word: one" in told
        assert "Asked: Word: one" not in told, "Claude remembers it"
        assert "three" not in told
        assert client.text(session).count("PYKOCLAW_LOST_CONTEXT") == 1


@pytest.mark.long
async def test_lost_place_of_a_rewind_is_said(stack: Stack) -> None:
    """The transcript was cut off before it, and is still there."""
    client = await front(stack)
    session = await client.new(stack.work)
    await say(client, session, "one")
    (path,) = stack.transcripts(session)
    size = path.stat().st_size
    await say(client, session, "two")
    await say(client, session, "three")
    await rewind(client, session)
    with path.open("r+") as file:
        file.truncate(size)
    await say(client, session, "four")
    assert "no longer leads to the place where Claude was to go on" in client.text(session)
    assert "Asked: Word: two" in asked(stack)
    assert "three" not in asked(stack)
