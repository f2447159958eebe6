"""What the user says in the demo; what the model answers is in scripts that the prompts carry, but for one."""

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

_TALE: Final = (
    "Once there was a conversation that lived in a process. The process was proud, for it held every word that was "
    "ever said to it, and it held them all in memory. One night somebody pulled the plug: the process was gone, and "
    "so were the words. The next conversation was wiser. It wrote each word down before it spoke it, and slept well, "
    "whatever the night would bring. Years went by, plugs were pulled, and it is still talking."
)
TALE: Final = f"""Tell me a long tale.
[[script
words 40ms {_TALE}
]]"""
TALE_PIECES: Final = 30  # after so many, in the middle of a sentence, everything is killed

QUESTION: Final = "What is my name?"

COUNT: Final = """Count to a thousand.
[[script repeat 1000x15ms {n} ]]"""
COUNT_PIECES: Final = 30  # after so many the user has had enough

PROMPTS: Final = (NAME, TALE, QUESTION, COUNT)
