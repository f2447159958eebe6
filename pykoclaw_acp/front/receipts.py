"""What has arrived at the client, and not merely been put on its way: this is what a daemon may rely on."""

from __future__ import annotations


class Receipts:
    """Updates and answers, each with the place in the client's stream where it ends."""

    def __init__(self) -> None:
        self.seen: dict[str, int] = {}  # session: the newest seq that arrived and was not confirmed
        self.places: dict[str, int] = {}  # session: the newest seq that arrived
        self.done: list[int] = []  # numbers of lines whose answer arrived, not confirmed
        self._shown: list[tuple[int, str, int]] = []
        self._answered: list[tuple[int, int]] = []

    def shown(self, session_id: str, seq: int, end: int) -> None:
        """An update of the session ends at the client's byte `end`."""
        self._shown.append((end, session_id, seq))

    def answered(self, number: int, end: int) -> None:
        """The answer to a line ends at the client's byte `end`."""
        self._answered.append((end, number))

    def arrived(self, written: int) -> None:
        """The client has taken this many bytes."""
        count = 0
        for end, session_id, seq in self._shown:
            if end > written:
                break
            self.seen[session_id] = self.places[session_id] = seq
            count += 1
        del self._shown[:count]
        while self._answered and self._answered[0][0] <= written:
            self.done.append(self._answered.pop(0)[1])
