"""Plans: the list of tasks that Claude keeps, as clients see it."""

from __future__ import annotations

from itertools import pairwise

from tests.conformance.agents import Agent
from tests.conformance.registry import check, must, unsupported

MAKE = 'tool TaskCreate {"subject": "%s", "description": "x"}'
SET = 'tool TaskUpdate {"taskId": "%d", "status": "%s"}'
TASKS = ("Look around.", "Write it down.", "Read it again.")


@must
async def every_plan_is_the_whole_plan(agent: Agent) -> None:
    """A `plan` replaces the one before, so each has every task that was made, in this turn or in an
    earlier one, with its state.
    """
    async with agent.client() as peer:
        session, _ = await agent.session(peer)
        for steps in (
            (MAKE % TASKS[0], MAKE % TASKS[1], SET % (1, "in_progress")),
            (MAKE % TASKS[2], SET % (2, "in_progress")),
        ):
            await peer.prompt(session, agent.script(*steps, "text Planned."))
        told = peer.updates(session, "plan")
        if not told:
            unsupported("the agent shows no plan of Claude's tasks")
        plans = [[one["content"] for one in update["entries"]] for update in told]
        for before, later in pairwise(plans):
            lost = set(before) - set(later)
            check(not lost, f"{lost} are open, and missing in a later plan: {plans}")
        check(sorted(plans[-1]) == sorted(TASKS), f"the last plan is {plans[-1]}")
        states = {one["content"]: one["status"] for one in told[-1]["entries"]}
        wanted = dict(zip(TASKS, ("in_progress", "in_progress", "pending"), strict=True))
        check(states == wanted, f"the states are {states}")
