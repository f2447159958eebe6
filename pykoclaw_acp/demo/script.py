"""The user's prompts in the demo; the model's answers are in the scripts that they carry, with one
exception.
"""

from __future__ import annotations

from typing import Final

FILE: Final = "guestbook.txt"
ENTRY: Final = "Ada was here.\n"

NAME: Final = f"""My name is Ada. Please note that in {FILE}.
[[script
thinking A name is worth keeping. I will write it into {FILE}.
text I will write it down.
write {FILE} <<< Ada was here.\\n
words 25ms Done: your name stands in {FILE}. Each of these words was in the log before you saw it.
]]"""

_PACE: Final = "words 40ms "


def _tale(request: str, words: str) -> str:
    return f"{request}\n[[script\n{_PACE}{words}\n]]"


TALE: Final = _tale(
    "Tell me a tale.",
    "Once there was a conversation that lived in a process. The process was proud, for it held every word that was "
    "ever said to it, and it held them all in memory. One night somebody pulled the plug: the process was gone, and "
    "so were the words. The next conversation was wiser, and wrote each word down before it spoke it.",
)
SECOND_TALE: Final = _tale(
    "Tell me another one.",
    "There was a teller who spoke to an empty room. The listener had left in the middle of a sentence, and nobody "
    "had said whether there would be another. The teller went on, and put the words on a shelf in their order. "
    "When somebody came in and said how far the tale had been heard, the rest was on the shelf.",
)
LAST_TALE: Final = _tale(
    "And a last one, please.",
    "A house burned down in the night, with the teller, the listener and the shelf in it. What had been said was "
    "carved in the stone of the cellar. Whoever came to build there could read it, up to the word at which the fire "
    "had come, and a note below it, which did not pretend that this was how the tale was meant to end.",
)
HEARD: Final = 20  # pieces of a tale, after which something is killed

QUESTION: Final = "What is my name?"

COUNT: Final = """Count to a thousand.
[[script repeat 1000x15ms {n} ]]"""
COUNT_PIECES: Final = 30  # after so many the user has had enough

PROMPTS: Final = (NAME, TALE, SECOND_TALE, LAST_TALE, QUESTION, COUNT)


def words_of(tale: str) -> list[str]:
    """The model's words for a prompt."""
    return tale.partition(_PACE)[2].removesuffix("\n]]").split()
