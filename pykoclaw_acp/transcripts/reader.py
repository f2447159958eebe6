"""A transcript as turns and events, from where the look before ended.

An entry belongs to the turn of its parent; a prompt begins a turn. Turns that this server has run
are in the log already, whole or as far as they came, and are left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any, Final

import msgspec

from pykoclaw_acp.model.events import Event
from pykoclaw_acp.transcripts import compactions, entries, lines, shell_commands, task_notices
from pykoclaw_acp.transcripts.answers import Answers
from pykoclaw_acp.transcripts.chain import EarlierTurns, taken_upto
from pykoclaw_acp.transcripts.content import failure, stopped, user_messages
from pykoclaw_acp.transcripts.entries import Entry
from pykoclaw_acp.transcripts.interrupted import InterruptedCalls
from pykoclaw_acp.transcripts.newest_plans import without_old_plans
from pykoclaw_acp.transcripts.origins import of_terminal
from pykoclaw_acp.transcripts.rewinds import Rewinds
from pykoclaw_acp.transcripts.state import (
    MOST_CALLS,
    MOST_NAME,
    NO_TURN,
    OpenCall,
    OpenTurn,
    Owner,
    Seen,
    bounded,
    restored,
)
from pykoclaw_acp.transcripts.subagents import Subagents, tool_results
from pykoclaw_acp.transcripts.wire import Piece, Scan, SeenTurn
from pykoclaw_acp.translation import call_ids
from pykoclaw_acp.translation.translator import Translation

PIECE: Final = 256 * 1024  # bytes of lines with events in a piece
MOST_EVENTS: Final = 400  # in a piece
PROGRESS: Final = 16 * 1024 * 1024  # bytes after which a piece ends in any case
MOST_TITLE: Final = 1000  # characters
DAMAGED: Final = "(A part of this conversation's transcript cannot be read.)"


class TranscriptReader:
    """One look at a file that is open as `descriptor` and has `upto` bytes."""

    def __init__(self, scan: Scan, descriptor: int, upto: int) -> None:
        self._scan = scan
        self._file = descriptor
        self._upto = upto
        self._own = frozenset(scan.own)
        self._answers = Answers(scan, descriptor, upto)
        self._state = restored(scan.state)
        self._rewinds = Rewinds(scan, descriptor, upto, self._state)
        self._seen = Seen(self._state.entries())
        self._parents = self._state.parents()
        self._earlier = EarlierTurns(scan, descriptor, self._state)
        self._translation = Translation(scan.cwd, plans=scan.plans)
        self._ids = call_ids.CallIds()
        self._subagents = Subagents(scan.path, self._translation, self._ids)
        self._interrupted = InterruptedCalls(
            self._state, self._translation, self._subagents, self._ids
        )
        self._translation.tasks.tasks = bounded(self._state.tasks)
        for call in self._state.over:
            self._ids.restore(call, over=True)
        for call, found in self._state.calls.items():
            self._ids.restore(call)
            found.restore(call, self._translation)
            self._subagents.since[call] = found.since
        self._piece = Piece(scan.offset)

    def pieces(self) -> Iterator[Piece]:
        """What is new, in pieces; the last one is `done`."""
        begun, weight = self._scan.offset, 0
        skip = self._scan.skip_first
        for line in lines.read(self._file, self._scan.offset, self._upto):
            before = len(self._piece.events)
            if not self._take(line._replace(text=None) if skip else line):
                break
            skip = False
            self._piece.offset = line.end
            if len(self._piece.events) > before:
                weight += min(line.end - line.begin, lines.WHOLE)
            if (
                self._scan.careful
                or weight >= PIECE
                or len(self._piece.events) + len(self._piece.turns) >= MOST_EVENTS
                or line.end - begun >= PROGRESS
            ):
                yield self._cut()
                begun, weight = line.end, 0
        piece = self._cut()
        piece.done = True
        yield piece

    def _cut(self) -> Piece:
        """The piece so far; the next one begins."""
        piece, translation = self._piece, self._translation
        piece.events = without_old_plans(piece.events)
        self._state.go_on(translation)
        self._state.over = self._ids.over
        translation.names = {call: translation.names[call] for call in translation.open_calls}
        piece.state = msgspec.json.encode(self._state).decode()
        piece.head = self._state.resumed() or None
        before, self._parents = self._parents, self._state.parents()
        piece.parents = {
            one: parent or None
            for one, parent in self._parents.items()
            if before.get(one) != parent
        }
        self._piece = Piece(piece.offset)
        return piece

    def _take(self, line: lines.Line) -> bool:
        """Take a line; False if it cannot be decided yet whose it is."""
        entry = entries.decode(line.text)
        if entry is None:
            self._damaged(line)
            return True
        if self._scan.only is not None and entry.session_id not in (None, self._scan.only):
            return True  # another session's transcript has taken the place of this one
        if entry.type == "custom-title":
            self._renamed(entry.custom_title or "")
        elif entry.type == "last-prompt":
            self._rewinds.note(entry)
        if entry.uuid is None or entry.is_sidechain or entry.uuid in self._seen:
            return True
        self._state.damaged = False
        newest, place = self._state.resumed(), len(self._piece.events)
        parent = self._parent_turn(entry, line)
        rewind = self._rewinds.before(entry, newest, parent, line)
        if rewind == "open" or not self._assign(entry, parent, line):
            return False
        self._rewinds.add(rewind, self._piece, place)
        self._seen.add(entry.uuid)
        return True

    def _assign(self, entry: Entry, parent: str, line: lines.Line) -> bool:
        if entry.uuid in self._own:
            self._end_calls(parent, entry.uuid)
            self._begin(entry, parent, "own")
        elif entries.is_prompt(entry):
            return self._prompt(entry, parent, line)
        elif (who := compactions.whose(self._file, entry, line, self._upto, self._own)) == "open":
            return False
        else:
            self._continue(entry, parent, who)
        return True

    def _renamed(self, title: str) -> None:
        title = title[:MOST_TITLE].strip()
        if title and title != self._state.title:
            self._state.title = self._piece.title = title

    def _damaged(self, line: lines.Line) -> None:
        """Damaged lines in a row are one event; in a turn of our own the log has what they held."""
        found = self._state.turns.get(turn := self._state.head)
        if self._state.damaged or found is None or found.owner != "other":
            return
        self._state.damaged = True
        source = f"damaged-{line.begin}"
        self._tell(turn, source, self._translation.say("text", source, DAMAGED))

    def _parent_turn(self, entry: Entry, line: lines.Line) -> str:
        """The turn of the entry's parent; that of the newest entry if the parent is missing."""
        if entry.parent is None:
            return NO_TURN
        found = self._state.turn_of(entry.parent)
        if found is None:
            found = self._earlier.turn_of(entry.parent, line.begin)
        return self._state.head if found is None else found

    @cached_property
    def _taken(self) -> int:
        """Where what was taken in ends, if the file is read anew: earlier versions have left
        commands for a shell out, and what the log has stays as it is.
        """
        return taken_upto(self._scan, self._file, self._piece.offset, self._upto)

    # --- turns

    def _prompt(self, entry: Entry, parent: str, line: lines.Line) -> bool:
        uuid = str(entry.uuid)
        found = entries.message(entry) or entries.Message()
        background = entries.by_claude_itself(entry)
        command, shell = entries.command(found.text), shell_commands.command(found.text)
        known = uuid in self._scan.known
        if known:
            pass
        elif shell is not None:
            if line.begin < self._taken:
                self._continue(entry, parent)
                return True
        elif background or command is not None:
            answered = self._answers.to(uuid, line)
            if answered == "open":
                return False
            if answered == "no":  # a command that Claude never saw, or a notice without effect
                self._continue(entry, parent)
                return True
            if answered == "own":
                self._begin(entry, parent, "own", background=background)
                return True
        self._end_calls(parent, uuid)
        self._begin(entry, parent, "known" if known else "other", background=background)
        if background:
            why = self._translation.long.why(uuid, *task_notices.read(found.text))
            said = [*self._task_ended(found.text, entry), *why]
        elif command is not None:
            said = user_messages(entry, [{"type": "text", "text": command}])
        else:
            said = user_messages(entry, found.blocks)
        if shell is not None:
            call, arguments = shell_commands.call(uuid), {"command": shell}
            said += self._start_call(call, shell_commands.TOOL, arguments, uuid)
        self._tell(uuid, uuid, () if known else said)
        return True

    def _begin(self, entry: Entry, parent: str, owner: Owner, *, background: bool = False) -> None:
        uuid = str(entry.uuid)
        turn = OpenTurn(owner, after=self._scan.known.get(uuid), parent=parent)
        turn.aside = self._state.lacks_answer(parent, entry.parent)
        self._rewinds.begin(turn, entry)
        self._earlier.add(uuid, turn)
        self._state.continued &= owner != "own"
        if owner != "own":
            self._newer(uuid, turn, uuid)
        seen = SeenTurn(uuid, parent or None, owner == "own", background)
        seen.cwd = entry.cwd and entry.cwd[:4096]
        self._piece.turns.append(seen)

    # --- what belongs to a turn

    def _continue(self, entry: Entry, turn: str, compacted: str = "turn") -> None:
        """Add an entry to a turn. `compacted`: for whom, if it is the boundary of a compaction."""
        uuid = str(entry.uuid)
        self._state.follow(turn, uuid, entry.parent)
        if (answer := entries.answer(entry)) is not None:
            self._state.answer(turn, uuid, answer[:MOST_NAME])
        found = self._state.turns.get(turn)
        if found is None:
            return
        if found.owner == "own":
            self._state.continued |= compacted == "other" or of_terminal(entry.entrypoint)
            if compacted == "other":  # it stands behind our turn
                self._tell(turn, uuid, compactions.events(entry))
            return
        said = self._said(turn, entry, compacted)
        self._tell(turn, uuid, said if self._newer(turn, found, uuid) else ())

    def _said(self, turn: str, entry: Entry, compacted: str) -> list[Event]:
        """Events of an entry, also of one that the log has: what that leaves open may end later."""
        if entry.type == "assistant":
            return self._assistant(turn, entry)
        if entry.type == "user" and entries.by_claude_itself(entry):
            text = (entries.message(entry) or entries.Message()).text
            return self._task_ended(text, entry)
        if entry.type == "user" and not entry.is_meta and not entry.is_compact_summary:
            return self._results(turn, entry)
        if entry.type == "attachment" and (came := entries.queued(entry)) is not None:
            what, said = came
            if what == "task-notification":
                return self._task_ended(said.text, entry)
            return user_messages(entry, said.blocks) if what == "prompt" else []
        return [] if compacted == "own" else compactions.events(entry)

    def _newer(self, turn: str, found: OpenTurn, uuid: str) -> bool:
        """Whether the log lacks this entry of a turn of others."""
        if found.owner == "known":
            if found.after == uuid:
                found.owner = "other"
            return False
        self._piece.last[turn] = uuid
        return True

    def _assistant(self, turn: str, entry: Entry) -> list[Event]:
        found = entries.message(entry)
        if found is None:
            return self._translation.say("text", f"damaged-{entry.uuid}", DAMAGED)
        if entry.is_api_error_message:
            return [failure(entry, found.text)]
        if found.model == "<synthetic>":
            return []
        events: list[Event] = []
        message_id = found.id or str(entry.uuid)
        for block in found.blocks:
            index = self._index(message_id, entry)
            kind = block.get("type")
            text = block.get(str(kind))
            if entries.is_call(block):
                call, (name, arguments) = self._ids.begun(block["id"], turn), entries.called(block)
                self._subagents.begun(call, name, entry)
                events += self._start_call(call, name, arguments, turn)
            elif kind in ("text", "thinking") and isinstance(text, str) and text:
                events += self._translation.say(str(kind), f"{message_id}-{index}", text)
        return events

    def _start_call(
        self, call: str, name: str, arguments: dict[str, Any], turn: str
    ) -> list[Event]:
        if len(self._state.calls) >= MOST_CALLS:
            self._state.drop_ended(self._translation.open_calls)
        if len(self._state.calls) < MOST_CALLS:
            self._state.calls[call] = OpenCall.begun(name, turn, arguments)
            self._state.calls[call].since = self._subagents.since.get(call, "")
        return self._translation.start_tool(call, name, arguments)

    def _index(self, message_id: str, entry: Entry) -> int:
        """Place of the next block in its message."""
        message_id = message_id[:MOST_NAME]
        if message_id != self._state.message:
            self._state.message, self._state.blocks = message_id, 0
        index = self._state.blocks
        self._state.blocks += 1
        return index if entry.api_block_index is None else entry.api_block_index

    def _results(self, turn: str, entry: Entry) -> list[Event]:
        found = entries.message(entry)
        if not (results := tool_results(entry)):
            of_shell = shell_commands.result(turn, found.text if found else "")
            if of_shell is None:
                return stopped(str(entry.uuid), found)
            results = [of_shell]
        return self._interrupted.end_tools(results, entry)

    def _task_ended(self, text: str, entry: Entry) -> list[Event]:
        return self._subagents.end_task(*task_notices.read(text), entry)

    def _end_calls(self, turn: str, uuid: str) -> None:
        """The calls of a turn that is over have got no result."""
        translation = self._translation
        calls = [call for call, found in self._state.calls.items() if found.turn == turn]
        translation.long.unanswered(calls)
        open_calls = [
            call
            for call in calls
            if call in translation.running and call not in translation.background
        ]
        ends, found = translation.end_these(open_calls), self._state.turns.get(turn)
        in_log = uuid in self._scan.known or (found is not None and found.owner == "known")
        self._tell(turn, f"{uuid}-before", () if in_log else ends)

    def _tell(self, turn: str, source: str, events: Sequence[Event]) -> None:
        for n, event in enumerate(events):
            self._piece.events.append((turn, f"{source}:{n}", event))
