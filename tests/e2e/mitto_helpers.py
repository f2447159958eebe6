"""What the tests of Mitto share: test_mitto_*.py, with its test double in tests/e2e/mitto.

Each test is named after a point of these lists.

What an agent can do that makes Mitto misbehave:

1. it fails, or is slow, to give back a session        test_1_*
2. it does not start while its backend is away         test_2_*
3. commands too early                                  test_3_*
4. config options only, or of an unknown type          test_4_*
5. stderr words, long lines, pipes that stay open      test_5_*
6. a late `cancelled`, a refused second prompt         test_6_*
7. `$/cancel_request` ignored                          test_7_*
8. two permission requests at a time                   test_8_*
9. "always" before "once"                              test_9_*
10. titles that come later                             test_10_*
11. `413` in an error                                  test_11_*
12. an early end that only the stop reason tells       test_12_*
13. auxiliary sessions that are kept                   test_13_*
14. mode and model wait for the turn                   test_14_*
15. wrong JSON types                                   test_15_*
16. the process's own directory and PATH               test_16_*
17. MCP servers of the user's own settings             test_17_*
18. a fault of Mitto's own, when sessions are torn
    down while the agent starts slowly                 test_18_*

What makes it shine:

a. any session answered in a moment, without a backend test_a_*
b. a front that starts, waits and reconnects           test_b_*
c. its SIGKILL is survived                             test_c_*
d. cancel in milliseconds, prompts queue               test_6_*, test_7_*
e. its wrappings are understood                        test_e_*
f. modes and models                                    test_f_*, test_4_*, test_14_*
g. tool calls                                          test_g_*, test_10_*
h. commands, usage, plan, why a turn ended             test_h_*, test_3_*, test_12_*
i. auxiliary sessions are ephemeral                    test_13_*
j. several fronts at once                              test_j_*
"""

from __future__ import annotations

from typing import Final

from pykoclaw_acp.front.call import call
from tests.e2e.harness import Stack
from tests.e2e.mitto import Mitto, Wire

AT_ONCE: Final = 5.0  # s, on a busy machine; Mitto waits for 8 to 30
ENDLESS: Final = "[[script repeat 3000x10ms tick{n}. ]]"


def play(*steps: str) -> str:
    """A prompt in one line, since Mitto cuts and repeats what was said."""
    return f"[[script {' ;; '.join(steps)} ]]"


def listed(stack: Stack) -> list[str]:
    """Ids of the sessions that `pykoclaw-acp sessions` shows."""
    answer = call(stack.places, "_pykoclaw.dev/sessions/list", {"all": False})
    return [session["id"] for session in answer["sessions"]]


def claudes(stack: Stack) -> list[str | None]:
    """The sessions that have a process of Claude's."""
    return [one.session for one in stack.processes() if one.is_claude]


def fold(wire: Wire, session: str | None) -> str:
    """All text that came for the session."""
    return wire.text(session or "")


def ticks(first: int, last: int) -> str:
    """What the scripted model says of `repeat … tick{n}.`."""
    return " ".join(f"tick{number}." for number in range(first, last + 1))


def wire_of(web: Mitto) -> Wire:
    assert web.wire is not None
    return web.wire
