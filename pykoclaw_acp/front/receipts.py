"""Updates and answers that have arrived at the client, as opposed to those that are on their way to
it.
"""

from __future__ import annotations


class Receipts:
    """Updates and answers by the offset in the client's stream at which they end."""

    def __init__(self) -> None:
        self.seen: dict[str, int] = {}  # session: the newest seq that arrived and was not confirmed
        self.places: dict[str, int] = {}  # session: the newest seq that arrived
        self.done: list[int] = []  # numbers of lines whose answer arrived, not confirmed
        self._updates: list[tuple[int, str, int]] = []
        self._answers: list[tuple[int, int]] = []

    def expect_update(self, session_id: str, seq: int, end: int) -> None:
        """An update of the session ends at offset `end`."""
        self._updates.append((end, session_id, seq))

    def expect_answer(self, number: int, end: int) -> None:
        """The answer to a line ends at offset `end`."""
        self._answers.append((end, number))

    def advance(self, written: int) -> None:
        """The client has read this many bytes."""
        count = 0
        for end, session_id, seq in self._updates:
            if end > written:
                break
            self.seen[session_id] = self.places[session_id] = seq
            count += 1
        del self._updates[:count]
        while self._answers and self._answers[0][0] <= written:
            self.done.append(self._answers.pop(0)[1])
