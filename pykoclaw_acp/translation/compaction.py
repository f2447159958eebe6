"""Compactions of Claude's context, and what the CLI repeats after one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final
from uuid import uuid4

from pykoclaw_acp.model.events import Event, ToolEnded, ToolStarted
from pykoclaw_acp.model.plain import plain
from pykoclaw_acp.model.synthetic_calls import COMPACTION
from pykoclaw_acp.translation.texts import duration

NAME: Final = "Compaction"
_TITLE: Final = "Compacting the conversation"
_STOPPED: Final = "The conversation was not compacted"
_BEFORE: Final = ("Compaction failed · ", "skipped: ")  # what the CLI says in words
_WHY: Final = {
    "too_few_groups": "there is too little to leave out",
    "prompt_too_long": "it is too long for that",
    "exhausted": "it could not be made short enough",
    "media_unstrippable": "its images or documents are too large to summarize",
    "hook_blocked": "a hook has blocked it",
    "aborted": "it was stopped",
}


@dataclass(slots=True)
class Compaction:
    """The compaction that goes on, if there is one.

    `shown` makes the CLI's words fit for a title. `repeated`: uuids of messages that Claude keeps;
    of these the CLI sends the output of its own commands again.
    """

    shown: Callable[[str], str] = str
    repeated: set[str] = field(default_factory=set)
    tokens: int = 0  # in the context, after the newest compaction
    failure: str = ""  # why the newest one failed
    _call: str | None = None

    def follow(self, subtype: str, data: dict[str, Any]) -> list[Event]:
        """Events of a system message of the CLI."""
        if subtype == "status" and data.get("status") == "compacting":
            return self._begin()
        if subtype == "status" and data.get("compact_result") == "failed":
            reason = self.failure = self._reason(data.get("compact_error"))
            return self.end(f"{_STOPPED}: {reason}")
        if subtype == "compact_boundary":
            given = data.get("compact_metadata")
            return self._done(given if isinstance(given, dict) else {})
        return []

    def end(self, title: str = _STOPPED) -> list[Event]:
        """A compaction that went on has failed, for instance with the turn."""
        if self._call is None:
            return []
        call, self._call = self._call, None
        return [ToolEnded(call, "failed", title=title)]

    def says_again(self, text: str) -> bool:
        """Whether the text says why the newest one failed, which its call has said."""
        return bool(text and self.failure) and self._reason(text) == self.failure

    def _reason(self, given: object) -> str:
        """What the CLI gives: a word for programs, a sentence, or nothing."""
        if not isinstance(given, str) or given in ("", "error"):
            return "Claude's service did not make a summary"
        for words in _BEFORE:
            given = given.removeprefix(words)
        return _WHY.get(given) or self.shown(plain(given))

    def _begin(self) -> list[Event]:
        if self._call is not None:
            return []
        self._call = f"{COMPACTION}{uuid4()}"
        return [ToolStarted(self._call, NAME, _TITLE, "think")]

    def _done(self, given: dict[str, Any]) -> list[Event]:
        begun = self._begin()
        call, self._call = self._call, None
        kept = given.get("preserved_messages")
        uuids = kept.get("uuids") if isinstance(kept, dict) else None
        self.repeated = {str(one) for one in uuids} if isinstance(uuids, list) else set()
        before, after = _count(given.get("pre_tokens")), _count(given.get("post_tokens"))
        self.tokens = after
        assert call is not None
        return [*begun, _ended(call, given.get("trigger"), given.get("duration_ms"), before, after)]


def of_transcript(uuid: str, given: dict[str, Any]) -> list[Event]:
    """Events of a compaction of which the transcript has this `compactMetadata`, in the entry `uuid`."""
    call = f"{COMPACTION}{uuid}"
    before, after = _count(given.get("preTokens")), _count(given.get("postTokens"))
    begun = ToolStarted(call, NAME, _TITLE, "think")
    return [begun, _ended(call, given.get("trigger"), given.get("durationMs"), before, after)]


def _ended(call: str, trigger: object, took: object, before: int, after: int) -> ToolEnded:
    """`took`: milliseconds, if they are known."""
    by_itself = " automatically" if trigger == "auto" else ""
    time = f" in {duration(max(took / 1000, 1))}" if isinstance(took, int) and took else ""
    counts = f": {before:,} tokens before, {after:,} after" if before and after else ""
    title = f"Compacted the conversation{by_itself}{time}{counts}"
    return ToolEnded(call, "completed", title=title)


def _count(value: object) -> int:
    return value if isinstance(value, int) else 0
