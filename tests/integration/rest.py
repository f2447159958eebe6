"""The end of a memory world's story: what is left comes to its end, and a new client sees what the
others saw.
"""

from __future__ import annotations

from tests.integration.memory_world import World
from tests.promises import ENDED, check, closed, turns


async def come_to_rest(w: World) -> None:
    """Everybody does what he would: daemons are started, questions answered, refused things asked
    again, turns end.
    """

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
    if session in closed(w):
        return
    reader = w.front()
    number = reader.load(session)
    await w.until(lambda: reader.answer(number))
    await w.quiet()
    check(w)
    for front in w.fronts:
        other = front.views.get(session)
        if other is not None and other.start == 0 and session in front.followed:
            assert other.text == reader.views[session].text
