"""Scenes of the demo in which processes are killed in mid-answer."""

from __future__ import annotations

import asyncio
import signal
import time
from itertools import pairwise
from typing import Any, Final

from acp.schema import UserMessageChunk

from pykoclaw_acp.demo import script
from pykoclaw_acp.demo.client import Arrival, folded, seq_of, text_of, texts
from pykoclaw_acp.demo.processes import DemoProcess, pids
from pykoclaw_acp.demo.stage import Stage, logged, since

# A new daemon has no fork server until it needs one
ROLES: Final = {
    "front",
    "daemon",
    "worker",
    "claude",
}
LASTING: Final = ("worker", "claude")  # what must outlive front and daemon
_BROKEN: Final = "ended with an error"


async def kill_daemon(stage: Stage) -> None:
    """Kill the daemon: the front starts another, which adopts the worker; the editor sees a pause."""
    stage.scene("SIGKILL of the daemon, in mid-answer")
    turn = stage.ask(script.TALE)
    await stage.agent.streaming(turn, script.HEARD)
    before = stage.processes()
    stage.page.speech.signal("SIGKILL", stage.send("daemon", signal.SIGKILL))
    cut = len(_words(stage.heard))
    answer = await turn
    heard = stage.keep()
    after = stage.processes()
    stage.page.pause()
    stage.page.processes("Processes after:", after)
    stage.page.pause()

    told, asked = script.words_of(script.TALE), await stage.times_asked(script.TALE)
    replaced = pids(before, "daemon") != pids(after, "daemon") != []
    stayed = _lasted(stage, before)
    right = (
        _words(heard) == told
        and cut < len(told)
        and answer.stop_reason == "end_turn"
        and asked == 1
    )
    seen = f"killed at word {cut}; {len(_words(heard))} of {len(told)} words, {answer.stop_reason}, asked {asked}x; "
    seen += (
        f"{'a new' if replaced else 'no new'} daemon, {'the same' if stayed else 'ANOTHER'} worker"
    )
    pause = max((later.at - earlier.at for earlier, later in pairwise(texts(heard))), default=0.0)
    stage.saw("daemon killed", seen, right=right and replaced and stayed, ms=pause * 1000)


async def kill_editor(stage: Stage) -> None:
    """Kill the editor: the turn continues; a new editor resumes after the old one's position."""
    stage.scene("SIGKILL of the editor and its front, in mid-answer")
    turn = stage.ask(script.SECOND_TALE)
    await stage.agent.streaming(turn, script.HEARD)
    before = stage.processes()
    front = stage.send("front", signal.SIGKILL)
    await asyncio.wait([turn])  # the editor has now read what was on its way
    await stage.agent.forget()
    first = stage.keep()
    stage.page.speech.signal("SIGKILL", f"{front}, and the editor with it")
    cursor = max(seq_of(update) for update in logged(first))
    stage.page.pause()

    greeting = await stage.open_editor()
    stayed = pids(before, "daemon") == pids(stage.processes(), "daemon") and _lasted(stage, before)
    seen = f"{greeting.seen}; {'the same' if stayed else 'ANOTHER'} daemon and worker"
    stage.saw("new editor", seen, right=greeting.right and stayed, ms=greeting.ms)
    begun = time.perf_counter()
    await stage.agent.resume(stage.session, stage.project, cursor)
    ms = since(begun)
    await stage.agent.end_of_turn()
    rest = stage.keep()
    stage.page.pause()

    told, asked = script.words_of(script.SECOND_TALE), await stage.times_asked(script.SECOND_TALE)
    seqs = [seq_of(update) for update in logged(rest)]
    whole = _words(first + rest) == told and seqs == sorted({*seqs} - {*range(cursor + 1)})
    lost = isinstance(turn.exception(), ConnectionError)
    seen = f"after seq {cursor}: {len(_words(first))} + {len(_words(rest))} of {len(told)} words, asked {asked}x"
    stage.saw("resume", seen, right=whole and lost and bool(_words(rest)) and asked == 1, ms=ms)


async def kill_everything(stage: Stage) -> None:
    """Kill all processes in mid-answer."""
    stage.scene("SIGKILL of every process, in mid-answer")
    turn = stage.ask(script.LAST_TALE)
    await stage.agent.streaming(turn, script.HEARD)
    tree = stage.processes()
    stage.claude = next((one.program for one in tree if one.role == "claude"), "")
    stage.kill_everything()
    left = stage.processes()
    await asyncio.wait([turn])
    await stage.agent.forget()
    words = _words(stage.keep())
    stage.page.speech.signal("SIGKILL", "everything")
    stage.page.pause()
    stage.page.processes("Processes before:", tree)
    stage.page.processes("Processes after:", left)
    stage.page.pause()
    complete = {one.role for one in tree} >= ROLES
    broken_off = isinstance(turn.exception(), ConnectionError) and len(words) < len(
        script.words_of(script.LAST_TALE)
    )
    seen = f"{len(tree)} killed, {len(left)} left, after {len(words)} words"
    stage.saw("SIGKILL", seen, right=complete and not left and broken_off)


async def load_again(stage: Stage) -> None:
    """Load the session: everything that was shown comes from the log; the interrupted answer is
    marked as such.
    """
    stage.scene("A new daemon, the same conversation")
    greeting = await stage.open_editor()
    stage.saw("start again", greeting.seen, right=greeting.right, ms=greeting.ms)
    begun = time.perf_counter()
    await stage.agent.load(stage.session, stage.project)
    ms = since(begun)
    stage.page.pause()

    history = logged(stage.heard)
    said = "".join(text_of(update) for update in history if isinstance(update, UserMessageChunk))
    agents = [update for update in history if not isinstance(update, UserMessageChunk)]
    live, replayed = folded(stage.held), folded(agents)
    # The answer that was cut off may have gone on for a moment after its last word was heard.
    same = replayed[: len(live) - 1] == live[:-1] and _goes_on(live[-1], replayed[len(live) - 1])
    seqs = [seq_of(update) for update in history]
    ordered = seqs == sorted(set(seqs))
    seen = f"{len(history)} updates; what {len(stage.held)} live ones told is {'equal' if same else 'NOT equal'}"
    seen += "" if ordered else ", numbers out of order"
    prompts = "".join(script.PROMPTS[: script.PROMPTS.index(script.LAST_TALE) + 1])
    stage.saw("session/load", seen, right=same and ordered and said == prompts, ms=ms)

    notes = [
        " ".join(text_of(one).replace("**", "").split())
        for one in history
        if _BROKEN in text_of(one)
    ]
    sentences = ". ".join(notes[0].split(". ")[:2]) if notes else ""
    seen = f"{len(notes)}: “{sentences}”" if notes else "nothing is said about it"
    stage.saw("broken turn", seen, right=len(notes) == 1 and _BROKEN in text_of(history[-1]))


def _goes_on(part: Any, whole: Any) -> bool:
    """Whether the replayed message begins with the part that was received."""
    if isinstance(part, tuple) and isinstance(whole, tuple):
        return part[:2] == whole[:2] and str(whole[2]).startswith(part[2])
    return bool(part == whole)


def _words(arrivals: list[Arrival]) -> list[str]:
    return "".join(text_of(arrival.update) for arrival in texts(arrivals)).split()


def _lasted(stage: Stage, before: list[DemoProcess]) -> bool:
    after = stage.processes()
    return all(pids(before, role) == pids(after, role) != [] for role in LASTING)
