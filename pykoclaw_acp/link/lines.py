"""The lines between a front and the daemon: the word and the fields of each kind, how it is built
and parsed.

docs/link.md says what they mean. Both sides may be of different versions, so kinds may only be
added; an unknown one is ignored. Standard library only: the front imports this at its start.
"""

from __future__ import annotations

TYPE_CHECKING = False  # `typing` would cost the front half of its start-up time
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Final

LINK: Final = 1  # version of this vocabulary
MAX_NUMBER: Final = 2**53  # integers up to here are exact in every JSON reader
MAX_DEATHS: Final = 2  # daemons that may die over a line; the next one does not read it
HEAD: Final = 64  # bytes; no line has more before its text


def base_id(message_id: str) -> str:
    """The id of the permission request that a message under this id is a part of."""
    return message_id.partition(".")[0]


class Kind:
    """A kind of line: a word, then numbers, then perhaps text up to the newline."""

    __slots__ = ("_head", "numbers", "text", "word")

    def __init__(self, word: str, *numbers: str, text: str = "") -> None:
        """`numbers` and `text` are the names of the fields; without `text` the line ends after its
        numbers.
        """
        self.word = word.encode()
        self.numbers = numbers
        self.text = text
        self._head = self.word + b" %d" * len(numbers) + (b" " if text else b"")

    def __repr__(self) -> str:
        return " ".join(filter(None, (self.word.decode(), *self.numbers, self.text)))

    def build(self, *numbers: int, text: bytes | bytearray = b"") -> bytes:
        """The line, with its newline."""
        return b"".join((self._head % numbers, text, b"\n"))

    def prefix(self, *numbers: int, line: bytes) -> bytes:
        """The line whose text is another line, which has the newline."""
        return self._head % numbers + line

    def parse(self, line: bytes | bytearray) -> tuple[list[int], bytes | bytearray]:
        """Numbers and text of a line without its newline. Raises ValueError.

        A bytearray becomes the text itself, without a copy.
        """
        count = 1 + len(self.numbers)
        words = line[:HEAD].split(b" ", count)
        if len(words) < count or (len(words) > count and not self.text):
            raise ValueError(f"a line that is not `{self}`")
        numbers = [number(word) for word in words[1:count]]
        begin = sum(map(len, words[:count])) + count
        if isinstance(line, bytearray):
            del line[:begin]
            return numbers, line
        return numbers, line[begin:]


# From the front.
HELLO: Final = Kind("front", text="{…}")
SENT: Final = Kind(">", "n", text="LINE")
RESENT: Final = Kind(">>", "n", "ms", text="LINE")
SEEN: Final = Kind("seen", "token", "seq")
DONE: Final = Kind("done", "n")
# From the daemon.
WELCOME: Final = Kind("welcome", text="{…}")
ATTACHED: Final = Kind("attached", "token", "seq", "n", text="ID")
UPDATE: Final = Kind("update", "token", "seq", text="LINE")
CURSOR: Final = Kind("cursor", "token", "seq")
DETACHED: Final = Kind("detached", "token")
ANSWER: Final = Kind("answer", "n", text="LINE")
TAKEN: Final = Kind("taken", "n")
REFUSE: Final = Kind("refuse", "n", text="ERROR")
BYE: Final = Kind("bye")
ACK: Final = Kind("ack", "n")
REQUEST: Final = Kind("request", text="ID LINE")
NOTIFY: Final = Kind("notify", text="LINE")

FROM_FRONT: Final = (HELLO, SENT, RESENT, SEEN, DONE)
FROM_DAEMON: Final = (
    WELCOME,
    ATTACHED,
    UPDATE,
    CURSOR,
    DETACHED,
    ANSWER,
    TAKEN,
    REFUSE,
    BYE,
    ACK,
    REQUEST,
    NOTIFY,
)
GREETING: Final = HELLO.word + b" "  # what a connection begins with if a front has made it


def find(line: bytes | bytearray, kinds: Iterable[Kind]) -> Kind | None:
    """Which of the kinds the line is of; None if it is of none."""
    word = line[:HEAD].partition(b" ")[0]
    for kind in kinds:
        if kind.word == word:
            return kind
    return None


def number(word: bytes | bytearray) -> int:
    """A number that is in range; raises ValueError."""
    if len(word) > 16 or not word.isdigit() or (value := int(word)) > MAX_NUMBER:
        raise ValueError("not a number in range")
    return value
