"""Sequences of events from hypothesis."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from hypothesis import strategies as st

from pykoclaw_acp.model.events import (
    Event,
    Failure,
    Plan,
    PlanEntry,
    Text,
    TextPart,
    Thinking,
    ToolEnded,
    ToolProgressed,
    ToolStarted,
    Usage,
)

words = st.text(alphabet=st.sampled_from("ab é\n\0😀"), min_size=1, max_size=5)


ids = st.sampled_from(["m1", "m2"])


tools = st.sampled_from(["t1", "t2"])


shown = st.one_of(st.just(()), words.map(lambda text: (TextPart(text),)))


anything: st.SearchStrategy[Event] = st.one_of(
    st.builds(Text, ids, words),
    st.builds(Text, ids, words),
    st.builds(Thinking, ids, words),
    st.builds(
        ToolStarted, tools, st.just("Bash"), st.just("ls"), st.just("execute"), content=shown
    ),
    st.builds(
        ToolStarted, tools, st.just("Edit"), st.just("a.py"), st.just("edit"), pending=st.just(True)
    ),
    st.builds(ToolProgressed, tools, content=shown),
    st.builds(ToolProgressed, tools, content=shown, title=words, allowed=st.just(True)),
    st.builds(ToolEnded, tools, st.just("completed"), content=shown),
    st.builds(Usage, st.integers(0, 9), st.just(9)),
    st.builds(Plan, st.one_of(st.just(()), words.map(lambda text: (PlanEntry(text),)))),
    st.builds(Failure, ids, words, st.just("internal")),
)


T = TypeVar("T")


def plans_in_order(told: Sequence[tuple[T | None, Event]]) -> list[tuple[T | None, Event]]:
    """Events with the turns that told them; lists of tasks come turn by turn, those of none first.

    A turn has ended before the next one begins, which is what counts for lists of tasks.
    """
    of_plans = (turn for turn, event in told if isinstance(event, Plan))
    turns = iter(sorted(of_plans, key=lambda turn: "" if turn is None else str(turn)))
    return [(next(turns) if isinstance(event, Plan) else turn, event) for turn, event in told]
