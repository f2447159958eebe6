"""Rules of Claude that last: what a person has allowed in a session, or in a directory for later
sessions, too.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LastingRule:
    """A rule, such as `Bash(npm test)`, in a directory; `by`: a client's name or `cli`, `at`: ms since
    1970. `session`: the only one in which it holds; None: it holds in all of the directory.
    """

    path: str
    rule: str
    by: str
    at: int
    session: str | None = None
